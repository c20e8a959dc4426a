"""LLM104: the server takes no more of each GPU than its team declared."""

from __future__ import annotations

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
from pytest_llmserve.invariants.fixes import Candidate, recheck
from pytest_llmserve.invariants.memory import taken_bytes, taken_rows, why_unknown
from pytest_llmserve.units import ZERO, Interval
from pytest_llmserve.units import format_gib as gib
from pytest_llmserve.verdict import Ledger, LedgerRow, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.subject import Subject


def _judge(subject: Subject) -> Verdict:
    vram, budget = subject.plan.vram, subject.facts.vram_budget
    assert budget is not None
    if vram is None:
        return cannot_tell(why_unknown(subject.plan))
    taken = taken_bytes(vram)
    total = vram.gpu_total_bytes
    allowed = Interval(*(budget.bytes_of(v) for v in total))
    # A share of the total moves with the total: the two are not independent.
    certainty = (
        certainty_of_shortage(taken, allowed)
        if budget.share is None
        else certainty_of_shortage(
            Interval(*sorted(t - a for t, a in zip(taken, allowed, strict=True))), ZERO
        )
    )
    margin = allowed - taken
    if certainty is None:
        return passed(
            f"{gib(taken.expected)} of {gib(allowed.expected)} GiB per GPU", margin_bytes=margin
        )
    rows = [
        *taken_rows(vram),
        LedgerRow("declared budget", allowed, f"vram_budget = {budget.text!r}", "-"),
        LedgerRow("over by", Interval(-margin.high, -margin.expected, -margin.low), "", "="),
    ]
    settings = subject.deployment.settings
    utilization = getattr(settings, "gpu_memory_utilization", None)
    return failed(
        f"{shortage_words(certainty, taken, allowed)}: takes {range_words(taken, certainty)}, "
        f"{gib(allowed.expected)} is the declared budget",
        certainty,
        margin_bytes=margin,
        ledger=Ledger("per GPU", tuple(rows)),
        location=utilization.location if utilization else None,
    )


def _candidates(subject: Subject) -> Iterator[Candidate]:
    vram, budget = subject.plan.vram, subject.facts.vram_budget
    setting = getattr(subject.deployment.settings, "gpu_memory_utilization", None)
    if vram is None or budget is None or setting is None:
        return
    total = vram.gpu_total_bytes
    outside = 0 if vram.graphs_in_budget else vram.graphs_bytes.high
    share = (budget.bytes_of(total.low) - outside) / total.high
    lower = int(share * 100) / 100
    if 0 < lower < setting.value:
        yield Candidate(
            change=f"--gpu-memory-utilization {lower}",
            flags={"gpu_memory_utilization": lower},
            note=f"now {setting.value}",
            setting=setting,
        )


def check(subject: Subject) -> Verdict:
    """Whether what the runtime takes is within the declared budget."""
    from dataclasses import replace

    from pytest_llmserve.invariants.llm102_kv_cache_fits import fits

    verdict = _judge(subject)
    if verdict.ledger is None:
        return verdict

    def both(changed: Subject) -> Verdict:
        within = _judge(changed)
        return fits(changed) if within else within

    return replace(verdict, fixes=recheck(subject, _candidates(subject), both))


INVARIANT = Invariant(
    id="LLM104",
    name="vram-within-budget",
    title="the server takes at most the declared VRAM of each GPU",
    check=check,
    needs=("resolved", "rules-known", "model-known", "gpu-known", "gpu-memory-known"),
    applies=lambda subject: subject.facts.vram_budget is not None,
)
