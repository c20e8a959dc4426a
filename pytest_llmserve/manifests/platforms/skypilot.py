"""SkyPilot tasks: a ``run`` script on machines with named accelerators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.accelerators import accelerator_claim, kind_and_count
from pytest_llmserve.manifests.containers import ContainerReading, read_script
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.making import image_of, number, variables
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.shell_state import State
from pytest_llmserve.manifests.text import unknown
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field

_KEY: Final = "accelerators"
# SkyPilot's own meaning of a bare name (its catalogue: A100 is the 40 GB part).
_MEANT: Final = {"A100": "A100-40GB"}
_RUNTIME: Final = ("SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS", "SKYPILOT_TASK_ID")


def read_task(root: Mapping, objects: Objects) -> None:
    """The servers that a task's ``run`` starts."""
    gathering = objects.gathering
    script = root.get("run")
    if not isinstance(script, Scalar):
        gathering.problem(
            ProblemKind.UNKNOWN, "a SkyPilot task without run: no server", root.location
        )
        return
    nodes = number(root.get("num_nodes")) or 1
    texts, place = _accelerators(root.mapping("resources"))
    claim = _claim(texts, place, nodes)
    values, places = variables(root.get("envs"))
    count = claim.count_per_pod
    each = unknown("$SKYPILOT_NUM_GPUS_PER_NODE") if count is None else str(count)
    injected = {
        "SKYPILOT_NUM_GPUS_PER_NODE": each,
        "SKYPILOT_NUM_NODES": str(nodes),
        **{name: unknown(f"${name}") for name in _RUNTIME},
    }
    environment = {**injected, **values}
    container = Container(
        image=_image(root),
        entrypoint=None,
        arguments=[],
        environment=environment,
        location=script.location,
        beside=gathering.beside,
    )
    reading = ContainerReading()
    state = State(variables=dict(environment), exported=frozenset(environment))
    read_script(script.source(), state, container, reading)
    gathering.problems.extend(reading.problems)
    name = root.text("name") or gathering.path.name.split(".")[0]
    problems = _open_count(texts, place, count)
    for found in reading.found:
        server = PodServer("", found, found.gpu or claim, problems, places)
        if found.gpu is not None and found.gpu.count_per_pod is None:
            server = replace(server, found=replace(found, gpu=None), gpu=claim)
        add_server(
            server,
            objects,
            name=name,
            form="skypilot",
            replicas=_replicas(root),
        )
    if not reading.found:
        gathering.ignored.append(reading.ignored or "run starts no server")


def _accelerators(
    resources: Mapping | None,
) -> tuple[list[str], Scalar | Mapping | Sequence | None]:
    """Every accelerator that may be chosen: a name, a list, a set, ``any_of`` or ``ordered``."""
    if resources is None:
        return [], None
    found: list[str] = []
    place = resources.get(_KEY)
    for node in (place, *(r.get(_KEY) for r in _choices(resources))):
        place = place or node
        if isinstance(node, Scalar):
            found.append(node.text)
        elif isinstance(node, Sequence):
            found.extend(item.text for item in node.items if isinstance(item, Scalar))
        elif isinstance(node, Mapping):  # {H100:8, H200:8} reads as keys, {H100: 8} as pairs
            for key, value in node.entries.items():
                is_pair = isinstance(value, Scalar) and not value.is_null
                found.append(f"{key}:{value.text}" if is_pair else key)  # type: ignore[union-attr]
    return list(dict.fromkeys(found)), place


def _choices(resources: Mapping) -> list[Mapping]:
    return [*resources.mappings("any_of"), *resources.mappings("ordered")]


def _claim(texts: list[str], place: object, nodes: int) -> GpuClaim:
    if not texts or not isinstance(place, Scalar | Mapping | Sequence):
        return GpuClaim(pods_per_instance=nodes)
    claim = accelerator_claim(texts, f"resources.{_KEY}", place.location)
    labels = tuple(
        GpuLabel(
            label.key, tuple(_MEANT.get(kind, kind) for kind in label.alternatives), place.location
        )
        for label in claim.labels
    )
    return replace(claim, labels=labels, pods_per_instance=nodes)


def _open_count(texts: list[str], place: object, count: int | None) -> tuple[Problem, ...]:
    if count is not None or len(texts) < 2 or not isinstance(place, Scalar | Mapping | Sequence):
        return ()
    counts = sorted({pair[1] or 1 for text in texts if (pair := kind_and_count(text)) is not None})
    message = (
        f"accelerators leaves the number of GPUs open ({', '.join(map(str, counts))}): what hangs"
        " on it is not known; keep accelerators of one count in a task"
    )
    return (Problem(ProblemKind.UNRESOLVED, message, place.location, key=_KEY),)


def _image(root: Mapping) -> Field | None:
    node = root.get("resources", "image_id")
    if isinstance(node, Scalar) and node.text.startswith("docker:"):
        return field_at(node.text.removeprefix("docker:"), node.location)
    return image_of(node) if isinstance(node, Scalar) and "/" in node.text else None


def _replicas(root: Mapping) -> int | None:
    for path in (("service", "replicas"), ("service", "replica_policy", "min_replicas")):
        count = number(root.get(*path))
        if count:
            return count
    return None
