"""Pod templates anywhere: custom resources that hold pods, whatever their operator is.

StormService, RoleBasedGroup, Rollout, PodCliqueSet, training jobs: all wrap ``containers`` in a
few mappings that say how many pods serve together (``podGroupSize``) and how often (``replicas``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.making import number
from pytest_llmserve.manifests.pods import PodServer, add_server, object_name, pod_servers
from pytest_llmserve.manifests.text import shown, unknown
from pytest_llmserve.manifests.yaml_nodes import Mapping, Sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Node

_SKIPPED: Final = frozenset(
    {"initContainers", "status", "metadata", "router", "scheduler", "roleTemplates"}
    | {"leaderTemplatePatch", "workerTemplatePatch", "patchLeaderTemplate", "patchWorkerTemplate"}
)
_SIZES: Final = (("podGroupSize",), ("leaderWorkerSet", "size"), ("leaderWorkerPattern", "size"))
# A rank that a controller injects: never needed, and not known.
_INJECTED: Final = (
    *("POD_GROUP_INDEX", "PODSET_NAME", "STORM_SERVICE_NAME", "ROLE_REPLICA_INDEX"),
    *("ROLE_NAME", "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX", "RBG_LWS_LEADER_ADDRESS"),
    *("RBG_LWP_LEADER_ADDRESS", "RBG_LWP_WORKER_INDEX", "ROLE_INDEX", "GROUP_NAME"),
)
_MAX_DEPTH: Final = 24


@dataclass(frozen=True, slots=True)
class _Context:
    """What the mappings around a pod template say."""

    name: str = ""
    replicas: int | None = None
    pods: int = 1
    base: str | None = None
    """The shared template that the pod template patches."""


def read_pods(root: Mapping, objects: Objects) -> None:
    """Launches of every pod template in an object, appended to ``objects``."""
    shared = {t.text("name"): t for t in root.mappings("spec", "roleTemplates")}
    found = list(_templates(root, _Context(), 0))
    found = [(_whole(pod, context, shared), context) for pod, context in found]
    label = f"{root.text('kind')}/{object_name(root)}"
    top = number(root.get("spec", "replicas"))
    count = len(objects.gathering.launches)
    servers: list[tuple[PodServer, _Context]] = []
    for pod, context in found:
        injected = {name: unknown(f"${name}") for name in _INJECTED}
        for name in ("LWS_GROUP_SIZE", "RBG_LWP_GROUP_SIZE"):
            injected[name] = str(context.pods)
        servers.extend((s, context) for s in pod_servers(pod, objects, label, injected))
    for server, context in servers:
        name = object_name(root)
        part = context.name or server.container
        pods = max(context.pods, 1)
        replicas = context.replicas if context.replicas is not None else top
        add_server(
            server,
            objects,
            name=f"{name}/{shown(part)}" if len(servers) > 1 and part else name,
            form=f"kubernetes {root.text('kind')}",
            gpu=replace(server.gpu, pods_per_instance=pods),
            replicas=0 if top == 0 else replicas,
        )
    if len(objects.gathering.launches) == count and not found:
        objects.gathering.ignored.append(f"{label} (line {root.line}): no pod template")


def _templates(node: Node, context: _Context, depth: int) -> Iterator[tuple[Mapping, _Context]]:
    """Mappings with ``containers``, and what stands around them."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _templates(item, context, depth + 1)
    elif isinstance(node, Mapping):
        if node.items("containers"):
            yield node, context
            return
        inner = _inside(node, context, depth)
        for key, value in node.entries.items():
            if key not in _SKIPPED:
                named = replace(inner, name=key) if _is_role(key, value, inner) else inner
                yield from _templates(value, named, depth + 1)


def _inside(node: Mapping, context: _Context, depth: int) -> _Context:
    sizes = (number(node.get(*path)) for path in _SIZES)
    size = next((size for size in sizes if size), None)
    has_own = depth > 1 and number(node.get("replicas")) is not None
    name = node.text("name") if depth > 1 else None
    return _Context(
        name=name or context.name,
        replicas=number(node.get("replicas")) if has_own else context.replicas,
        pods=size or context.pods,
        base=node.text("templateRef", "name") or context.base,
    )


def _whole(pod: Mapping, context: _Context, shared: dict[str | None, Mapping]) -> Mapping:
    """A pod template laid over the shared one that it refers to."""
    base = shared.get(context.base) if context.base else None
    spec = base.mapping("template", "spec") if base is not None else None
    if spec is None:
        return pod
    from pytest_llmserve.manifests.merging import merged

    return merged(spec, pod)


def _is_role(key: str, value: Node, context: _Context) -> bool:
    """Whether a key names a role: ``prefill: {template: ...}``, ``Worker: {replicas: ...}``."""
    return (
        isinstance(value, Mapping)
        and not context.name
        and key not in ("spec", "template")
        and ("template" in value.entries or "containers" in value.entries)
    )
