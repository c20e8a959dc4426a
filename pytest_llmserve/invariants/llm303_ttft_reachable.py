"""LLM303: the promised time to first token is not below what the GPU's peaks allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.invariants.base import Invariant, cannot_tell
from pytest_llmserve.invariants.phases import NO_FLOOR, prefill_floor, prompt_tokens
from pytest_llmserve.invariants.slo import against_floor

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether the floor of the declared prompt's prefill is within the promise."""
    slo = subject.facts.slo
    assert slo is not None
    assert slo.ttft_s is not None
    tokens = prompt_tokens(subject)
    floor = prefill_floor(subject, tokens)
    if floor is None:
        return cannot_tell(NO_FLOOR)
    return against_floor("TTFT", slo.ttft_s, floor, f"for {tokens:,} prompt tokens")


INVARIANT = Invariant(
    id="LLM303",
    name="ttft-reachable",
    title="the declared time to first token is above the roofline floor",
    check=check,
    needs=("resolved", "model-known", "gpu-known"),
    applies=lambda subject: subject.facts.slo is not None and subject.facts.slo.ttft_s is not None,
)
