"""LLM305: a lone prompt's first token is expected within the declared time; an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.invariants.expectations import against_expectation, expected_first_token
from pytest_llmserve.invariants.phases import prompt_tokens

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether the expected time to first token is within the limit."""
    slo = subject.facts.slo
    assert slo is not None
    assert slo.ttft_expected_s is not None
    where = f"{prompt_tokens(subject):,} prompt tokens, nothing else running"
    found = expected_first_token(subject)
    return against_expectation("TTFT", slo.ttft_expected_s, found, where)
