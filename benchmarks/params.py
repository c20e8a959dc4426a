"""Hold parameter totals and cache sizes against a corpus of configs with known counts.

python benchmarks/params.py --corpus DIR [--json] [--only TEXT]

DIR/models/*/config.json are read; params.json and kv.json beside each hold the counts of a real
library. Equality is exact. An unknown architecture is a count of its own, never a pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.errors import BadConfig, UnsupportedModel
from pytest_llmserve.models.spec import ModelSpec, StateCache
from pytest_llmserve.models.totals import (
    active_parameters,
    kv_elements_per_token,
    parameter_count,
    state_elements,
    text_parameters,
    total_parameters,
)

# Where the library counts something else than engines hold. A row here is still printed.
CONVENTIONS = {
    ("FalconForCausalLM", "kv"): "the library caches each KV head once per query head",
    ("MiniCPM3ForCausalLM", "kv"): "the library caches the latent, engines all heads",
    ("Qwen2_5OmniForConditionalGeneration", "total"): "the library counts the talker too",
    ("Qwen2_5OmniForConditionalGeneration", "active"): "the library counts the talker too",
    ("MiniCPMV4_6ForConditionalGeneration", "text"): "the library's group 'vision' lacks a merger",
}


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def conv_rows(spec: ModelSpec) -> int:
    """transformers keeps one conv input more than engines do: the elements of that row."""
    return sum(
        len(group.indices) * tensor.shape[1]
        for group in spec.layer_groups
        for cache in group.layer.caches
        if isinstance(cache, StateCache)
        for tensor in cache.tensors
        if tensor.role == "conv"
    )


def compare(folder: Path) -> dict[str, Any]:
    """One model: what is equal, what differs, or why it was not sized."""
    row: dict[str, Any] = {"model": folder.name, "state": "no count"}
    config = load(folder / "config.json")
    counts = load(folder / "params.json") or {}
    kv = load(folder / "kv.json") or {}
    expected = counts.get("total_params")
    try:
        spec = read_config(
            config,
            model_id=folder.name.replace("--", "/", 1),
            source=folder.name,
            hf_quant_config=load(folder / "hf_quant_config.json"),
        )
    except (UnsupportedModel, BadConfig) as error:
        kind = "not understood" if isinstance(error, UnsupportedModel) else "bad config"
        row |= {"state": kind, "why": str(error), "has_count": expected is not None}
        row["architecture"] = (config.get("architectures") or [config.get("model_type")])[0]
        return row
    row["unsupported"] = list(spec.unsupported)
    if expected is None:
        return row
    checks = {
        "total": (total_parameters(spec), expected),
        "text": (text_parameters(spec), counts.get("text_params", expected)),
        "active": (active_parameters(spec), counts.get("active_params") or expected),
    }
    if kv.get("elements_per_token") is not None:
        checks["kv"] = (kv_elements_per_token(spec), int(kv["elements_per_token"]))
        engine_state = state_elements(spec)
        fixed = kv.get("fixed_elements") or 0
        checks["state"] = (engine_state + conv_rows(spec), fixed)
    wrong = {name: pair for name, pair in checks.items() if pair[0] != pair[1]}
    named = {name: pair for name, pair in wrong.items() if (spec.architecture, name) in CONVENTIONS}
    row["by_convention"] = {
        name: [*pair, CONVENTIONS[spec.architecture, name]] for name, pair in named.items()
    }
    wrong = {name: pair for name, pair in wrong.items() if name not in named}
    row["state"] = "different" if wrong else "equal"
    row["wrong"] = wrong
    if "total" in wrong:
        ours = {group.value: count for group, count in parameter_count(spec).items() if count}
        row["ours"], row["theirs"] = ours, {k: v for k, v in counts["by_group"].items() if v}
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    folders = sorted((options.corpus / "models").glob("*/config.json"))
    start = time.process_time()
    rows = [compare(path.parent) for path in folders if options.only in path.parent.name]
    cpu_s = time.process_time() - start
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    states = Counter(row["state"] for row in rows)
    for row in rows:
        if row["state"] == "different":
            print(f"different  {row['model']}: {row['wrong']}")
            if "ours" in row:
                print(f"    ours   {row['ours']}\n    theirs {row['theirs']}")
        elif row["state"] in {"bad config", "not understood"}:
            print(f"{row['state']}  {row['why']}")
        for name, (ours, theirs, reason) in row.get("by_convention", {}).items():
            print(f"convention {row['model']}: {name} {ours} against {theirs}: {reason}")
        for part in row.get("unsupported", ()):
            print(f"in part    {row['model']}: {part}")
    print(f"{len(rows)} models in {cpu_s:.2f} s CPU: {dict(states)}")
    counted = [row for row in rows if row["state"] in {"equal", "different"}]
    missed = [row for row in rows if row.get("has_count")]
    if counted or missed:
        share = len(counted) / (len(counted) + len(missed))
        print(f"understood {share:.1%} of {len(counted) + len(missed)} with a count")
        names = Counter(row["architecture"] for row in missed)
        print("not sized: " + ", ".join(f"{name} x{n}" for name, n in names.most_common()))
    return 1 if states["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
