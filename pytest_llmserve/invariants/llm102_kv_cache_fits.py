"""LLM102: one request of the full context fits in the KV cache, as the runtime checks at start."""

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
from pytest_llmserve.invariants.fixes import kv_note, more_memory, recheck, shorter_context
from pytest_llmserve.invariants.memory import budget_rows, why_unknown
from pytest_llmserve.units import Interval
from pytest_llmserve.units import format_gib as gib
from pytest_llmserve.verdict import Ledger, LedgerRow, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.invariants.fixes import Candidate
    from pytest_llmserve.runtimes.deployment import KvPool, VramLedger
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Certainty


def fits(subject: Subject) -> Verdict:
    """Whether the pool holds one request of ``max_model_len`` by this version's own rule."""
    vram, kv = subject.plan.vram, subject.plan.kv
    if vram is None or kv is None:
        return cannot_tell(why_unknown(subject.plan))
    need, left = Interval.exact(kv.need_bytes), kv.check_bytes
    certainty = certainty_of_shortage(need, left)
    margin = left - need
    if certainty is None:
        return passed(
            f"{kv.capacity_tokens.expected:,} tokens of KV cache, "
            f"{kv.max_concurrency[1]:.2f}x of {kv.max_model_len:,}",
            margin_bytes=margin,
        )
    location = subject.deployment.settings.max_model_len.location or subject.deployment.location
    return failed(
        _headline(kv, left, certainty),
        certainty,
        margin_bytes=margin,
        location=location,
        ledger=Ledger("per GPU", (*budget_rows(vram), *_need_rows(subject, kv, vram))),
        details=(f"the server says: {kv.server_says}",) if kv.server_says else (),
    )


def _headline(kv: KvPool, left: Interval, certainty: Certainty) -> str:
    short = shortage_words(certainty, Interval.exact(kv.need_bytes), left)
    if left.expected <= 0:
        return (
            f"{short}: no memory is left for the KV cache, a request needs {gib(kv.need_bytes)} GiB"
        )
    return (
        f"{short}: one {kv.max_model_len:,}-token request needs {gib(kv.need_bytes)} GiB of KV, "
        f"{range_words(left, certainty)} is left"
    )


def _need_rows(subject: Subject, kv: KvPool, vram: VramLedger) -> list[LedgerRow]:
    setting = subject.deployment.settings.max_model_len
    source = f"{kv.max_model_len:,} tokens"
    if len(kv.groups) == 1 and kv.need_bytes == kv.max_model_len * kv.bytes_per_token:
        source += f" x {kv.bytes_per_token:,} B"
    left, checked = vram.kv_available_bytes, kv.check_bytes
    rows = [
        LedgerRow(
            "KV for one request", Interval.exact(kv.need_bytes), f"{source}, {setting.source}"
        )
    ]
    reserved = left.expected - checked.expected
    if reserved > 0:
        rows.append(LedgerRow("null block", Interval.exact(reserved), "reserved by the check", "+"))
    if reserved < 0:
        rows.append(LedgerRow("blocks overridden", checked, "--num-gpu-blocks-override", "-"))
    else:
        rows.append(LedgerRow("left for KV cache", left, "", "-"))
    need = Interval.exact(kv.need_bytes)
    rows.append(LedgerRow("short by", need - checked, "", "="))
    return rows


def _candidates(subject: Subject) -> Iterator[Candidate]:
    yield from shorter_context(subject)
    yield from more_memory(subject)


def check(subject: Subject) -> Verdict:
    """As :func:`fits`, with changes that pass."""
    verdict = fits(subject)
    if verdict.ledger is None:
        return verdict
    return replace(verdict, fixes=recheck(subject, _candidates(subject), fits, kv_note))


INVARIANT = Invariant(
    id="LLM102",
    name="kv-cache-fits",
    title="the KV cache holds at least one request of max_model_len",
    check=check,
    needs=("resolved", "rules-known", "model-known", "gpu-known", "gpu-memory-known"),
)
