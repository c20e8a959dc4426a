"""What invariants are asked about: one server on one kind of GPU, its plan, and what-ifs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.engine.costs import StepCosts
    from pytest_llmserve.guard_rules import ChangeLimits
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.policy import Facts
    from pytest_llmserve.runtimes.deployment import Deployment, Plan
    from pytest_llmserve.runtimes.vllm.deploy import VllmInputs

UNMODELLED_KEYS: Final = ("version", "--hf-overrides")
"""What a problem is about when no rules are known for it, so that no plan can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The same server at the base of a comparison, in the figures that have limits."""

    ref: str
    limits: ChangeLimits
    needed_bytes: int | None
    head_needed_bytes: int | None
    requests_at_once: int | None
    head_requests_at_once: int | None
    words: tuple[str, ...] = ()
    """What was changed, a line each."""


class Subject:
    """One server on one kind of GPU, judged against the facts its team declared.

    Everything is derived from ``inputs`` once and lazily; :meth:`changed` derives it anew, by the
    same road, for a changed flag: that is how a fix is re-checked before it is offered.
    """

    def __init__(self, inputs: VllmInputs, facts: Facts) -> None:
        self.inputs = inputs
        self.facts = facts
        self.base: Base | None = None
        """Set where a base is compared with and has this server too."""

    @cached_property
    def deployment(self) -> Deployment:
        """Settings after defaults, and refusals."""
        return self.inputs.deployment()

    @cached_property
    def plan(self) -> Plan:
        """Where the memory of the fullest GPU goes."""
        return self.inputs.plan(self.deployment)

    @cached_property
    def unknowns(self) -> dict[str, str]:
        """What invariants may need and the server lacks, each with the reason in words."""
        return _unknowns_of(self.deployment)

    @cached_property
    def costs(self) -> StepCosts:
        """What one GPU reads and computes, in coefficients of batch and tokens."""
        return self.inputs.costs(self.deployment)

    def changed(
        self,
        flags: Mapping[str, object],
        gpu_count: int | None = None,
        gpu: GpuSpec | None = None,
    ) -> Subject:
        """The same server with other flags, another number of GPUs or another part."""
        return Subject(self.inputs.changed(flags, gpu_count, gpu), self.facts)


def _unknowns_of(deployment: Deployment) -> dict[str, str]:
    """What an invariant may need and the server lacks, each with the reason in words."""
    found: dict[str, str] = {}
    for problem in deployment.problems:
        if problem.kind is ProblemKind.UNRESOLVED:
            found["resolved"] = "an argument is unresolved"
        elif problem.kind is ProblemKind.UNKNOWN and problem.key in UNMODELLED_KEYS:
            found["rules-known"] = "this version or override is not modelled"
    if deployment.model is None:
        found["model-known"] = "the model's shape is unknown"
    gpu = deployment.gpu
    if gpu is None:
        found["gpu-known"] = "the GPU is unknown"
    elif gpu.memory_total_bytes is None:
        found["gpu-memory-known"] = f"no source says how much memory {gpu.id} has"
    return found
