"""How long sweeps of 1,000,000 points take, and how much memory.

    python benchmarks/sweep.py [--repeat 5]

The first is the public sweep: every kind of server is derived anew, then each cell's fit and floor
is worked out. The second is the bare arithmetic. Exits with 1 if the best run of one takes longer
than a second.
"""

from __future__ import annotations

import argparse
import sys
import timeit
import tracemalloc

import numpy as np

from pytest_llmserve import sweep
from pytest_llmserve.engine.attention import RequestBytes
from pytest_llmserve.engine.sweep import kv_sweep
from pytest_llmserve.sweeps import Fit

GIB = 1 << 30
GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "l40s")
# Bytes of a token by window, from the models' public configs, 16-bit cache on one GPU.
MODELS = {
    "Llama-3.1-8B": RequestBytes(0, {None: 131_072}),
    "Llama-3.1-70B": RequestBytes(0, {None: 327_680}),
    "gemma-3-27b": RequestBytes(0, {None: 10 * 8_192, 1_024: 52 * 8_192}),
    "DeepSeek-V3": RequestBytes(0, {None: 70_272}),
    "Qwen3-Next-80B-A3B": RequestBytes(36 * 1_097_728, {None: 12 * 2_048}),
}


def public() -> tuple[int, dict[str, int]]:
    """Points, and how many fit by kind: 4 GPUs x 4 TP x 2 KV dtypes x 2 weights x 125 x 125."""
    found = sweep(
        "meta-llama/Llama-3.1-70B-Instruct",
        gpus=GPUS,
        tensor_parallel_sizes=(1, 2, 4, 8),
        kv_cache_dtypes=("auto", "fp8"),
        quantizations=(None, "fp8"),
        contexts=np.linspace(1_000, 125_000, 125).astype(int).tolist(),
        concurrencies=range(1, 126),
        version="0.19.1",
    )
    fitting = {}
    for kind in found.kinds:
        fit, floors = kind.fit, kind.tpot_floor_s
        assert floors is None or floors.shape == fit.shape
        fitting[kind.label] = int((fit == Fit.FITS).sum())
    return found.num_cells, fitting


def bare() -> int:
    """Points of the arithmetic alone: 5 models x 448 contexts x 448 concurrencies."""
    grid = kv_sweep(
        list(MODELS.values()),
        np.linspace(1, 131_072, 448).astype(np.int64),
        np.arange(1, 449),
        [40 * GIB] * len(MODELS),
    )
    return grid.need_bytes.size


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    points, fitting = public()  # also loads and caches the catalogue
    best = min(timeit.repeat(public, number=1, repeat=args.repeat))
    tracemalloc.start()
    public()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"public sweep: {points:,} points in {best * 1e3:.0f} ms (best of {args.repeat}), "
        f"peak {peak / 2**20:.1f} MiB"
    )
    for label, count in fitting.items():
        print(f"  {label:<62} fits at {count:>6,}")
    cells = bare()
    quick = min(timeit.repeat(bare, number=1, repeat=args.repeat))
    print(f"arithmetic: {cells:,} points in {quick * 1e3:.0f} ms")
    return int(max(best, quick) > 1.0)


if __name__ == "__main__":
    sys.exit(main())
