"""KubeRay: RayService, RayJob, RayCluster, and AIBrix's RayClusterFleet around it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.embedded import embedded
from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim
from pytest_llmserve.manifests.kubernetes_parts import image_field
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import number
from pytest_llmserve.manifests.operators.ray_serve import read_applications
from pytest_llmserve.manifests.pods import add_server, object_name, pod_servers
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects


def read_ray(root: Mapping, objects: Objects) -> None:
    """Servers of one Ray object: from its Serve config, or launched by its pods."""
    spec = root.mapping("spec")
    if spec is None:
        return
    cluster = (
        spec.mapping("rayClusterConfig")
        or spec.mapping("rayClusterSpec")
        or spec.mapping("template", "spec")
        or spec
    )
    serve = spec.get("serveConfigV2")
    if isinstance(serve, Scalar):
        _serve(root, serve, cluster, objects)
    _launched(root, cluster, spec, objects)


def _serve(root: Mapping, serve: Scalar, cluster: Mapping, objects: Objects) -> None:
    claim, image = GpuClaim(), None
    for group in _groups(cluster):
        pod = group.mapping("template", "spec")
        found = _pod_claim(pod) if pod is not None else GpuClaim()
        if pod is not None and found.count_per_pod:
            claim = found
            image = next((image_field(c.get("image")) for c in pod.mappings("containers")), None)
            break
    for document in embedded(serve):
        if isinstance(document.root, Mapping):
            read_applications(document.root, objects, claim, image, "ray RayService")
        else:
            reason = document.error or "no mapping"
            message = f"serveConfigV2 of {object_name(root)} cannot be read: {reason}"
            objects.gathering.problem(ProblemKind.UNREADABLE, message, serve.location)


def _groups(cluster: Mapping) -> Iterator[Mapping]:
    yield from cluster.mappings("workerGroupSpecs")
    head = cluster.mapping("headGroupSpec")
    if head is not None:
        yield head


def _pod_claim(pod: Mapping) -> GpuClaim:
    problems: list[Problem] = []
    for container in pod.mappings("containers"):
        claim = resource_claim(container.mapping("resources"), problems)
        if claim.count_per_pod:
            return replace(claim, labels=node_labels(pod))
    return GpuClaim(labels=node_labels(pod))


def _launched(root: Mapping, cluster: Mapping, spec: Mapping, objects: Objects) -> None:
    """``vllm serve`` in the head's command: the workers add their GPUs to the same server."""
    label = f"{root.text('kind')}/{object_name(root)}"
    head = cluster.mapping("headGroupSpec", "template", "spec")
    if head is None:
        return
    injected = {"KUBERAY_GEN_RAY_START_CMD": "ray start --head --block"}
    for server in pod_servers(head, objects, label, injected):
        gpu = _total(server.gpu, cluster)
        add_server(
            server,
            objects,
            name=object_name(root),
            form=f"ray {root.text('kind')}",
            gpu=gpu,
            replicas=number(spec.get("replicas")),
        )


def _total(head: GpuClaim, cluster: Mapping) -> GpuClaim:
    """GPUs of head and workers together; as count x pods where all pods have the same."""
    counts = [head.count_per_pod] if head.count_per_pod else []
    labels = head.labels
    for group in cluster.mappings("workerGroupSpecs"):
        pod = group.mapping("template", "spec")
        claim = _pod_claim(pod) if pod is not None else GpuClaim()
        replicas = number(group.get("replicas"))
        replicas = number(group.get("minReplicas")) if replicas is None else replicas
        hosts = number(group.get("numOfHosts")) or 1
        if claim.count_per_pod:
            count = 1 if replicas is None else replicas
            counts.extend([claim.count_per_pod] * count * hosts)
            labels = labels or claim.labels
            if head.count_location is None:
                head = replace(
                    head,
                    count_source=claim.count_source,
                    count_location=claim.count_location,
                    resource=claim.resource,
                )
    if not counts:
        return replace(head, labels=labels)
    if len(set(counts)) == 1:
        count, pods = counts[0], len(counts)
    else:
        count, pods = sum(counts), 1
    return replace(head, count_per_pod=count, pods_per_instance=pods, labels=labels)
