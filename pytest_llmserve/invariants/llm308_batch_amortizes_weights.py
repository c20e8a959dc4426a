"""LLM308: at the declared load, most of the throughput that batching can give is had.

The share is tokens per second at the declared batch over the most that any batch reaches at this
context: below a half, a step still spends more time on weights, which a larger batch would share,
than on its sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.crossover import amortised_share, batch_for_share
from pytest_llmserve.invariants.base import cannot_tell, failed, passed
from pytest_llmserve.invariants.phases import NO_FLOOR, decode_batch, decode_context, rates

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict

ENOUGH: Final = 0.5


def check(subject: Subject) -> Verdict:
    """Whether the batch reaches half of the roofline's throughput at its context."""
    found = rates(subject)
    if found is None:
        return cannot_tell(NO_FLOOR)
    peak, bandwidth = found
    batch, context = decode_batch(subject), decode_context(subject)
    share = amortised_share(subject.costs, peak, bandwidth, batch, context)
    enough = batch_for_share(subject.costs, peak, bandwidth, ENOUGH, context)
    evidence: dict[str, float | int | str] = {
        "share": share,
        "batch": batch,
        "batch_for_half": enough,
    }
    figures = f"batch {batch:,} reaches {share:.0%} of the throughput that batching can give"
    if share >= ENOUGH:
        return passed(figures, evidence=evidence)
    return failed(
        f"{figures}: weights are not amortised",
        details=(f"at {context:,} tokens of context, half is reached from batch {enough:,} on",),
        evidence=evidence,
    )
