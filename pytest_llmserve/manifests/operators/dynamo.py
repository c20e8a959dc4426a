"""NVIDIA Dynamo: ``DynamoGraphDeployment`` and its parts, one worker a server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.gpu_claims import node_labels, whole_number
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import number, variables
from pytest_llmserve.manifests.pods import add_server, object_name, pod_servers
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.pods import PodServer
    from pytest_llmserve.verdict import Problem

_NO_SERVERS: Final = frozenset({"frontend", "planner", "router", "epp"})


def read_graph(root: Mapping, objects: Objects) -> None:
    """The workers of a graph deployment."""
    spec = root.mapping("spec")
    if spec is None:
        return
    services = spec.mapping("services")
    parts: list[tuple[str, Mapping]] = []
    if services is not None:
        parts = [(n, s) for n, s in services.entries.items() if isinstance(s, Mapping)]
    elif spec.mapping("extraPodSpec") is not None:  # DynamoComponentDeployment
        parts = [(object_name(root), spec)]
    else:  # v1beta1: components as a list
        parts = [(c.text("name") or "?", c) for c in spec.mappings("components")]
    injected, _ = variables(spec.get("envs"))
    for name, service in parts:
        if (service.text("componentType") or "") in _NO_SERVERS:
            objects.gathering.ignored.append(
                f"{object_name(root)} {name}: no model is served there"
            )
        else:
            _service(root, name, service, injected, objects)


def _service(
    root: Mapping, name: str, service: Mapping, injected: dict[str, str], objects: Objects
) -> None:
    pod = service.mapping("extraPodSpec") or service.mapping("podTemplate", "spec") or service
    main = pod.mapping("mainContainer")
    containers = (main,) if main is not None else tuple(pod.mappings("containers"))
    if not containers:
        objects.gathering.ignored.append(f"{object_name(root)} {name}: no container")
        return
    own, _ = variables(service.get("envs"))
    label = f"{root.text('kind')}/{object_name(root)} {name}"
    servers = pod_servers(pod, objects, label, {**injected, **own}, containers=containers)
    for server in servers:
        problems: list[Problem] = []
        gpu = _claim(service, pod, server, problems)
        add_server(
            replace(server, problems=(*server.problems, *problems)),
            objects,
            name=f"{object_name(root)}/{name}",
            form="dynamo",
            gpu=gpu,
            replicas=number(service.get("replicas")),
        )


def _claim(service: Mapping, pod: Mapping, server: PodServer, problems: list[Problem]) -> GpuClaim:
    nodes = number(service.get("multinode", "nodeCount")) or 1
    for path in (("resources", "limits", "gpu"), ("resources", "requests", "gpu")):
        node = service.get(*path)
        if isinstance(node, Scalar):
            kind = service.text("resources", "limits", "gpuType") or "nvidia.com/gpu"
            return GpuClaim(
                count_per_pod=whole_number(node, ".".join(path), problems),
                count_source="resources.limits.gpu",
                count_location=node.location,
                pods_per_instance=nodes,
                resource=kind,
                labels=node_labels(pod),
            )
    return replace(server.gpu, pods_per_instance=nodes)
