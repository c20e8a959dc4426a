"""LLM307: the declared request rate is not above what the GPU's peaks allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.engine.roofline import Bound
from pytest_llmserve.invariants.base import cannot_tell, failed, passed
from pytest_llmserve.invariants.phases import NO_FLOOR, rate_ceiling

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether one replica's ceiling is at least the rate."""
    load = subject.facts.workload
    assert load is not None
    assert load.rate_per_s is not None
    ceiling = rate_ceiling(subject)
    if ceiling is None:
        return cannot_tell(NO_FLOOR)
    evidence: dict[str, float | int | str] = {
        "ceiling_requests_per_s": ceiling.requests_per_s,
        "declared_requests_per_s": load.rate_per_s,
        "bound": str(ceiling.bound),
    }
    most = f"{ceiling.requests_per_s:.3g} requests/s"
    where = f"{load.prompt_tokens:,} prompt + {load.output_tokens:,} output tokens"
    if load.rate_per_s <= ceiling.requests_per_s:
        return passed(
            f"{load.rate_per_s:g} requests/s are not refuted: no hardware of this kind does more "
            f"than {most}",
            evidence=evidence,
        )
    roof = "memory bandwidth" if ceiling.bound is Bound.MEMORY else "compute"
    return failed(
        f"{load.rate_per_s / ceiling.requests_per_s:.1f}x out of reach: {load.rate_per_s:g} "
        f"requests/s, the ceiling is {most}",
        details=(f"{where} on one replica, limited by {roof}; no tuning beats this",),
        evidence=evidence,
    )
