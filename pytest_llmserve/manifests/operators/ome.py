"""OME: runtimes whose runner holds the command; the model is bound at run time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.making import Made, add, number
from pytest_llmserve.manifests.pods import add_server, object_name, pod_servers
from pytest_llmserve.manifests.text import unknown
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Mapping

_RUNTIMES = ("ServingRuntime", "ClusterServingRuntime")


def read_runtime(root: Mapping, objects: Objects) -> None:
    """The engine (and decoder) of one runtime."""
    spec = root.mapping("spec")
    for key in ("engineConfig", "decoderConfig"):
        part = spec.mapping(key) if spec is not None else None
        if part is not None:
            role = "" if spec is None or spec.get("decoderConfig") is None else f"/{key[:-6]}"
            _part(f"{object_name(root)}{role}", root, part, objects)


def _part(name: str, root: Mapping, part: Mapping, objects: Objects) -> None:
    """``runner``, or ``leader`` with workers that join it."""
    leader = part.mapping("leader")
    pod = leader if leader is not None else part
    runner = pod.mapping("runner")
    if runner is None:
        return
    size = number(part.get("worker", "size"))
    pods = 1 + (size or 0) if leader is not None else 1
    injected = {
        "MODEL_PATH": unknown("$(MODEL_PATH)"),
        "PARALLELISM_SIZE": unknown("$(PARALLELISM_SIZE)"),
        "LWS_GROUP_SIZE": str(pods),
        "LWS_LEADER_ADDRESS": unknown("$(LWS_LEADER_ADDRESS)"),
        "LWS_WORKER_INDEX": unknown("$(LWS_WORKER_INDEX)"),
    }
    label = f"{root.text('kind')}/{object_name(root)}"
    for server in pod_servers(pod, objects, label, injected, containers=(runner,)):
        gpu = server.gpu
        if leader is not None and not gpu.labels:
            from pytest_llmserve.manifests.gpu_claims import node_labels

            gpu = replace(gpu, labels=node_labels(part))
        add_server(
            server,
            objects,
            name=name,
            form="ome runtime",
            gpu=replace(gpu, pods_per_instance=pods),
        )


def read_service(root: Mapping, objects: Objects) -> None:
    """An OME ``InferenceService``: model and runtime by name."""
    model = root.text("spec", "model", "name")
    if model is None:
        objects.gathering.ignored.append(f"InferenceService {object_name(root)}: no predictor")
        return
    runtime = root.text("spec", "runtime", "name")
    found = objects.find(_RUNTIMES, runtime) if runtime else None
    if found is not None:
        read_runtime(found, objects)
        return
    message = (
        f"the runtime {runtime or '(chosen by size)'!r} is not among the files: command, GPUs and"
        " settings are not known"
    )
    node = root.get("spec", "model", "name")
    add(
        Made(
            name=object_name(root),
            form="ome InferenceService",
            location=root.location,
            runtime="unknown",
            fields=[field_at(model, node.location if node is not None else root.location)],
            problems=[Problem(ProblemKind.UNRESOLVED, message, root.location)],
        ),
        objects.gathering,
    )
