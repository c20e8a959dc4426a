"""Dynamic resource allocation: GPUs through ResourceClaim and ResourceClaimTemplate."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.gpu_claims import AMD, NVIDIA, whole_number
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.yaml_nodes import Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Mapping

# Device classes of the vendors' DRA drivers -> the resource that the device plugin calls so.
_CLASSES: Final = (
    (re.compile(r"(?:h100|a100|h200|b200|.*\.)?gpu\.nvidia\.com|nvidia-gpu.*"), NVIDIA),
    (re.compile(r"mig\.nvidia\.com"), "nvidia.com/mig"),
    (re.compile(r"gpu\.amd\.com"), AMD),
    (re.compile(r"gpu\.intel\.com"), "gpu.intel.com"),
    (re.compile(r"gaudi\.intel\.com"), "gaudi.intel.com"),
    (re.compile(r"tpu\.google\.com"), "google.com/tpu"),
)
# Channels, network cards: devices that hold no model.
_OTHER: Final = re.compile(r"compute-domain|imex|rdma|dranet|sriov|nic|channel")
_PRODUCT: Final = re.compile(
    r"\.(?:attributes\[[^\]]*\]\.)?productName(?:\.lowerAscii\(\))?\s*"
    r"(?:==\s*|\.matches\(|\.contains\()\s*[\"']\^?([^\"'$]+)\$?[\"']"
)
_PROFILE: Final = re.compile(r"\.profile\s*==\s*[\"']([^\"']+)[\"']")


def device_claim(
    container: Mapping, pod: Mapping, objects: Objects, problems: list[Problem], claim: GpuClaim
) -> GpuClaim:
    """The GPUs of a container's claims, in place of a claim without a count."""
    used = list(container.mappings("resources", "claims"))
    names = {item.text("name") for item in used}
    entries = [e for e in pod.mappings("resourceClaims") if not used or e.text("name") in names]
    defined = {entry.text("name") for entry in entries}
    problems.extend(_missing(item) for item in used if item.text("name") not in defined)
    found: list[GpuClaim] = []
    for entry in entries:
        spec = _spec(entry, objects)
        if spec is None:
            if used and not _OTHER.search(_wanted(entry)):
                problems.append(_missing(entry))
                return claim
            continue
        found.extend(c for r in _requests(spec) if (c := _claim(r, problems)) is not None)
    if not found:
        return claim
    counts = [c.count_per_pod for c in found]
    total = None if None in counts else sum(count or 0 for count in counts)
    labels = tuple(label for c in found for label in c.labels)
    return replace(found[-1], count_per_pod=total, labels=(*claim.labels, *labels))


def _claim(choices: list[Mapping], problems: list[Problem]) -> GpuClaim | None:
    """The GPUs of one request; None for devices that hold no model."""
    choices = [choice for choice in choices if _resource(choice) is not None]
    if not choices:
        return None
    counts = {_count(choice, problems) for choice in choices}
    labels = [label for choice in choices for label in _labels(choice)]
    if labels and len(choices) > 1:  # any of them may be allocated: every one has to pass
        values = tuple(dict.fromkeys(v for label in labels for v in label.alternatives))
        labels = [replace(labels[0], alternatives=values)]
    first = choices[0]
    return GpuClaim(
        count_per_pod=counts.pop() if len(counts) == 1 else None,
        count_source="resourceClaims",
        count_location=first.location,
        resource=_mig(first, _resource(first) or ""),
        labels=tuple(labels),
    )


def _wanted(entry: Mapping) -> str:
    names = (entry.text("resourceClaimTemplateName"), entry.text("resourceClaimName"))
    return next((name for name in names if name), entry.text("name") or "?")


def _spec(entry: Mapping, objects: Objects) -> Mapping | None:
    template = entry.text("resourceClaimTemplateName") or entry.text(
        "source", "resourceClaimTemplateName"
    )
    if template:
        root = objects.named.get(("ResourceClaimTemplate", template))
        return root.mapping("spec", "spec") if root is not None else None
    name = entry.text("resourceClaimName") or entry.text("source", "resourceClaimName") or ""
    root = objects.named.get(("ResourceClaim", name))
    return root.mapping("spec") if root is not None else None


def _missing(entry: Mapping) -> Problem:
    name = _wanted(entry)
    message = (
        f"resourceClaims: GPUs come through the claim {name!r}, which is not in this file: give the"
        " file with its ResourceClaimTemplate, or declare gpu and gpu_count in the policy"
    )
    return Problem(
        ProblemKind.UNRESOLVED, message, entry.location, key="resourceClaims", value=name
    )


def _requests(spec: Mapping) -> Iterator[list[Mapping]]:
    """The requests, each with the alternatives of which the scheduler takes one."""
    for request in spec.mappings("devices", "requests"):
        exactly = request.mapping("exactly")  # resource.k8s.io/v1; earlier versions: the request
        yield list(request.mappings("firstAvailable")) or [exactly or request]


def _resource(request: Mapping) -> str | None:
    name = request.text("deviceClassName") or ""
    if not name or _OTHER.search(name):
        return None
    for pattern, resource in _CLASSES:
        if pattern.fullmatch(name):
            return resource
    return None


def _mig(request: Mapping, resource: str) -> str:
    if resource != "nvidia.com/mig":
        return resource
    for expression in _expressions(request):
        match = _PROFILE.search(expression.text)
        if match:
            return f"nvidia.com/mig-{match[1]}"
    return resource


def _count(request: Mapping, problems: list[Problem]) -> int | None:
    if request.text("allocationMode") == "All":
        return None
    node = request.get("count")
    return whole_number(node, "count", problems) if isinstance(node, Scalar) else 1


def _labels(request: Mapping) -> Iterator[GpuLabel]:
    for expression in _expressions(request):
        found = tuple(dict.fromkeys(_PRODUCT.findall(expression.text)))
        if found:
            yield GpuLabel("productName", found, expression.location)


def _expressions(request: Mapping) -> Iterator[Scalar]:
    for selector in request.mappings("selectors"):
        node = selector.get("cel", "expression")
        if isinstance(node, Scalar):
            yield node
