"""Measured speeds against floors: no plain measurement may beat a floor.

    python benchmarks/floors.py --corpus DIR

Reads ``speed/speed.jsonl`` (measured speeds) and ``models/<org>--<name>/config.json`` of DIR, takes
the 16-bit and fp8 records without speculation, prefix-cache hits, expert or data parallelism or
doubt, and prints how far each kind of record is from its floor. Exits with 1 if a floor is beaten.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pytest_llmserve.engine.costs import step_costs
from pytest_llmserve.engine.latency import Floor, compute_format, tpot_floor, ttft_floor
from pytest_llmserve.engine.parallel import Rank
from pytest_llmserve.hardware.catalogue import gpu_ids, load_gpu
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.schemes import scheme_of
from pytest_llmserve.models.spec import ModelSpec, Quantization

SIXTEEN_BIT = {"bf16", "BF16", "F16", "fp16"}
FP8 = {"fp8", "FP8"}
ONLINE_FP8 = Quantization(method="fp8", scheme="fp8_tensor", bits=8)
# Records name a repository that the corpus has under another one of equal shape.
SAME_SHAPE = {
    "meta-llama/Meta-Llama-3-70B": "meta-llama/Llama-3.1-70B-Instruct",
    "nvidia/Llama-3.3-70B-Instruct": "meta-llama/Llama-3.3-70B-Instruct",
    "nvidia/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
}


def spec_of(corpus: Path, model: str, quant: str) -> ModelSpec | None:
    names = (model, SAME_SHAPE.get(model, model))
    folders = [corpus / "models" / name.replace("/", "--") for name in names]
    folder = next((found for found in folders if (found / "config.json").exists()), None)
    if folder is None or quant not in SIXTEEN_BIT | FP8:
        return None
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    try:
        spec = read_config(config, model_id=model, source=str(folder / "config.json"))
    except ValueError:
        return None
    spec = dataclasses.replace(spec, dtype="bfloat16")  # files without a dtype read as float32
    if quant in SIXTEEN_BIT:
        return dataclasses.replace(spec, quantization=None)
    is_fp8 = spec.quantization is not None and spec.quantization.bits == 8
    return spec if is_fp8 else dataclasses.replace(spec, quantization=ONLINE_FP8)


def step_s(record: dict[str, Any]) -> float | None:
    measured: dict[str, float] = record["measured"]
    if "tpot_ms" in measured:
        return measured["tpot_ms"] / 1e3
    if "decode_tok_s_per_user" in measured:
        return 1 / measured["decode_tok_s_per_user"]
    return None


def floor_of(record: dict[str, Any], spec: ModelSpec) -> tuple[Floor | None, float] | None:
    """The record's floor and what was measured; ``None``: nothing to compare."""
    gpu = load_gpu(record["gpu"])
    rank = Rank(tensor_parallel_size=record.get("tp") or 1)
    costs = step_costs(spec, rank, partial(scheme_of, spec.quantization))
    compute = compute_format(spec)
    if record["phase"] == "prefill" and "prefill_tok_s" in record["measured"]:
        tokens = int(record["prompt_tokens"])
        floor = ttft_floor(
            costs,
            gpu,
            compute,
            prompt_tokens=tokens,
            pipeline_parallel_size=record.get("pp") or 1,
        )
        return floor, tokens / record["measured"]["prefill_tok_s"]
    measured = step_s(record)
    if record["phase"] not in {"decode", "serving"} or measured is None:
        return None
    # how many sequences a server under load really decodes together is not measured: count one
    batch = int(record.get("batch_or_concurrency") or 1) if record["phase"] == "decode" else 1
    context = max(1, int(record.get("context_at_measure") or 1)) if batch == 1 else 1
    return tpot_floor(costs, gpu, compute, batch=batch, context=context), measured


def is_plain(record: dict[str, Any]) -> bool:
    void = ("spec_decode", "doubt", "prefix_cache_hit", "ep", "dp")
    is_per_gpu = record.get("scope") == "per-gpu-throughput"
    return not (is_per_gpu or any(record.get(key) for key in void) or "spec" in record["quant"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True)
    args = parser.parse_args()
    lines = (args.corpus / "speed" / "speed.jsonl").read_text(encoding="utf-8").splitlines()
    known = set(gpu_ids())
    shares: dict[str, list[float]] = {}
    beaten: list[str] = []
    for record in map(json.loads, lines):
        if not is_plain(record) or record["gpu"] not in known:
            continue
        spec = spec_of(args.corpus, record["model"], record["quant"])
        try:
            found = None if spec is None else floor_of(record, spec)
        except ValueError as error:
            print(f"{record['id']}: {error}")
            continue
        if found is None or found[0] is None:
            continue
        share = found[0].floor_s / found[1]
        shares.setdefault(record["phase"], []).append(share)
        if share > 1:
            beaten.append(
                f"{record['id']}: {record['model']} {record['quant']} on {record['gpu']}, "
                f"{record['phase']}: floor {found[0].floor_s * 1e3:.2f} ms, "
                f"measured {found[1] * 1e3:.2f} ms"
            )
    for phase, values in sorted(shares.items()):
        print(
            f"{phase:<8} n {len(values):>4}   floor / measured: "
            f"median {statistics.median(values):.2f}, highest {max(values):.2f}"
        )
    print(f"{len(beaten)} floors beaten", *beaten, sep="\n  ")
    return int(bool(beaten))


if __name__ == "__main__":
    sys.exit(main())
