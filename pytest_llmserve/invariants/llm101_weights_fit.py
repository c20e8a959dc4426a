"""LLM101: the weights leave room in the memory that the runtime may use."""

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
from pytest_llmserve.invariants.fixes import more_memory, recheck
from pytest_llmserve.invariants.memory import budget_rows, overhead_bytes, why_unknown
from pytest_llmserve.units import format_gib as gib
from pytest_llmserve.verdict import Ledger, Verdict

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject


def fits(subject: Subject) -> Verdict:
    """Whether weights and what the runtime needs besides are within the budget."""
    vram = subject.plan.vram
    if vram is None:
        return cannot_tell(why_unknown(subject.plan))
    need = vram.weights_bytes + overhead_bytes(vram)
    certainty = certainty_of_shortage(need, vram.budget_bytes)
    margin = vram.budget_bytes - need
    if certainty is None:
        return passed(
            f"{gib(vram.weights_bytes.expected)} GiB of weights per GPU, "
            f"{gib(vram.budget_bytes.expected)} usable",
            margin_bytes=margin,
        )
    return failed(
        f"{shortage_words(certainty, margin)}: weights and overhead need "
        f"{range_words(need, certainty)}, {gib(vram.budget_bytes.expected)} is usable",
        certainty,
        margin_bytes=margin,
        ledger=Ledger("per GPU", tuple(budget_rows(vram))),
        details=("vLLM: 'No available memory for the cache blocks' or CUDA out of memory",),
        location=subject.deployment.location,
    )


def check(subject: Subject) -> Verdict:
    """As :func:`fits`, with changes that pass."""
    verdict = fits(subject)
    if verdict.ledger is None:
        return verdict
    return replace(verdict, fixes=recheck(subject, more_memory(subject), fits))


INVARIANT = Invariant(
    id="LLM101",
    name="weights-fit",
    title="weights and the runtime's own memory fit in the usable memory of each GPU",
    check=check,
    needs=("resolved", "model-known", "gpu-known", "gpu-memory-known"),
)
