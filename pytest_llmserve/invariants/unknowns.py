"""What stands in the way of an answer: unresolved text, an unknown model, an unknown GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject


UNMODELLED_KEYS: Final = ("version", "--hf-overrides")
"""What a problem is about when no rules are known for it, so that no plan can be told."""
_ROOTS: Final = {"gpu-memory-known": "gpu-known", "rules-known": "flags-known-to-version"}


def what_is_missing(subject: Subject, needs: tuple[str, ...]) -> tuple[str, str] | None:
    """The first of ``needs`` that the server lacks: its name and the reason in words."""
    deployment = subject.deployment
    gpu = deployment.gpu
    unresolved = any(p.kind is ProblemKind.UNRESOLVED for p in deployment.problems)
    unmodelled = [
        p for p in deployment.problems if p.kind is ProblemKind.UNKNOWN and p.key in UNMODELLED_KEYS
    ]
    reasons = {
        "rules-known": unmodelled and "this version or override is not modelled",
        "resolved": unresolved and "an argument is unresolved",
        "model-known": deployment.model is None and "the model's shape is unknown",
        "gpu-known": gpu is None and "the GPU is unknown",
        "gpu-memory-known": gpu is not None
        and gpu.memory_total_bytes is None
        and f"no source says how much memory {gpu.id} has",
    }
    for need in needs:
        if reason := reasons[need]:
            return _ROOTS.get(need, need), reason
    return None
