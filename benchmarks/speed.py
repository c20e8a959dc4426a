"""Measured speeds against floors and expectations.

    python benchmarks/speed.py --corpus DIR [--json] [--detail]

Reads ``speed/speed.jsonl`` of DIR, with model configs from ``models/<org>--<name>/config.json`` and
the bundled catalogue. A floor is compared with every row that can be computed, an expectation with
those of a class that has one. Exits with 1 if a floor lies above a measured value, or if the
expectations of decode on 1 to 8 GPUs miss their marks: median of predicted / measured within 0.9 to
1.1, 85 % within a factor 1.5, 90 % inside the interval.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speed_compare import SERVING, Compared, compare, engine_of, is_entered_by_hand
from speed_rows import rows

from pytest_llmserve.engine.expected import ExpectedTime, NoExpectation, memory_class

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table: floors, and predicted / measured of the expectations."""

    name: tuple[str, ...]
    floors: int
    floor_median: float
    floor_highest: float
    expected: int
    median: float | None
    p10: float | None
    p90: float | None
    within_half: float | None
    inside: float | None
    not_told: int


def line_of(name: tuple[str, ...], items: list[Compared]) -> Line:
    shares = [item.floor_share for item in items]
    told = [(item, item.ratio) for item in items]
    ratios = sorted(ratio for _, ratio in told if ratio is not None)
    inside = [item.is_inside for item, ratio in told if ratio is not None]
    n = len(ratios)
    return Line(
        name=name,
        floors=len(shares),
        floor_median=statistics.median(shares),
        floor_highest=max(shares),
        expected=n,
        median=statistics.median(ratios) if n else None,
        p10=ratios[n // 10] if n else None,
        p90=ratios[min(n - 1, n * 9 // 10)] if n else None,
        within_half=sum(1 / 1.5 <= r <= 1.5 for r in ratios) / n if n else None,
        inside=sum(inside) / n if n else None,
        not_told=sum(isinstance(item.expected, NoExpectation) for item in items),
    )


def class_lines(items: Iterable[Compared]) -> list[Line]:
    """The rows behind each class of the table of constants."""
    groups: dict[str, list[Compared]] = {}
    for item in items:
        if isinstance(item.expected, ExpectedTime):
            groups.setdefault(item.expected.kind, []).append(item)
    return [line_of((kind, "", "", ""), found) for kind, found in sorted(groups.items())]


def group_of(item: Compared) -> tuple[str, ...]:
    memory = memory_class(item.row.gpu) or f"other {item.row.gpu.vendor}"
    kind = "MoE" if item.row.floor_costs.experts else "dense"
    engine = engine_of(item.row) or item.row.engine
    return item.phase, memory, engine, kind


def marks(items: Iterable[Compared]) -> list[Line]:
    """Decode on 1 to 8 GPUs, of all programs and of servers: what expectations are held to."""
    chosen = [item for item in items if item.phase == "decode" and item.row.gpus <= 8]
    served = [item for item in chosen if item.row.engine in SERVING]
    return [
        line_of(("decode", "1-8 GPUs", "all", "all"), chosen),
        line_of(("decode", "1-8 GPUs", "servers", "all"), served),
    ]


def is_good(mark: Line) -> bool:
    assert mark.median is not None
    assert mark.within_half is not None
    assert mark.inside is not None
    return 0.9 <= mark.median <= 1.1 and mark.within_half >= 0.85 and mark.inside >= 0.9


def table(lines: list[Line]) -> str:
    def figure(value: float | None) -> str:
        return "    -" if value is None else f"{value:5.2f}"

    out = [
        f"{'phase':<10} {'memory':<15} {'engine':<18} {'kind':<6}|{'floors':>6} {'median':>6} "
        f"{'max':>5} |{'n':>4} {'p10':>5} {'median':>6} {'p90':>5} {'x1.5':>5} {'inside':>6} "
        f"{'cannot tell':>11}"
    ]
    for line in lines:
        phase, memory, engine, kind = line.name
        out.append(
            f"{phase:<10} {memory:<15} {engine:<18} {kind:<6}|{line.floors:>6} "
            f"{line.floor_median:6.2f} {line.floor_highest:5.2f} |{line.expected:>4} "
            f"{figure(line.p10)} {figure(line.median):>6} {figure(line.p90)} "
            f"{figure(line.within_half)} {figure(line.inside):>6} {line.not_told:>11}"
        )
    return "\n".join(out)


def words(item: Compared) -> str:
    record = item.row.record
    expected = ""
    if isinstance(item.expected, ExpectedTime):
        expected = f", expected {item.expected.expected_s * 1e3:.2f} ms"
    return (
        f"{record['id']}: {record['model']} {record['quant']} on {item.row.gpus} x "
        f"{record['gpu']}, {record['engine']}, {item.phase}: floor {item.floor_s * 1e3:.2f} ms, "
        f"measured {item.measured_s * 1e3:.2f} ms{expected}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--detail", action="store_true", help="every miss")
    args = parser.parse_args()
    usable, left, total = rows(args.corpus)
    items = [item for row in usable for item in compare(row)]
    beaten = [item for item in items if item.floor_share > 1]
    groups: dict[tuple[str, ...], list[Compared]] = {}
    for item in items:
        groups.setdefault(group_of(item), []).append(item)
    lines = [line_of(name, found) for name, found in sorted(groups.items())]
    held = marks(items)
    are_good = all(map(is_good, held))
    is_ok = not beaten and are_good
    if args.json:
        print(json.dumps(as_json(total, left, lines, held, beaten, items), indent=1))
        return int(not is_ok)
    print(f"{total} records, {len(usable)} computed")
    print(*(f"  {count:>4} left out: {why}" for why, count in left.most_common()), sep="\n")
    by_hand = sum(is_entered_by_hand(row.record) for row in usable)
    print(f"  {by_hand:>4} first-token times not compared: entered by users")
    print("\nfloor / measured                                    "
          "|                     | predicted / measured")  # fmt: skip
    print(table([*lines, *held]))
    print("\nby class of constants")
    for line in class_lines(items):
        assert line.inside is not None
        print(
            f"  {line.name[0]:<76} n {line.expected:>3}  p10 {line.p10:.2f}  median "
            f"{line.median:.2f}  p90 {line.p90:.2f}  inside {line.inside:.2f}"
        )
    for item in items if args.detail else ():
        if item.ratio is not None and not item.is_inside:
            print(words(item))
    print(f"\n{len(beaten)} floors above a measured value", *map(words, beaten), sep="\n  ")
    print(f"expectations of decode on 1-8 GPUs: {'good' if are_good else 'MISSED'}")
    return int(not is_ok)


def as_json(
    total: int,
    left: Counter[str],
    lines: list[Line],
    held: list[Line],
    beaten: list[Compared],
    items: list[Compared],
) -> dict[str, Any]:
    def plain(line: Line) -> dict[str, Any]:
        return {key: getattr(line, key) for key in Line.__dataclass_fields__}

    return {
        "records": total,
        "left_out": dict(left),
        "groups": [plain(line) for line in lines],
        "classes": [plain(line) for line in class_lines(items)],
        "decode_on_1_to_8_gpus": [plain(line) for line in held],
        "floors_beaten": [words(item) for item in beaten],
    }


if __name__ == "__main__":
    sys.exit(main())
