"""GKE ComputeClass: which GPUs a class stands for, where its object is in the same file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.launch import GpuLabel
from pytest_llmserve.manifests.yaml_nodes import Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Mapping

KEY: Final = "cloud.google.com/compute-class"
_GKE: Final = "cloud.google.com/gke-accelerator"
_MACHINE: Final = "node.kubernetes.io/instance-type"


def class_labels(pod: Mapping, objects: Objects) -> tuple[GpuLabel, ...]:
    """The kinds of the class's priorities: whichever is at hand is taken, so each has to pass."""
    name = pod.text("nodeSelector", KEY)
    found = objects.named.get(("ComputeClass", name)) if name else None
    if found is None:
        return ()
    kinds: list[Scalar] = []
    machines: list[Scalar] = []
    priorities = list(found.mappings("spec", "priorities"))
    for priority in priorities:
        kind, machine = priority.get("gpu", "type"), priority.get("machineType")
        if isinstance(kind, Scalar):
            kinds.append(kind)
        elif isinstance(machine, Scalar):
            machines.append(machine)
    if not priorities or len(kinds) + len(machines) < len(priorities) or (kinds and machines):
        return ()  # some priority leaves the GPU open
    chosen = kinds or machines
    values = tuple(dict.fromkeys(node.text for node in chosen))
    return (GpuLabel(_GKE if kinds else _MACHINE, values, chosen[0].location),)
