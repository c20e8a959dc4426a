"""A promised latency against a floor: a floor refutes, it never promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.engine.roofline import Bound
from pytest_llmserve.invariants.base import failed, passed
from pytest_llmserve.units import format_seconds

if TYPE_CHECKING:
    from pytest_llmserve.engine.latency import Floor
    from pytest_llmserve.verdict import Verdict


def against_floor(word: str, promised_s: float, floor: Floor, where: str) -> Verdict:
    """Failed, certainly, if the promise lies below the floor; else not refuted."""
    evidence: dict[str, float | int | str] = {
        "floor_s": floor.floor_s,
        "promised_s": promised_s,
        "bound": str(floor.bound),
    }
    shortest, promise = format_seconds(floor.floor_s), format_seconds(promised_s)
    if promised_s >= floor.floor_s:
        return passed(
            f"{word} {promise} is not refuted: the floor is {shortest} {where}", evidence=evidence
        )
    work = (
        f"{floor.moved_bytes / 1e9:.1f} GB must be read per GPU"
        if floor.bound is Bound.MEMORY
        else f"{floor.flops / 1e12:.2f} TFLOP must be computed per GPU"
    )
    return failed(
        f"{floor.floor_s / promised_s:.1f}x out of reach: {word} {promise} is below the floor "
        f"of {shortest}",
        details=(f"{where}: {work}, at the highest rate of the part; no tuning beats this",),
        evidence=evidence,
    )
