"""GPU claims that platforms write as one string: ``H100:8``, ``nvidia-gpu-l4:1``, ``2x A100``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.gpu_claims import AMD, NVIDIA
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.text import is_unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.verdict import Location

_PAIR: Final = re.compile(
    r"\s*(?:(\d{1,3})\s*x\s+)?([A-Za-z][\w. /-]*?)(?:\s*:\s*([\d.]{1,4}))?\s*"
)
_MACHINES: Final = re.compile(r"tpu|cpu\b|gaudi|hpu|neuron|trn|inf\d|xpu|i915|npu|ascend", re.I)


def kind_and_count(text: str) -> tuple[str, int | None] | None:
    """``("H100", 8)`` of ``H100:8``; None where the text is no such pair."""
    match = _PAIR.fullmatch(text)
    if match is None or is_unknown(text):
        return None
    number = match[3] or match[1]
    if number and not number.isdecimal():
        return None  # 0.5: a share of one
    return match[2].strip(), int(number) if number else None


def accelerator_claim(
    texts: Sequence[str], key: str, location: Location, *, default_count: int | None = 1
) -> GpuClaim:
    """The claim of ``KIND[:COUNT]`` strings of which any may be chosen.

    Counts that differ leave the count open; every kind stands as an alternative.
    """
    pairs = [pair for text in texts if (pair := kind_and_count(text)) is not None]
    if not pairs or len(pairs) < len(texts):
        return GpuClaim()
    counts = {default_count if count is None else count for _, count in pairs}
    kinds = tuple(dict.fromkeys(kind for kind, _ in pairs))
    return GpuClaim(
        count_per_pod=counts.pop() if len(counts) == 1 else None,
        count_source=key,
        count_location=location,
        resource=_resource(kinds),
        labels=(GpuLabel(key, kinds, location),),
    )


def _resource(kinds: Sequence[str]) -> str:
    if any(_MACHINES.search(kind) for kind in kinds):
        return kinds[0]
    is_amd = all(re.search(r"\bmi\d{3}|amd", kind, re.IGNORECASE) for kind in kinds)
    return AMD if is_amd else NVIDIA
