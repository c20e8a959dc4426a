"""LLM601 and LLM602: a pull request changes no server by more than its team allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.invariants.base import Invariant, cannot_tell, failed, passed
from pytest_llmserve.units import format_gib as gib

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict

_NOT_TOLD = "cannot tell: the figure is not known on both sides"


def _check_vram(subject: Subject) -> Verdict:
    base = subject.base
    assert base is not None
    limit = base.limits.max_vram_increase
    assert limit is not None
    old, new = base.needed_bytes, base.head_needed_bytes
    if old is None or new is None:
        return cannot_tell(_NOT_TOLD)
    if limit.allows(old, new - old):
        return passed(f"{gib(old)} -> {gib(new)} GiB needed per GPU ({gib(new - old)})")
    return failed(
        f"{gib(new - old)} GiB more per GPU than at {base.ref}: {gib(old)} -> {gib(new)}, "
        f"{limit.text} is allowed",
        details=base.words,
    )


def _check_concurrency(subject: Subject) -> Verdict:
    base = subject.base
    assert base is not None
    limit = base.limits.max_concurrency_drop
    assert limit is not None
    old, new = base.requests_at_once, base.head_requests_at_once
    if old is None or new is None:
        return cannot_tell(_NOT_TOLD)
    if limit.allows(old, old - new):
        return passed(f"{old:,} -> {new:,} requests at once")
    return failed(
        f"{old - new:,} fewer requests at once than at {base.ref}: {old:,} -> {new:,}, "
        f"{limit.text} is allowed",
        details=base.words,
    )


INVARIANTS = (
    Invariant(
        id="LLM601",
        name="vram-increase-allowed",
        title="a server needs no more VRAM than at the base, beyond what is allowed",
        check=_check_vram,
        needs=("resolved", "model-known", "gpu-known"),
        applies=lambda s: s.base is not None and s.base.limits.max_vram_increase is not None,
    ),
    Invariant(
        id="LLM602",
        name="concurrency-drop-allowed",
        title="a server runs no fewer requests at once than at the base, beyond what is allowed",
        check=_check_concurrency,
        needs=("resolved", "model-known", "gpu-known"),
        applies=lambda s: s.base is not None and s.base.limits.max_concurrency_drop is not None,
    ),
)
