"""How long a sweep of 1,000,000 (context x concurrency x model) points takes.

    python benchmarks/sweep.py [--points 1000000] [--repeat 5]

Exits with 1 if the best run takes longer than a second.
"""

from __future__ import annotations

import argparse
import sys
import timeit

import numpy as np

from pytest_llmserve.engine.attention import RequestBytes
from pytest_llmserve.engine.sweep import KvSweep, kv_sweep

GIB = 1 << 30
# Bytes of a token by window, from the models' public configs, 16-bit cache on one GPU.
MODELS = {
    "Llama-3.1-8B": RequestBytes(0, {None: 131_072}),
    "Llama-3.1-70B": RequestBytes(0, {None: 327_680}),
    "gemma-3-27b": RequestBytes(0, {None: 10 * 8_192, 1_024: 52 * 8_192}),
    "DeepSeek-V3": RequestBytes(0, {None: 70_272}),
    "Qwen3-Next-80B-A3B": RequestBytes(36 * 1_097_728, {None: 12 * 2_048}),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    side = int((args.points / len(MODELS)) ** 0.5) + 1
    contexts = np.linspace(1, 131_072, side).astype(np.int64)
    concurrencies = np.arange(1, side + 1)
    pools = [40 * GIB] * len(MODELS)

    def run() -> KvSweep:
        return kv_sweep(list(MODELS.values()), contexts, concurrencies, pools)

    grid = run()
    best = min(timeit.repeat(run, number=1, repeat=args.repeat))
    points = grid.need_bytes.size
    nanoseconds = best / points * 1e9
    print(
        f"{points:,} points: best of {args.repeat} {best * 1e3:.1f} ms, {nanoseconds:.1f} ns each"
    )
    for row, name in enumerate(MODELS):
        share = grid.fits[row].mean()
        print(
            f"  {name:<20} fits at {share:6.1%} of the points, "
            f"{grid.max_requests[row, -1]} requests of {contexts[-1]:,} tokens in 40 GiB"
        )
    return int(best > 1.0)


if __name__ == "__main__":
    sys.exit(main())
