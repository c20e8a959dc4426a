"""LLM103: the declared peak load is in memory at once, without queueing or preemption."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.invariants.base import (
    Invariant,
    cannot_tell,
    certainty_of_shortage,
    failed,
    passed,
    range_words,
    shortage_words,
)
from pytest_llmserve.invariants.fixes import Candidate, more_memory, recheck
from pytest_llmserve.invariants.memory import budget_rows, why_unknown
from pytest_llmserve.units import Interval
from pytest_llmserve.units import format_gib as gib
from pytest_llmserve.verdict import Ledger, LedgerRow, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.policy import Workload
    from pytest_llmserve.subject import Subject


def fits(subject: Subject) -> Verdict:
    """Whether so many requests of that length run at once on each replica."""
    load = subject.facts.workload
    assert load is not None
    beyond = _within_limits(subject, load)
    return _within_pool(subject, load) if beyond is None else beyond


def _per_replica(subject: Subject, load: Workload) -> int:
    return -(-load.concurrency // subject.deployment.settings.data_parallel_size.value)


def _within_limits(subject: Subject, load: Workload) -> Verdict | None:
    """The failures that have nothing to do with memory."""
    settings = subject.deployment.settings
    longest, tokens = settings.max_model_len, load.longest_tokens
    if longest.value is not None and tokens > longest.value:
        return failed(
            f"{tokens - longest.value:,} tokens too long: a request of {tokens:,} exceeds "
            f"max_model_len {longest.value:,}",
            details=(_load_words(load), f"max_model_len from {longest.source}"),
            location=longest.location,
        )
    seqs, count = settings.max_num_seqs, _per_replica(subject, load)
    if count > seqs.value:
        return failed(
            f"{count - seqs.value:,} of {count:,} requests wait: max_num_seqs is {seqs.value:,}",
            details=(_load_words(load), f"max_num_seqs from {seqs.source}"),
            location=seqs.location,
        )
    return None


def _within_pool(subject: Subject, load: Workload) -> Verdict:
    vram = subject.plan.vram
    count = _per_replica(subject, load)
    tokens = load.tokens_held(count)
    held = subject.changed({"max_model_len": tokens}).plan.kv
    if vram is None or held is None:
        return cannot_tell(why_unknown(subject.plan))
    need, left = Interval.exact(count * held.request_bytes), vram.kv_available_bytes
    certainty = certainty_of_shortage(need, left)
    margin = left - need
    at_once = max(0, left.expected) // held.request_bytes if held.request_bytes else count
    if certainty is None:
        return passed(
            f"{count:,} requests of {tokens:,} tokens fit; room for {at_once:,}",
            margin_bytes=margin,
            evidence={"requests_at_once": at_once},
        )
    short = Interval(-margin.high, -margin.expected, -margin.low)
    source = f"{count:,} x {tokens:,} tokens, {gib(held.request_bytes)} GiB each"
    rows = [
        *budget_rows(vram),
        LedgerRow("KV for the workload", need, source),
        LedgerRow("left for KV cache", left, "", "-"),
        LedgerRow("short by", short, "", "="),
    ]
    return failed(
        f"{shortage_words(certainty, need, left)}: {count:,} requests of "
        f"{tokens:,} tokens need {gib(need.expected)} of KV, "
        f"{range_words(left, certainty)} is left",
        certainty,
        margin_bytes=margin,
        ledger=Ledger("per GPU", tuple(rows)),
        details=(f"{_load_words(load)}; {at_once:,} fit at once",),
        evidence={"requests_at_once": at_once},
    )


def _load_words(load: Workload) -> str:
    spread = ""
    if load.request_deviation:
        spread = (
            f" on average, {load.longest_tokens:,} at most; room is kept for the mean and three "
            f"standard errors"
        )
    return (
        f"workload: {load.concurrency:,} at once, {load.prompt_tokens:,} prompt + "
        f"{load.output_tokens:,} output tokens{spread}"
    )


def _candidates(subject: Subject) -> Iterator[Candidate]:
    load = subject.facts.workload
    settings = subject.deployment.settings
    assert load is not None
    if settings.max_num_seqs.value < (count := _per_replica(subject, load)):
        yield Candidate(
            change=f"--max-num-seqs {count}",
            flags={"max_num_seqs": count},
            note=f"now {settings.max_num_seqs.value}",
            setting=settings.max_num_seqs,
        )
    longest = settings.max_model_len
    if longest.value is not None and longest.value < load.longest_tokens:
        yield Candidate(
            change=f"--max-model-len {load.longest_tokens}",
            flags={"max_model_len": load.longest_tokens},
            note=f"now {longest.value}",
            setting=longest,
        )
    yield from (c for c in more_memory(subject) if c.flags.get("max_num_seqs", count) >= count)  # type: ignore[operator]


def check(subject: Subject) -> Verdict:
    """As :func:`fits`, with changes that pass."""
    from pytest_llmserve.invariants.llm102_kv_cache_fits import fits as starts

    verdict = fits(subject)
    if verdict.certainty is None:
        return verdict

    def both(changed: Subject) -> Verdict:
        started = starts(changed)
        return fits(changed) if started else started

    return replace(verdict, fixes=recheck(subject, _candidates(subject), both, _at_once))


def _at_once(changed: Subject) -> str:
    return f"{fits(changed).evidence['requests_at_once']:,} fit at once"


INVARIANT = Invariant(
    id="LLM103",
    name="concurrency-fits",
    title="the declared workload runs at once, without queueing or preemption",
    check=check,
    needs=("resolved", "rules-known", "model-known", "gpu-known", "gpu-memory-known"),
    applies=lambda subject: subject.facts.workload is not None,
)
