"""LLM002 to LLM004: what decides is known. These fail first; the rest depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.invariants.base import Invariant, cannot_tell, passed
from pytest_llmserve.verdict import ProblemKind, Verdict

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Problem


def _problem_of(subject: Subject, key: str) -> Problem | None:
    return next((p for p in subject.deployment.problems if p.key == key), None)


def _check_resolved(subject: Subject) -> Verdict:
    found = [p for p in subject.deployment.problems if p.kind is ProblemKind.UNRESOLVED]
    if not found:
        return passed("every argument that matters is known")
    first, *others = found
    details = [f"expected: {first.expected}"] if first.expected else []
    details += [f"also {other}" for other in others]
    return cannot_tell(
        f"cannot tell: {first.message}", details=tuple(details), location=first.location
    )


def _check_model(subject: Subject) -> Verdict:
    model = subject.deployment.model
    if model is not None:
        return passed(f"{model.id} from {model.source}")
    problem = _problem_of(subject, "model")
    if problem is None:
        return cannot_tell("cannot tell: no model is named")
    first, *rest = problem.message.splitlines()
    details = (*rest, problem.expected) if problem.expected else tuple(rest)
    return cannot_tell(f"cannot tell: {first}", details=details, location=problem.location)


def _check_gpu(subject: Subject) -> Verdict:
    gpu = subject.deployment.gpu
    if gpu is not None:
        if gpu.memory_total_bytes is None:
            return cannot_tell(
                f"cannot tell: no source says how much memory the framework sees on {gpu.id}",
                details=("declare your own part in the policy's gpus folder",),
            )
        return passed(f"{gpu.id} from {subject.deployment.gpu_source}")
    problem = _problem_of(subject, "gpu")
    if problem is None:
        return cannot_tell("cannot tell: no GPU is named")
    first, *rest = problem.message.splitlines()
    details = (*rest, problem.expected) if problem.expected else tuple(rest)
    return cannot_tell(f"cannot tell: {first}", details=details, location=problem.location)


INVARIANTS = (
    Invariant(
        id="LLM002",
        name="resolved",
        title="no variable or template is left in an argument that matters",
        check=_check_resolved,
    ),
    Invariant(
        id="LLM003",
        name="model-known",
        title="the model's shape is known",
        check=_check_model,
    ),
    Invariant(
        id="LLM004",
        name="gpu-known",
        title="the kind of GPU is known",
        check=_check_gpu,
    ),
)
