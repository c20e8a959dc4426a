"""What stands in the way of an answer: unresolved text, an unknown model, an unknown GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject


def what_is_missing(subject: Subject, needs: tuple[str, ...]) -> tuple[str, str] | None:
    """The first of ``needs`` that the server lacks: its name and the reason in words."""
    deployment = subject.deployment
    gpu = deployment.gpu
    unresolved = any(p.kind is ProblemKind.UNRESOLVED for p in deployment.problems)
    reasons = {
        "resolved": unresolved and "an argument is unresolved",
        "model-known": deployment.model is None and "the model's shape is unknown",
        "gpu-known": gpu is None and "the GPU is unknown",
        "gpu-memory-known": gpu is not None
        and gpu.memory_total_bytes is None
        and f"no source says how much memory {gpu.id} has",
    }
    for need in needs:
        if reason := reasons[need]:
            return ("gpu-known" if need == "gpu-memory-known" else need), reason
    return None
