"""LLM301: at the declared load, decode is limited by memory bandwidth, so batching more is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.engine.roofline import Bound
from pytest_llmserve.invariants.base import Invariant, cannot_tell, failed, passed
from pytest_llmserve.invariants.phases import NO_FLOOR, decode_batch, decode_context, decode_floor

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether one decode step moves more bytes than its FLOPs take time."""
    from pytest_llmserve.invariants.flips import flips

    batch, context = decode_batch(subject), decode_context(subject)
    floor = decode_floor(subject, batch, context)
    if floor is None:
        return cannot_tell(NO_FLOOR)
    figures = (
        f"{floor.intensity_flop_per_byte:.1f} FLOP/byte at batch {batch:,}, "
        f"ridge {floor.ridge_flop_per_byte:.0f}"
    )
    evidence: dict[str, float | int | str] = {
        "intensity_flop_per_byte": floor.intensity_flop_per_byte,
        "ridge_flop_per_byte": floor.ridge_flop_per_byte,
        "batch": batch,
    }
    details = tuple(flips(subject, batch, context))
    if floor.bound is Bound.MEMORY:
        return passed(f"{figures}: memory bound", details=details, evidence=evidence)
    return failed(f"{figures}: decode is compute bound", details=details, evidence=evidence)


INVARIANT = Invariant(
    id="LLM301",
    name="decode-memory-bound",
    title="decode is limited by memory bandwidth at the declared concurrency",
    check=check,
    needs=("resolved", "model-known", "gpu-known"),
    is_selected_by_default=False,
)
