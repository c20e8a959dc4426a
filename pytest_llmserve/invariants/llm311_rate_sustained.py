"""LLM311: the requests that the declared rate keeps in flight fit at once; an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.engine.expected import NoExpectation
from pytest_llmserve.invariants.base import cannot_tell, failed, passed
from pytest_llmserve.invariants.expectations import at_once
from pytest_llmserve.invariants.memory import why_unknown
from pytest_llmserve.invariants.phases import requests_that_fit
from pytest_llmserve.verdict import Certainty

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether rate x time of a request is within the sequences that the server holds."""
    load = subject.facts.workload
    assert load is not None
    assert load.rate_per_s is not None
    settings = subject.deployment.settings
    flight = at_once(subject, load.rate_per_s / settings.data_parallel_size.value)
    if isinstance(flight, NoExpectation):
        return cannot_tell(f"cannot tell how many requests are in flight: {flight.reason}")
    held = requests_that_fit(subject, load.tokens_held(flight.expected))
    if held is None:
        return cannot_tell(why_unknown(subject.plan))
    room = min(held.expected, settings.max_num_seqs.value)
    evidence: dict[str, float | int | str] = {
        "in_flight": flight.expected,
        "in_flight_low": flight.low,
        "room": room,
    }
    if flight.high is not None:
        evidence["in_flight_high"] = flight.high
    words = f"{load.rate_per_s:g} requests/s keep {flight.words} in flight"
    details = (
        f"rate x time of a request (Little's law); the time is an estimate from {flight.n} "
        f"measurements; max_num_seqs {settings.max_num_seqs.value:,}, the KV cache holds "
        f"{held.expected:,} requests of {load.tokens_held(flight.expected):,} tokens",
    )
    least = min(held.low, settings.max_num_seqs.value)
    if flight.high is not None and flight.high <= least:
        return passed(f"{words}; there is room for {room:,}", details=details, evidence=evidence)
    is_likely = flight.expected > room
    return failed(
        f"{words}; there is room for {room:,}: requests "
        f"{'queue' if is_likely else 'may queue'} (estimate)",
        Certainty.LIKELY if is_likely else Certainty.CLOSE,
        details=details,
        evidence=evidence,
    )
