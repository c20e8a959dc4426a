"""What a file says about GPUs: resource counts, device lists, node labels."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.text import is_unknown, shown, unknown_names
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_llmserve.manifests.words import Field

_RESOURCE: Final = re.compile(
    r"nvidia\.com/(?:gpu(?:\.shared)?|mig-[\w.-]+)|amd\.com/gpu|google\.com/tpu|habana\.ai/\w+"
    r"|aws\.amazon\.com/neuron\w*|gpu\.intel\.com/\w+|huawei\.com/Ascend\w+|[\w.-]+/gpu(?:\.\w+)?"
)
# Labels that name a kind of GPU, and the two that state its memory, which tells kinds apart.
_LABELS: Final = re.compile(
    r"cloud\.google\.com/gke-(?:accelerator|tpu-accelerator)|nvidia\.com/gpu\.product"
    r"|(?:beta|node)\.kubernetes\.io/instance-type|karpenter\.k8s\.aws/instance-gpu-name"
    r"|karpenter\.azure\.com/sku-gpu-name|gpu\.nvidia\.com/(?:class|model)"
    r"|amd\.com/gpu\.(?:product-name|device-id)|.*volcengine\.com/gpu-name"
    r"|karpenter\.k8s\.aws/instance-gpu-memory|nvidia\.com/gpu\.memory"
)
_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
NVIDIA: Final = "nvidia.com/gpu"
AMD: Final = "amd.com/gpu"


def resource_claim(resources: Mapping | None, problems: list[Problem]) -> GpuClaim:
    """GPUs in a container's ``resources``; what Kubernetes refuses goes into ``problems``."""
    if resources is None:
        return GpuClaim()
    limits = dict(_gpu_resources(resources.mapping("limits")))
    requests = dict(_gpu_resources(resources.mapping("requests")))
    _check_pair(limits, requests, problems)
    given = {**requests, **limits}
    if not given:
        return GpuClaim()
    if len(given) > 1:
        message = f"several GPU resources in one container: {', '.join(given)}"
        place = next(iter(given.values())).location
        problems.append(Problem(ProblemKind.WARNING, message, place, key="resources"))
    resource, node = next(iter(given.items()))
    count = whole_number(node, resource, problems)
    return GpuClaim(
        count_per_pod=count, count_source=resource, count_location=node.location, resource=resource
    )


def _gpu_resources(mapping: Mapping | None) -> Iterator[tuple[str, Scalar]]:
    for name, node in mapping.entries.items() if mapping is not None else ():
        if isinstance(node, Scalar) and not node.is_null and _RESOURCE.fullmatch(name):
            yield name, node


def _check_pair(
    limits: dict[str, Scalar], requests: dict[str, Scalar], problems: list[Problem]
) -> None:
    for name, node in requests.items():
        limit = limits.get(name)
        if limit is None:
            message = f"{name} stands in requests and not in limits: Kubernetes refuses the pod"
        elif limit.text != node.text:
            message = (
                f"{name} differs: limit {shown(limit.text)}, request {shown(node.text)};"
                " Kubernetes refuses the pod"
            )
        else:
            continue
        problems.append(Problem(ProblemKind.REFUSED, message, node.location, key=name))


def whole_number(node: Scalar, key: str, problems: list[Problem]) -> int | None:
    """The count that a scalar states; anything else becomes a problem."""
    text = node.text.strip()
    if re.fullmatch(r"\d{1,6}", text):
        return int(text)
    if is_unknown(text) or "$" in text or "{{" in text:
        names = unknown_names(text) or (shown(text),)
        message = (
            f"{key} is {shown(text)}: the value of {', '.join(names)} is not in this file;"
            " give a number, or render the file first"
        )
        problems.append(
            Problem(ProblemKind.UNRESOLVED, message, node.location, key=key, value=shown(text))
        )
        return None
    message = f"{key} is {text!r}; expected a whole number"
    problems.append(
        Problem(
            ProblemKind.UNREADABLE,
            message,
            node.location,
            key=key,
            value=text,
            expected="1, 2, ...",
        )
    )
    return None


def node_labels(pod: Mapping) -> tuple[GpuLabel, ...]:
    """GPU kinds that a pod's nodeSelector and required node affinity allow.

    Terms are alternatives, expressions in one term hold together, preferences say nothing.
    """
    labels: list[GpuLabel] = []
    selector = pod.mapping("nodeSelector")
    for name, node in selector.entries.items() if selector is not None else ():
        if isinstance(node, Scalar) and _LABELS.fullmatch(name) and not is_unknown(node.text):
            labels.append(GpuLabel(name, (node.text,), node.location))
    required = pod.mapping(
        "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required is not None:
        labels.extend(_affinity(list(required.mappings("nodeSelectorTerms"))))
    return tuple(labels)


def is_gpu_label(key: str) -> bool:
    """Whether a node label of this name states a kind of GPU."""
    return _LABELS.fullmatch(key) is not None


def _affinity(terms: Sequence[Mapping]) -> list[GpuLabel]:
    found: dict[str, list[GpuLabel]] = {}
    for term in terms:
        for expression in term.mappings("matchExpressions"):
            key = expression.text("key") or ""
            if not _LABELS.fullmatch(key) or expression.text("operator") != "In":
                continue
            values = [n.text for n in expression.items("values") if isinstance(n, Scalar)]
            if values and not any(is_unknown(value) for value in values):
                found.setdefault(key, []).append(GpuLabel(key, tuple(values), expression.location))
    # A term without the key leaves the GPU open: then the key says nothing.
    return [
        GpuLabel(
            key, _unique(v for label in labels for v in label.alternatives), labels[0].location
        )
        for key, labels in found.items()
        if len(labels) >= len(terms)
    ]


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def visible_count(environment: dict[str, str], *, container: bool) -> tuple[int, str] | None:
    """Devices that ``CUDA_VISIBLE_DEVICES`` and its like leave, and the variable's name."""
    names = (*_VISIBLE, "NVIDIA_VISIBLE_DEVICES") if container else _VISIBLE
    for name in names:
        value = environment.get(name)
        count = None if value is None else device_count(value)
        if count is not None:
            return count, name
    return None


def device_count(value: str) -> int | None:
    """Devices in ``0,1`` or a list of UUIDs; None for ``all``, nothing or an unknown value."""
    items = [item.strip() for item in value.split(",")]
    if is_unknown(value) or not all(items) or items[0].lower() in ("all", "none", "void", "-1"):
        return None
    return len(items)


def narrowed(
    claim: GpuClaim, environment: dict[str, str], location: Location, *, container: bool = False
) -> GpuClaim:
    """The claim, cut down to the devices that the environment leaves visible."""
    visible = visible_count(environment, container=container)
    if visible is None or (claim.count_per_pod is not None and claim.count_per_pod <= visible[0]):
        return claim
    return replace(
        claim, count_per_pod=visible[0], count_source=visible[1], count_location=location
    )


def docker_claim(
    gpus: Field | None, runtime: str | None, devices: Sequence[Field], environment: dict[str, str]
) -> GpuClaim:
    """GPUs of ``docker run``: ``--gpus``, CDI devices, the nvidia runtime, AMD's device files."""
    if gpus is not None:
        claim = _gpus_option(gpus)
        return narrowed(claim, environment, gpus.location)
    cdi = [d for d in devices if d.text.startswith("nvidia.com/gpu=")]
    if cdi:
        names = [d.text.partition("=")[2] for d in cdi]
        count = None if "all" in names else len(names)
        claim = _claim(count, "--device nvidia.com/gpu", cdi[0].location, NVIDIA)
        return narrowed(claim, environment, cdi[0].location)
    amd = next((d for d in devices if d.text.startswith("/dev/kfd")), None)
    if amd is not None:
        return narrowed(
            _claim(None, "--device /dev/kfd", amd.location, AMD), environment, amd.location
        )
    if runtime == "nvidia":
        return GpuClaim(resource=NVIDIA, count_source="--runtime nvidia")
    return GpuClaim()


def _gpus_option(gpus: Field) -> GpuClaim:
    text = gpus.text.strip("\"' ")
    source = f"--gpus {shown(text)}"
    match = re.search(r"device=([^\"']+)", text)
    if match:
        devices = re.split(r",(?=capabilities|driver|count|options)", match[1])[0]
        return _claim(device_count(devices), source, gpus.location, NVIDIA)
    match = re.fullmatch(r"(?:count=)?(\d{1,4})(?:,.*)?", text)
    return _claim(int(match[1]) if match else None, source, gpus.location, NVIDIA)


def _claim(count: int | None, source: str, location: Location, resource: str) -> GpuClaim:
    return GpuClaim(
        count_per_pod=count, count_source=source, count_location=location, resource=resource
    )
