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

from speed_rows import Row, rows

from pytest_llmserve.engine.expected import (
    ExpectedTime,
    NoExpectation,
    loaded_tpot_expected,
    memory_class,
    tpot_expected,
    ttft_expected,
)
from pytest_llmserve.engine.latency import throughput_ceiling, tpot_floor, ttft_floor

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from pytest_llmserve.engine.speed_table import Engine

SERVING = {"vllm", "sglang", "tensorrt-llm", "nim (tensorrt-llm)"}
LLAMA_CPP = {"llama.cpp", "ollama", "lmstudio"}


@dataclass(frozen=True, kw_only=True)
class Compared:
    row: Row
    phase: str
    measured_s: float
    floor_s: float
    expected: ExpectedTime | NoExpectation | None
    """``None``: a kind of row that nothing is expected of (speculation, other programs)."""

    @property
    def floor_share(self) -> float:
        return self.floor_s / self.measured_s

    @property
    def ratio(self) -> float | None:
        """Predicted / measured."""
        found = self.expected
        return found.expected_s / self.measured_s if isinstance(found, ExpectedTime) else None

    @property
    def is_inside(self) -> bool:
        found = self.expected
        assert isinstance(found, ExpectedTime)
        return found.low_s <= self.measured_s <= found.high_s


def engine_of(row: Row) -> Engine | None:
    if row.engine in LLAMA_CPP:
        return "llama.cpp"
    if row.engine in SERVING:
        return "serving" if row.record["date"] >= "2025" else "serving-2024"
    return None


def compare(row: Row) -> list[Compared]:
    """Everything that a row measured which has a floor."""
    found = [prefill_row(row), first_token_row(row), decode_row(row), throughput_row(row)]
    return [item for item in found if item is not None]


def prefill_row(row: Row) -> Compared | None:
    record, measured = row.record, row.record["measured"]
    tokens = int(record.get("prompt_tokens") or 0)
    if row.phase not in {"prefill", "batched-prefill"} or tokens < 1:
        return None
    if record.get("prefix_cache_hit") or "prefill_tok_s" not in measured:
        return None
    floor = ttft_floor(
        row.floor_costs,
        row.gpu,
        row.compute,
        prompt_tokens=tokens,
        pipeline_parallel_size=record.get("pp") or 1,
    )
    if floor is None:
        return None
    engine, expected = engine_of(row), None
    time_s = tokens / measured["prefill_tok_s"]
    if engine is not None and (record.get("batch_or_concurrency") or 1) == 1:
        expected = ttft_expected(
            row.expected_costs,
            row.gpu,
            row.compute,
            prompt_tokens=tokens,
            engine=engine,
            gpus=row.gpus,
        )
        # what the user waits, where it was printed beside the rate
        time_s = measured["ttft_ms"] / 1e3 if "ttft_ms" in measured else time_s
    rate_s = min(time_s, tokens / measured["prefill_tok_s"])
    floor_s = floor.floor_s * time_s / rate_s  # the rate decides whether a floor is beaten
    return Compared(row=row, phase="prefill", measured_s=time_s, floor_s=floor_s, expected=expected)


def first_token_row(row: Row) -> Compared | None:
    """The first token of a lone prompt, printed beside a decode speed."""
    record, measured = row.record, row.record["measured"]
    tokens, engine = int(record.get("prompt_tokens") or 0), engine_of(row)
    time_ms = measured.get("median_ttft_ms", measured.get("ttft_ms"))
    if row.phase not in {"decode", "serving"} or not time_ms or tokens < 1 or engine is None:
        return None
    if record.get("prefix_cache_hit") or (record.get("batch_or_concurrency") or 1) != 1:
        return None
    if is_entered_by_hand(record):
        return None
    floor = ttft_floor(
        row.floor_costs,
        row.gpu,
        row.compute,
        prompt_tokens=tokens,
        pipeline_parallel_size=record.get("pp") or 1,
    )
    expected = ttft_expected(
        row.expected_costs,
        row.gpu,
        row.compute,
        prompt_tokens=tokens,
        engine=engine,
        gpus=row.gpus,
    )
    if floor is None:
        return None
    return Compared(
        row=row,
        phase="ttft",
        measured_s=time_ms / 1e3,
        floor_s=floor.floor_s,
        expected=expected,
    )


def is_entered_by_hand(record: dict[str, Any]) -> bool:
    """A first-token time typed in by a user: its unit and the prefix cache are not known.

    Of 41 such, one is 0.83 "ms" on a laptop and one 115 ms for 97,100 tokens.
    """
    return record.get("scope") == "user-reported" and "ttft_ms" in record["measured"]


def decode_row(row: Row) -> Compared | None:
    record, time_s = row.record, row.tpot_s()
    if row.phase not in {"decode", "serving"} or time_s is None:
        return None
    is_lone = row.phase == "decode" and (record.get("batch_or_concurrency") or 1) == 1
    floor = tpot_floor(
        row.floor_costs,
        row.gpu,
        row.compute,
        # how many sequences a server under load really decodes together is not measured; a batch
        # may share a prefix: count one of one token
        context=max(1, int(record.get("context_at_measure") or 1)) if is_lone else 1,
        tokens_per_step=row.tokens_per_step,
    )
    if floor is None:
        return None
    return Compared(
        row=row,
        phase="decode" if is_lone else "serving",
        measured_s=time_s,
        floor_s=floor.floor_s,
        expected=None if row.is_speculative else expected_step(row),
    )


def expected_step(row: Row) -> ExpectedTime | NoExpectation | None:
    """What is expected of the row's mean decoding batch, with prefill in between if there is."""
    record, engine = row.record, engine_of(row)
    if engine is None:
        return None
    asked = float(record.get("batch_or_concurrency") or 1)
    batch = max(1, round(record["measured"].get("mean_decoding_est", asked)))
    if asked / batch > 4:
        return NoExpectation("most requests wait in a queue")
    prompt, output = int(record.get("prompt_tokens") or 0), int(record.get("output_tokens") or 0)
    is_window = record.get("scope") == "decode-window" or record.get("prefix_cache_hit")
    if prompt < 1 or output < 1 or row.phase == "decode" or is_window:
        return tpot_expected(
            row.expected_costs,
            row.gpu,
            row.compute,
            batch=batch,
            context=max(1, int(record.get("context_at_measure") or 1)),
            engine=engine,
            gpus=row.gpus,
        )
    if record.get("scope") == "e2e":
        return None  # tokens over the whole request's time: neither a step nor a first token
    return loaded_tpot_expected(
        row.expected_costs,
        row.gpu,
        row.compute,
        concurrency=batch,
        prompt_tokens=prompt,
        output_tokens=output,
        engine=engine,
        gpus=row.gpus,
    )


def throughput_row(row: Row) -> Compared | None:
    record = row.record
    rate = record["measured"].get("request_throughput")
    prompt, output = int(record.get("prompt_tokens") or 0), int(record.get("output_tokens") or 0)
    if not rate or prompt < 1 or output < 1 or record.get("prefix_cache_hit"):
        return None
    ceiling = throughput_ceiling(
        row.floor_costs,
        row.gpu,
        row.compute,
        prompt_tokens=prompt,
        output_tokens=output,
        # where no limit is printed all may run at once
        concurrency=int(record.get("batch_or_concurrency") or 4096),
        tokens_per_step=row.tokens_per_step,
        pipeline_parallel_size=max(1, row.gpus // row.tp),
    )
    if ceiling is None:
        return None
    return Compared(
        row=row,
        phase="throughput",
        measured_s=1 / rate,
        floor_s=1 / ceiling.requests_per_s,
        expected=None,
    )


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
        print(json.dumps(as_json(total, left, lines, held, beaten), indent=1))
        return int(not is_ok)
    print(f"{total} records, {len(usable)} computed")
    print(*(f"  {count:>4} left out: {why}" for why, count in left.most_common()), sep="\n")
    by_hand = sum(is_entered_by_hand(row.record) for row in usable)
    print(f"  {by_hand:>4} first-token times not compared: entered by users")
    print("\nfloor / measured                                    "
          "|                     | predicted / measured")  # fmt: skip
    print(table([*lines, *held]))
    for item in items if args.detail else ():
        if item.ratio is not None and not item.is_inside:
            print(words(item))
    print(f"\n{len(beaten)} floors above a measured value", *map(words, beaten), sep="\n  ")
    print(f"expectations of decode on 1-8 GPUs: {'good' if are_good else 'MISSED'}")
    return int(not is_ok)


def as_json(
    total: int, left: Counter[str], lines: list[Line], held: list[Line], beaten: list[Compared]
) -> dict[str, Any]:
    def plain(line: Line) -> dict[str, Any]:
        return {key: getattr(line, key) for key in Line.__dataclass_fields__}

    return {
        "records": total,
        "left_out": dict(left),
        "groups": [plain(line) for line in lines],
        "decode_on_1_to_8_gpus": [plain(line) for line in held],
        "floors_beaten": [words(item) for item in beaten],
    }


if __name__ == "__main__":
    sys.exit(main())
