"""LLM310: a million output tokens cost no more than declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.engine.expected import NoExpectation
from pytest_llmserve.invariants.base import cannot_tell, failed, passed
from pytest_llmserve.invariants.cost import (
    cost_floor_usd,
    expected_cost_usd,
    price_of,
    server_gpus,
)
from pytest_llmserve.verdict import Certainty

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Certainly too dear if even the roofline's throughput is; else by the estimate."""
    limit = subject.facts.max_usd_per_million_tokens
    assert limit is not None
    if subject.facts.workload is None:
        return cannot_tell("cannot tell the cost: no workload is declared")
    price = price_of(subject)
    if price is None:
        return cannot_tell(
            "cannot tell the cost: no price is declared ([price] usd_per_gpu_hour) or known"
        )
    details = [f"{server_gpus(subject)} GPUs at {price.words}"]
    lowest = cost_floor_usd(subject, price)
    if lowest is not None and lowest > limit:
        return failed(
            f"{lowest / limit:.1f}x too dear: ${lowest:.2f} a million output tokens at the "
            f"roofline's own throughput, limit ${limit:g}",
            details=(*details, "no tuning beats this"),
            evidence={"floor_usd": lowest, "limit_usd": limit},
        )
    cost = expected_cost_usd(subject, price)
    if isinstance(cost, NoExpectation):
        return cannot_tell(f"cannot tell the cost: {cost.reason}")
    evidence: dict[str, float | int | str] = {
        "expected_usd": cost.expected_usd,
        "low_usd": cost.low_usd,
        "high_usd": cost.high_usd,
        "limit_usd": limit,
    }
    figures = f"${cost.expected_usd:.2f}"
    if cost.low_usd < cost.high_usd:
        figures += f" ({cost.low_usd:.2f} to {cost.high_usd:.2f}, estimate)"
    details.append(cost.words)
    if cost.high_usd <= limit:
        return passed(
            f"{figures} a million output tokens, within ${limit:g}",
            details=tuple(details),
            evidence=evidence,
        )
    is_likely = cost.expected_usd > limit
    word = "" if is_likely else "may be "
    times = (cost.expected_usd if is_likely else cost.high_usd) / limit
    return failed(
        f"{word}{times:.2f}x too dear: {figures} a million output tokens, limit ${limit:g}",
        Certainty.LIKELY if is_likely else Certainty.CLOSE,
        details=tuple(details),
        evidence=evidence,
    )
