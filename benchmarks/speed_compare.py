"""What a row measured, its floor and what is expected of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_llmserve.engine.expected import (
    ExpectedTime,
    NoExpectation,
    loaded_tpot_expected,
    tpot_expected,
    ttft_expected,
)
from pytest_llmserve.engine.latency import throughput_ceiling, tpot_floor, ttft_floor

if TYPE_CHECKING:
    from speed_rows import Row

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
