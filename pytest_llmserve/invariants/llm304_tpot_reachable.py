"""LLM304: the promised time per output token is not below what the GPU's bandwidth allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.invariants.base import Invariant, cannot_tell
from pytest_llmserve.invariants.phases import NO_FLOOR, decode_batch, decode_context, decode_floor
from pytest_llmserve.invariants.slo import against_floor

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether the floor of a decode step at the declared load is within the promise."""
    slo = subject.facts.slo
    assert slo is not None
    assert slo.tpot_s is not None
    batch, context = decode_batch(subject), decode_context(subject)
    floor = decode_floor(subject, batch, context)
    if floor is None:
        return cannot_tell(NO_FLOOR)
    where = f"at batch {batch:,} and {context:,} tokens of context"
    return against_floor("TPOT", slo.tpot_s, floor, where)


INVARIANT = Invariant(
    id="LLM304",
    name="tpot-reachable",
    title="the declared time per output token is above the roofline floor",
    check=check,
    needs=("resolved", "model-known", "gpu-known"),
    applies=lambda subject: subject.facts.slo is not None and subject.facts.slo.tpot_s is not None,
)
