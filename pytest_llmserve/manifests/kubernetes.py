"""Kubernetes workloads: pod templates of every kind that Kubernetes itself ships, and LWS."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.gpu_claims import node_labels, whole_number
from pytest_llmserve.manifests.pods import PodServer, add_server, object_name, pod_servers
from pytest_llmserve.manifests.text import unknown
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.found import Found
    from pytest_llmserve.manifests.kubernetes_parts import Objects
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
    servers = list(pod_servers(pod, objects, f"{kind}/{object_name(root)}"))
    for server in servers:
        gpu, copies = server.gpu, replicas
        if kind == "StatefulSet" and _nodes(server.found) not in (None, 1):
            gpu, copies = replace(gpu, pods_per_instance=_nodes(server.found) or 1), 1
        _add(root, kind, server, gpu, copies, objects, len(servers), suspended=suspended)


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


def _add(
    root: Mapping,
    kind: str,
    server: PodServer,
    gpu: GpuClaim,
    replicas: int | None,
    objects: Objects,
    count: int,
    *,
    suspended: bool = False,
    form: str = "",
) -> None:
    name = object_name(root)
    full = f"{name}/{server.container}" if count > 1 and server.container else name
    add_server(
        server,
        objects,
        name=full,
        form=form or f"kubernetes {kind}",
        gpu=gpu,
        replicas=replicas,
        is_deployed=not suspended,
    )


def _read_lws(root: Mapping, objects: Objects) -> None:
    template = root.mapping("spec", "leaderWorkerTemplate")
    if template is None or not (
        _pod(template, "workerTemplate") or _pod(template, "leaderTemplate")
    ):
        message = "LeaderWorkerSet has no spec.leaderWorkerTemplate.workerTemplate.spec"
        objects.gathering.problems.append(Problem(ProblemKind.UNREADABLE, message, root.location))
        return
    read_group(root, template, objects)


def _pod(template: Mapping, key: str) -> Mapping | None:
    return template.mapping(key, "spec")


def read_group(root: Mapping, template: Mapping, objects: Objects, *, form: str = "") -> None:
    """Leader and worker pods that serve together; ``template`` is a leaderWorkerTemplate."""
    worker, leader = _pod(template, "workerTemplate"), _pod(template, "leaderTemplate")
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
    label = f"{root.text('kind')}/{object_name(root)}"
    leaders = list(pod_servers(leader, objects, label, injected)) if leader is not None else []
    workers = list(pod_servers(worker, objects, label, injected)) if worker is not None else []
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
        _add(root, _LWS, server, gpu, replicas, objects, len(servers), form=form)


def _with_worker_labels(server: PodServer, worker: Mapping | None) -> PodServer:
    """Labels of the worker's pods where the leader has none: both kinds of pod must match."""
    if server.gpu.labels or worker is None:
        return server
    return replace(server, gpu=replace(server.gpu, labels=node_labels(worker)))
