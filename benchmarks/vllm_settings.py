"""Settings and refusals of vLLM, held against what vLLM itself computed.

    python benchmarks/vllm_settings.py --corpus DIR [--show N]

Reads ``DIR/vllm_oracle/points.jsonl`` and ``DIR/models/*/config.json``. Every point either started,
then six settings must be equal and nothing may be refused, or it was refused, then a refusal with
the same reason must be among ours. Points of models that are not understood are counted apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.manifests.launch import Word
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.errors import ModelError
from pytest_llmserve.runtimes.vllm.args import parse_args
from pytest_llmserve.runtimes.vllm.refusals import refusals
from pytest_llmserve.runtimes.vllm.resolve import resolve_settings
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

GPUS = {
    "H100": "h100-sxm-80gb",
    "H200": "h200-sxm-141gb",
    "A100": "a100-sxm-80gb",
    "B200": "b200-sxm-180gb",
    "T4": "t4",
    "L4": "l4",
    "A10G": "a10g",
    "V100": "v100-sxm2-32gb",
}
# Words of an error -> the rule that must refuse.
REASONS = (
    ("User-specified max_model_len", "context"),
    ("max_model_len must be a positive", "context"),
    ("argument parser refused", "flags"),
    ("is smaller than max_model_len", "scheduler"),
    ("greater than or equal to max_num_seqs", "scheduler"),
    ("Concurrent Partial Prefill", "scheduler"),
    ("Total number of attention heads", "parallelism"),
    ("is not divisible by", "parallelism"),
    ("does not support float16", "dtype"),
    ("is not supported for quantization method", "quantization"),
    ("is not supported for the current GPU", "quantization"),
    ("Unknown quantization method", "quantization"),
    ("The quantization method", "quantization"),
    ("are not supported for now", "other"),
    ("is not supported anymore", "other"),
    ("gpu_memory_utilization", "other"),
)
# Not vLLM's verdict on the settings: a fault of the stand-in or of its libraries.
NOT_A_REFUSAL = ("OSError", "uninitialized parameter", "KeyError", "does not have `num_attention")
# Raised by the worker after the settings were accepted: the stand-in has no worker.
WORKER_SAYS = ("Chunked MM input disabled", "Bfloat16 is only supported")


@cache
def model_of(folder: Path, *, with_quant_file: bool) -> ModelSpec | None:
    """The model; most points were built without the hf_quant_config.json beside it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    beside = None
    if with_quant_file:
        beside = json.loads((folder / "hf_quant_config.json").read_text(encoding="utf-8"))
    try:
        return read_config(config, model_id=folder.name, source=folder.name, hf_quant_config=beside)
    except ModelError:
        return None


def ours(point: dict[str, Any], model: ModelSpec) -> tuple[VllmSettings, tuple[Refusal, ...]]:
    version, gpu = Version(point["vllm"]), load_gpu(GPUS[point["gpu"]])
    here = Location("point", 1)
    args = parse_args([Word(text, here) for text in ("M", *point["args"])], version)
    settings = resolve_settings(args, version=version, model=model, gpu=gpu, env={})
    found = refusals(settings, args, version=version, model=model, gpu=gpu, gpu_count=None, env={})
    return settings, found


def differences(point: dict[str, Any], settings: VllmSettings) -> list[str]:
    pairs = {
        "max_model_len": settings.max_model_len.value,
        "max_num_batched_tokens": settings.max_num_batched_tokens.value,
        "max_num_seqs": settings.max_num_seqs.value,
        "dtype": f"torch.{settings.dtype.value}",
        "kv_dtype": settings.kv_cache_dtype.value,
        "quantization": settings.quantization.value,
    }
    return [
        f"{name}: ours {value!r}, vLLM {point[name]!r}"
        for name, value in pairs.items()
        if value != point[name]
    ]


def judge(point: dict[str, Any], model: ModelSpec) -> tuple[str, list[str]]:
    settings, found = ours(point, model)
    error = point.get("error")
    if error is None:
        checked = [r for r in found if not r.server_says.startswith(WORKER_SAYS)]
        wrong = [f"refused: {refusal.headline}" for refusal in checked]
        wrong += differences(point, settings)
        return ("started, differs" if wrong else "started, equal"), wrong
    if any(word in error for word in NOT_A_REFUSAL):
        return "error of the stand-in, not compared", []
    rule = next((rule for words, rule in REASONS if words in error), None)
    if any(refusal.rule == rule for refusal in found):
        return "refused, same reason", []
    reasons = ", ".join(refusal.rule for refusal in found) or "nothing"
    return "refused, not by us", [f"ours {reasons}; vLLM {error[:160]!r}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--show", type=int, default=20, help="differing points to print")
    given = parser.parse_args()
    lines = (given.corpus / "vllm_oracle" / "points.jsonl").read_text(encoding="utf-8")
    counts: Counter[str] = Counter()
    shown = 0
    for line in lines.splitlines():
        point = json.loads(line)
        beside = "hf_quant_config.json beside" in (point.get("why") or "")
        model = model_of(given.corpus / "models" / point["config"], with_quant_file=beside)
        if model is None:
            counts["model not understood"] += 1
            continue
        outcome, details = judge(point, model)
        counts[outcome] += 1
        if details and shown < given.show:
            shown += 1
            print(point["vllm"], point["gpu"], point["config"], *point["args"])
            for detail in details:
                print("   ", detail)
    for outcome, count in counts.most_common():
        print(f"{count:6}  {outcome}")
    return int(counts["started, differs"] + counts["refused, not by us"] > 0)


if __name__ == "__main__":
    sys.exit(main())
