"""Which GPUs a launch runs on: what its file says, and else what the policy says."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.hardware.errors import AmbiguousGpu, UnknownGpu
from pytest_llmserve.hardware.instances import instance_gpu
from pytest_llmserve.hardware.names import resolve_gpu, resolve_mig
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel, Launch
    from pytest_llmserve.policy import Facts, Policy
    from pytest_llmserve.verdict import Location


_OTHERS: Final = re.compile(
    r"tpu|habana|gaudi|hpu|neuron|trn\d|inf\d|huawei|ascend|npu|gpu\.intel|xpu|i915|^cpu$",
    re.IGNORECASE,
)
_MEMORY_LABELS: Final = ("karpenter.k8s.aws/instance-gpu-memory", "nvidia.com/gpu.memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuChoice:
    """One kind of GPU that the server may run on, or why it is not known."""

    spec: GpuSpec | None
    source: str = ""
    location: Location | None = None
    problem: Problem | None = None


def gpu_count(launch: Launch, facts: Facts) -> Setting[int] | None:
    """GPUs of one instance: stated in the file, else declared; ``None`` where nobody says."""
    claim = launch.gpu
    if claim.is_whole_machine and claim.count_per_pod is None:
        claim = _whole_machines(claim)
    if claim.count is not None:
        source = claim.count_source
        if claim.pods_per_instance > 1:
            source = f"{source} x {claim.pods_per_instance} pods"
        return Setting(claim.count, source, claim.count_location)
    if facts.gpu_count is not None:
        return Setting(facts.gpu_count, "policy gpu_count")
    return None


def every_gpu(launch: Launch) -> Setting[int] | None:
    """One GPU where the file gives all that the machine has: ``--gpus all``, ``count: all``.

    A machine that starts such a container has at least one, so a server of one GPU is served;
    whether there are enough for more of them is not stated.
    """
    source = launch.gpu.count_source
    if launch.gpu.count_per_pod is not None or not source.endswith("all"):
        return None
    return Setting(1, f"{source}: at least one", launch.gpu.count_location)


def _whole_machines(claim: GpuClaim) -> GpuClaim:
    """The claim with the GPUs of the instance type that it names, where the table knows it."""
    counts = {
        instance.count if (instance := instance_gpu(text)) is not None else None
        for label in claim.labels
        for text in label.alternatives
    }
    count = counts.pop() if len(counts) == 1 else None
    if not isinstance(count, int):
        return claim
    return replace(claim, count_per_pod=count, count_location=claim.labels[0].location)


def gpu_choices(
    launch: Launch, facts: Facts, policy: Policy, user: Mapping[str, GpuSpec]
) -> tuple[GpuChoice, ...]:
    """Every kind of GPU that may be chosen: each of them has to pass. Never empty."""
    other = _other_accelerator(launch)
    if other is not None:
        return (GpuChoice(spec=None, problem=other),)
    stated, problem = _from_labels(launch, facts, user)
    if not stated and problem is not None and problem.value is not None:
        return (GpuChoice(spec=None, problem=problem),)  # the file says something: not overruled
    if not stated and facts.gpu is not None:
        declared = _from_policy(launch, facts.gpu, policy, user)
        if declared.spec is None:
            return (declared,)
        if (wrong := _wrong_vendor(launch, declared.spec, policy)) is not None:
            return (GpuChoice(spec=None, problem=wrong),)
        stated = (declared,)
    resource = launch.gpu.resource or ""
    if resource.startswith("nvidia.com/mig-"):
        return _mig(launch, resource, stated)
    if stated:
        return stated
    return (GpuChoice(spec=None, problem=problem or _not_stated(launch)),)


def _other_accelerator(launch: Launch) -> Problem | None:
    """A resource that is no GPU of NVIDIA or AMD: what runs there is not modelled."""
    resource = launch.gpu.resource
    if resource is None or not _OTHERS.search(resource):
        return None
    message = f"{launch.name} runs on {resource}: accelerators but GPUs are not modelled"
    place = launch.gpu.count_location or launch.location
    return Problem(ProblemKind.UNKNOWN, message, place, key="gpu", value=resource)


def _wrong_vendor(launch: Launch, spec: GpuSpec, policy: Policy) -> Problem | None:
    """The policy's part where the file asks for GPUs of the other vendor."""
    vendor = (launch.gpu.resource or "").partition(".com/")[0]
    if vendor not in ("nvidia", "amd") or spec.vendor.lower() == vendor:
        return None
    message = (
        f"the file asks for {launch.gpu.resource}, {policy.origin} says gpu = {spec.id!r}, which is"
        f" {spec.vendor}'s"
    )
    place = launch.gpu.count_location or launch.location
    return Problem(ProblemKind.UNKNOWN, message, place, key="gpu", value=spec.id)


def _from_labels(
    launch: Launch, facts: Facts, user: Mapping[str, GpuSpec]
) -> tuple[tuple[GpuChoice, ...], Problem | None]:
    """What the labels say; the most specific label decides, disagreeing ones are a problem."""
    best: tuple[GpuChoice, ...] = ()
    problem: Problem | None = None
    memory_mib = _memory_mib(launch)
    for label in launch.gpu.labels:
        if label.key in _MEMORY_LABELS:
            continue
        try:
            choices = _from_label(label, facts, user, memory_mib)
        except (AmbiguousGpu, UnknownGpu) as error:
            problem = problem or _label_problem(label, error, facts)
            continue
        ids = {c.spec.id for c in choices if c.spec}
        best_ids = {c.spec.id for c in best if c.spec}
        if best and not ids & best_ids:
            message = (
                f"labels disagree on the GPU: {label.key} says {', '.join(sorted(ids))}, "
                f"another one says {', '.join(sorted(best_ids))}"
            )
            said = "|".join(sorted(ids | best_ids))
            return (), Problem(ProblemKind.UNKNOWN, message, label.location, key="gpu", value=said)
        if not best or len(ids) < len(best_ids):
            best = choices
    return best, problem


def _label_problem(label: GpuLabel, error: AmbiguousGpu | UnknownGpu, facts: Facts) -> Problem:
    """Why a label names no part; with a value where the label does limit what it can be."""
    message = f"{label.key}: {error}"
    is_ambiguous = isinstance(error, AmbiguousGpu)
    if is_ambiguous and facts.gpu is not None:
        message += f"; the policy's gpu = {facts.gpu!r} is none of them"
    value = "|".join(label.alternatives) if is_ambiguous else None
    return Problem(ProblemKind.UNKNOWN, message, label.location, key="gpu", value=value)


def _memory_mib(launch: Launch) -> int | None:
    """The memory that a label states, which tells parts of one name apart."""
    for label in launch.gpu.labels:
        if label.key in _MEMORY_LABELS and len(label.alternatives) == 1:
            text = label.alternatives[0]
            return int(text) if text.isdecimal() else None
    return None


def _from_label(
    label: GpuLabel, facts: Facts, user: Mapping[str, GpuSpec], memory_mib: int | None
) -> tuple[GpuChoice, ...]:
    choices: dict[str, GpuChoice] = {}
    for text in label.alternatives:
        try:
            spec = resolve_gpu(text, key=label.key, user=user, memory_mib=memory_mib)
        except AmbiguousGpu as error:
            if facts.gpu is None:
                raise
            declared = resolve_gpu(facts.gpu, user=user)
            if declared.id not in error.candidates:
                raise
            spec = declared
        source = f"{label.key}={text}, line {label.location.line}"
        choices[spec.id] = GpuChoice(spec=spec, source=source, location=label.location)
    return tuple(choices.values())


def _from_policy(
    launch: Launch, name: str, policy: Policy, user: Mapping[str, GpuSpec]
) -> GpuChoice:
    try:
        return GpuChoice(spec=resolve_gpu(name, user=user), source=f"{policy.origin} gpu")
    except (AmbiguousGpu, UnknownGpu) as error:
        message = f"{policy.origin}: gpu = {name!r}: {error}"
        problem = Problem(ProblemKind.UNKNOWN, message, launch.location, key="gpu", value=name)
        return GpuChoice(spec=None, problem=problem)


def _mig(launch: Launch, resource: str, parents: tuple[GpuChoice, ...]) -> tuple[GpuChoice, ...]:
    """The MIG slice of each possible parent."""
    location = launch.gpu.count_location or launch.location
    found: list[GpuChoice] = []
    for parent in parents or (GpuChoice(spec=None),):
        try:
            spec = resolve_mig(resource, parent.spec)
        except (AmbiguousGpu, UnknownGpu) as error:
            problem = Problem(ProblemKind.UNKNOWN, str(error), location, key="gpu", value=resource)
            found.append(GpuChoice(spec=None, problem=problem))
        else:
            source = f"{resource} on {parent.source}" if parent.source else resource
            found.append(GpuChoice(spec=spec, source=source, location=location))
    return tuple(found)


def _not_stated(launch: Launch) -> Problem:
    hints = f" ({'; '.join(launch.notes)})" if launch.notes else ""
    return Problem(
        ProblemKind.UNKNOWN,
        f"{launch.name}: no field says which GPU this server runs on{hints}",
        launch.gpu.count_location or launch.location,
        key="gpu",
        expected=(
            "declare it in the policy, e.g. [[server]] "
            f'name = "{launch.name}", gpu = "h100-sxm-80gb"'
        ),
    )
