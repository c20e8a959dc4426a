"""LLM302: a prompt is long enough to keep the GPU computing rather than reading weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.engine.roofline import Bound
from pytest_llmserve.invariants.base import Invariant, cannot_tell, failed, passed
from pytest_llmserve.invariants.phases import NO_FLOOR, prefill_floor, prompt_tokens

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict


def check(subject: Subject) -> Verdict:
    """Whether a prompt's FLOPs take longer than its bytes."""
    tokens = prompt_tokens(subject)
    floor = prefill_floor(subject, tokens)
    if floor is None:
        return cannot_tell(NO_FLOOR)
    figures = (
        f"{floor.intensity_flop_per_byte:.0f} FLOP/byte for {tokens:,} prompt tokens, "
        f"ridge {floor.ridge_flop_per_byte:.0f}"
    )
    evidence: dict[str, float | int | str] = {
        "intensity_flop_per_byte": floor.intensity_flop_per_byte,
        "ridge_flop_per_byte": floor.ridge_flop_per_byte,
        "prompt_tokens": tokens,
    }
    if floor.bound is Bound.COMPUTE:
        return passed(f"{figures}: compute bound", evidence=evidence)
    return failed(f"{figures}: prefill is memory bound", evidence=evidence)


INVARIANT = Invariant(
    id="LLM302",
    name="prefill-compute-bound",
    title="prefill of the declared prompt is limited by compute",
    check=check,
    needs=("resolved", "model-known", "gpu-known"),
    is_selected_by_default=False,
)
