"""LLM306: a token is expected within the declared time at the declared load; an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.invariants.expectations import against_expectation, expected_token
from pytest_llmserve.invariants.phases import decode_batch, decode_context

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether the expected time per output token is within the limit."""
    slo = subject.facts.slo
    assert slo is not None
    assert slo.tpot_expected_s is not None
    where = f"batch {decode_batch(subject):,}, {decode_context(subject):,} tokens of context"
    return against_expectation("TPOT", slo.tpot_expected_s, expected_token(subject), where)
