"""LLM309: memory for the KV cache, and not compute, caps how many sequences decode at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.engine.crossover import compute_bound_batch
from pytest_llmserve.invariants.base import cannot_tell, failed, passed
from pytest_llmserve.invariants.memory import why_unknown
from pytest_llmserve.invariants.phases import NO_FLOOR, decode_context, rates, requests_that_fit
from pytest_llmserve.verdict import Certainty

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether the pool holds fewer sequences than it takes to reach the ridge."""
    found = rates(subject)
    if found is None:
        return cannot_tell(NO_FLOOR)
    context = decode_context(subject)
    held = requests_that_fit(subject, context)
    if held is None:
        return cannot_tell(why_unknown(subject.plan))
    ridge = compute_bound_batch(subject.costs, *found, context)
    words = f"the KV cache holds {held.expected:,} sequences of {context:,} tokens"
    evidence: dict[str, float | int | str] = {"sequences": held.expected, "context": context}
    if ridge is None:
        return passed(f"{words}; at no batch is decode compute bound there", evidence=evidence)
    evidence["compute_bound_from"] = ridge
    words = f"{words}, decode is compute bound from {ridge:,} on"
    if held.high < ridge:
        return passed(words, evidence=evidence)
    certainty = Certainty.CLOSE
    if held.expected >= ridge:
        certainty = Certainty.CERTAIN if held.low >= ridge else Certainty.LIKELY
    return failed(f"{words}: compute caps the concurrency", certainty, evidence=evidence)
