"""Expectations of decode on rows that their constants did not see.

    python benchmarks/speed_held_out.py --corpus DIR

For each class of the table and each source of measurements: fraction and launch time are fitted
anew to the rows of the other sources, as the table's were (least absolute log error on a grid), and
tried on this source's. A class of one source cannot be tried, and is counted.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Final

import numpy as np
from speed_compare import Compared, decode_row
from speed_rows import rows

from pytest_llmserve.engine.expected import ExpectedTime
from pytest_llmserve.engine.speed_table import DECODE, DecodeClass

FRACTIONS: Final = np.arange(0.4, 0.96, 0.05)
LAUNCHES_S: Final = np.arange(0, 301, 10) * 1e-6
FEWEST: Final = 3


def load_s(item: Compared, row: DecodeClass) -> float:
    """What the table's constants leave of the prediction: the load at full bandwidth."""
    assert isinstance(item.expected, ExpectedTime)
    fixed = item.row.spec.num_layers * row.layer_s + row.step_s
    return max(0.0, item.expected.expected_s - fixed) * row.bandwidth_fraction


def launches(item: Compared, row: DecodeClass) -> float:
    """Launches of a step: its layers, or a fixed 100 where the class has a time a step."""
    return 100.0 if row.step_s else float(item.row.spec.num_layers)


def fitted(loads: np.ndarray, counts: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    best = (np.inf, 0.0, 0.0)
    for fraction in FRACTIONS:
        for launch in LAUNCHES_S:
            error = np.abs(np.log((loads / fraction + counts * launch) / times)).mean()
            best = min(best, (float(error), float(fraction), float(launch)))
    return best[1], best[2]


def held_out(items: list[Compared], row: DecodeClass) -> list[float]:
    """Predicted / measured of every row, by constants fitted to the other sources."""
    sources = np.array([item.row.record["source"].split()[0] for item in items])
    loads = np.array([load_s(item, row) for item in items])
    counts = np.array([launches(item, row) for item in items])
    times = np.array([item.measured_s for item in items])
    ratios: list[float] = []
    for source in sorted(set(sources)):
        mine = sources == source
        if (~mine).sum() < FEWEST:
            continue
        fraction, launch = fitted(loads[~mine], counts[~mine], times[~mine])
        ratios += list((loads[mine] / fraction + counts[mine] * launch) / times[mine])
    return ratios


def words(name: str, ratios: list[float], n: int) -> str:
    if not ratios:
        return f"{name:<84} n {n:>3}  one source, or too few rows of others"
    within = sum(1 / 1.5 <= r <= 1.5 for r in ratios) / len(ratios)
    return (
        f"{name:<84} n {n:>3}  tried {len(ratios):>3}  median {statistics.median(ratios):.2f}  "
        f"within x 1.5 {within:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True)
    args = parser.parse_args()
    found = [decode_row(row) for row in rows(args.corpus)[0]]
    groups: dict[str, list[Compared]] = {}
    for item in found:
        if item is None or item.phase != "decode" or item.row.gpus > 8:
            continue
        if isinstance(item.expected, ExpectedTime):
            groups.setdefault(item.expected.kind, []).append(item)
    every: list[float] = []
    served: list[float] = []
    total = num_served = 0
    for row in DECODE:
        items = groups.get(row.words, [])
        ratios = held_out(items, row) if items else []
        every += ratios
        served += ratios if row.engine != "llama.cpp" else []
        total += len(items)
        num_served += len(items) if row.engine != "llama.cpp" else 0
        print(words(row.words, ratios, len(items)))
    print(words("all", every, total))
    print(words("servers", served, num_served))


if __name__ == "__main__":
    main()
