"""Kubernetes workloads: pod templates of every kind that Kubernetes itself ships, and LWS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container, Found, launch_of
from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim, whole_number
from pytest_llmserve.manifests.kubernetes_parts import (
    Objects,
    container_words,
    environment,
    image_field,
    mounted_files,
)
from pytest_llmserve.manifests.text import shown, unknown
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.launch import GpuClaim

# Where the pod template stands in each kind.
_TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    "Deployment": ("spec", "template", "spec"),
    "StatefulSet": ("spec", "template", "spec"),
    "DaemonSet": ("spec", "template", "spec"),
    "ReplicaSet": ("spec", "template", "spec"),
    "ReplicationController": ("spec", "template", "spec"),
    "Job": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
}
_LWS: Final = "LeaderWorkerSet"
WORKLOADS: Final = frozenset({*_TEMPLATES, _LWS})
# A worker that says so joins its leader: one server, not two.
_JOINS: Final = ("--headless", "--nnodes", "--node-rank", "-n", "-r", "--data-parallel-start-rank")


def read_workload(root: Mapping, objects: Objects) -> None:
    """Launches of one workload object, appended to ``objects``."""
    kind = root.text("kind") or ""
    if kind == _LWS:
        _read_lws(root, objects)
        return
    pod = root.mapping(*_TEMPLATES[kind])
    if pod is None:
        path = ".".join(_TEMPLATES[kind])
        message = f"{kind} has no {path}: nothing to run"
        objects.gathering.problems.append(
            Problem(ProblemKind.UNREADABLE, message, root.location, key=path)
        )
        return
    replicas = _replicas(root, kind, objects)
    suspended = root.text("spec", "suspend") == "true"
    servers = list(_servers(pod, {}, objects, f"{kind}/{_name(root)}"))
    for server in servers:
        gpu, copies = server.gpu, replicas
        if kind == "StatefulSet" and _nodes(server.found) not in (None, 1):
            gpu, copies = replace(gpu, pods_per_instance=_nodes(server.found) or 1), 1
        _add(root, kind, server, gpu, copies, objects, len(servers), suspended=suspended)


def _name(root: Mapping) -> str:
    name = root.text("metadata", "name") or root.text("metadata", "generateName")
    return shown(name).rstrip("-") if name else (root.text("kind") or "object").lower()


def _replicas(root: Mapping, kind: str, objects: Objects) -> int | None:
    key = "parallelism" if kind in ("Job", "CronJob") else "replicas"
    path = ("spec", "jobTemplate", "spec", key) if kind == "CronJob" else ("spec", key)
    node = root.get(*path)
    if not isinstance(node, Scalar):
        return None
    return whole_number(node, ".".join(path), objects.gathering.problems)


def _nodes(found: Found) -> int | None:
    """``--nnodes N``: the pods of a StatefulSet are then the nodes of one server."""
    words = [item.text for item in found.fields]
    for index, text in enumerate(words):
        flag, equals, value = text.partition("=")
        if flag in ("--nnodes", "-n"):
            value = value if equals else "".join(words[index + 1 : index + 2])
            return int(value) if value.isdecimal() and len(value) < 5 else None
    return None


@dataclass(frozen=True, slots=True)
class _Server:
    container: str
    found: Found
    gpu: GpuClaim
    problems: tuple[Problem, ...]
    places: dict[str, Location]


def _add(
    root: Mapping,
    kind: str,
    server: _Server,
    gpu: GpuClaim,
    replicas: int | None,
    objects: Objects,
    count: int,
    *,
    suspended: bool = False,
) -> None:
    name = _name(root)
    full = f"{name}/{server.container}" if count > 1 and server.container else name
    objects.gathering.launches.append(
        launch_of(
            server.found,
            name=objects.gathering.names.unique(full),
            form=f"kubernetes {kind}",
            gpu=gpu,
            replicas=replicas,
            is_deployed=replicas != 0 and not suspended,
            problems=server.problems,
            notes=objects.gathering.notes,
            places=server.places,
        )
    )


def _read_lws(root: Mapping, objects: Objects) -> None:
    template = root.mapping("spec", "leaderWorkerTemplate")
    worker = template.mapping("workerTemplate", "spec") if template is not None else None
    leader = template.mapping("leaderTemplate", "spec") if template is not None else None
    if template is None or (worker is None and leader is None):
        message = "LeaderWorkerSet has no spec.leaderWorkerTemplate.workerTemplate.spec"
        objects.gathering.problems.append(Problem(ProblemKind.UNREADABLE, message, root.location))
        return
    size: int | None = 1
    node = template.get("size")
    if isinstance(node, Scalar):
        size = whole_number(node, "leaderWorkerTemplate.size", objects.gathering.problems)
    injected = {
        "LWS_GROUP_SIZE": unknown("$(LWS_GROUP_SIZE)") if size is None else str(size),
        "LWS_WORKER_INDEX": unknown("$(LWS_WORKER_INDEX)"),
        "LWS_LEADER_ADDRESS": unknown("$(LWS_LEADER_ADDRESS)"),
    }
    replicas = _replicas(root, _LWS, objects)
    label = f"{_LWS}/{_name(root)}"
    leaders = list(_servers(leader, injected, objects, label)) if leader is not None else []
    workers = list(_servers(worker, injected, objects, label)) if worker is not None else []
    if leaders:
        joined = [w for w in workers if any(t.text.split("=")[0] in _JOINS for t in w.found.fields)]
        workers = [w for w in workers if w not in joined]
        objects.gathering.ignored.extend(
            f"{label} {w.container}: worker pods of the leader's server" for w in joined
        )
        leaders = [_with_worker_labels(server, worker) for server in leaders]
    servers = leaders + workers
    for server in servers:
        gpu = replace(server.gpu, pods_per_instance=size or 1)
        if size is None:
            gpu = replace(gpu, count_per_pod=None)
        _add(root, _LWS, server, gpu, replicas, objects, len(servers))


def _with_worker_labels(server: _Server, worker: Mapping | None) -> _Server:
    """Labels of the worker's pods where the leader has none: both kinds of pod must match."""
    if server.gpu.labels or worker is None:
        return server
    return replace(server, gpu=replace(server.gpu, labels=node_labels(worker)))


def _servers(
    pod: Mapping, injected: dict[str, str], objects: Objects, label: str
) -> Iterator[_Server]:
    labels = node_labels(pod)
    for container in pod.mappings("initContainers"):
        objects.gathering.ignored.append(f"{label} init container {container.text('name') or '?'}")
    containers = list(pod.mappings("containers"))
    if not containers:
        message = f"{label} has no containers"
        objects.gathering.problems.append(Problem(ProblemKind.UNREADABLE, message, pod.location))
    for container in containers:
        yield from _container(container, pod, injected, objects, label, labels)


def _container(
    node: Mapping,
    pod: Mapping,
    injected: dict[str, str],
    objects: Objects,
    label: str,
    labels: tuple[object, ...],
) -> Iterator[_Server]:
    name = node.text("name") or ""
    problems: list[Problem] = []
    variables, places = environment(node, injected, objects, problems)
    claim = resource_claim(node.mapping("resources"), problems, default=node.location)
    command = container_words(node, "command", variables, problems)
    arguments = container_words(node, "args", variables, problems)
    image = node.get("image")
    reading = read_container(
        Container(
            image=image_field(image),
            entrypoint=command,
            arguments=arguments or [],
            environment=variables,
            location=node.location,
            files=mounted_files(node, pod, objects),
            beside=objects.gathering.beside,
        )
    )
    problems.extend(reading.problems)
    if not reading.found:
        _not_a_server(reading.ignored, node, label, bool(image), problems, objects)
    for index, found in enumerate(reading.found):
        gpu = replace(claim, labels=node_labels(pod)) if labels else claim
        suffix = f"{name}-{index + 1}" if index and name else name
        yield _Server(suffix, found, gpu, tuple(problems), places)


def _not_a_server(
    reason: str | None,
    node: Mapping,
    label: str,
    has_image: bool,
    problems: list[Problem],
    objects: Objects,
) -> None:
    name = node.text("name") or "?"
    objects.gathering.ignored.append(f"{label} container {name}: {reason or 'no server'}")
    objects.gathering.problems.extend(
        p for p in problems if p.kind in (ProblemKind.UNRESOLVED, ProblemKind.UNREADABLE)
    )
    if not has_image:
        message = (
            f"container {name!r} has no image: a patch? Give the rendered manifest"
            " (kustomize build, helm template)"
        )
        objects.gathering.problems.append(
            Problem(ProblemKind.UNKNOWN, message, node.location, key="image")
        )
