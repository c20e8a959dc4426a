"""llm-d modelservice: Helm values with containers for decode and prefill.

Facts of the chart (charts/llm-d-modelservice/templates/_helpers.tpl of
llm-d-incubation/llm-d-modelservice): ``modelCommand``, parallelism defaults, and the GPU count
dataLocal x tensor where the values state none.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.gpu_claims import narrowed, node_labels
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel, ModelSource
from pytest_llmserve.manifests.making import is_off, model_field, number
from pytest_llmserve.manifests.pods import add_server, pod_servers
from pytest_llmserve.manifests.text import shown
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.pods import PodServer
    from pytest_llmserve.manifests.words import Field

_VALUE: Final = re.compile(r"\{\{-?\s*\.Values\.([\w.]+)\s*(?:\|\s*quote\s*)?-?\}\}")
_RESOURCES: Final = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel-i915": "gpu.intel.com/i915",
    "intel-xe": "gpu.intel.com/xe",
    "intel-gaudi": "habana.ai/gaudi",
    "google": "google.com/tpu",
}
_MOUNT: Final = "/model-cache"


def read_values(root: Mapping, objects: Objects) -> None:
    """The decode and prefill servers."""
    model, source = _model(root)
    for role in ("decode", "prefill"):
        part = root.mapping(role)
        if part is not None and part.items("containers"):
            _role(role, part, root, model, source, objects)


def _model(root: Mapping) -> tuple[Field | None, ModelSource | None]:
    """``modelArtifacts.uri`` with the values that it names itself put in."""
    node = root.get("modelArtifacts", "uri")
    if not isinstance(node, Scalar):
        return model_field(root.get("modelArtifacts", "name")), None
    text = _VALUE.sub(lambda match: _looked_up(root, match), shown(node.text)).replace('"', "")
    plain = Scalar(node.file, node.line, node.column, text, "'", None, node.line, node.lines)
    model = model_field(plain)
    mount = root.text("modelArtifacts", "mountPath") or _MOUNT
    name = root.text("modelArtifacts", "name")
    return model, ModelSource(mount, name, "modelArtifacts.name", node.location) if name else None


def _looked_up(root: Mapping, match: re.Match[str]) -> str:
    value = root.text(*match[1].split("."))
    return match[0] if value is None else value


def _role(
    role: str,
    part: Mapping,
    root: Mapping,
    model: Field | None,
    source: ModelSource | None,
    objects: Objects,
) -> None:
    is_on = not is_off(part.get("create"))
    containers = tuple(_with_command(c, model) for c in part.mappings("containers"))
    parallelism = part.mapping("parallelism")
    for server in pod_servers(part, objects, role, containers=containers):
        found = server.found
        command = next((c.text("modelCommand") for c in part.mappings("containers")), None)
        if command in (None, "vllmServe", "imageDefault"):
            found = replace(found, fields=(*found.fields, *_parallel(parallelism)))
        sources = server.sources if source is None else (*server.sources, source)
        server = replace(server, found=found, sources=sources)
        add_server(
            server,
            objects,
            name=role,
            form="modelservice values",
            gpu=_claim(server, part, parallelism, root),
            replicas=number(part.get("replicas")),
            is_deployed=is_on,
        )


def _with_command(container: Mapping, model: Field | None) -> Mapping:
    """``modelCommand: vllmServe`` starts ``vllm serve MODEL``; ``imageDefault`` adds the model."""
    kind = container.text("modelCommand") or "imageDefault"
    if kind == "custom" or model is None or container.get("command") is not None:
        return container
    result = Mapping(container.file, container.line, container.column)
    result.entries, result.keys = dict(container.entries), dict(container.keys)
    words = ["vllm", "serve", model.text] if kind == "vllmServe" else ["--model", model.text]
    key = "command" if kind == "vllmServe" else "args"
    place = model.location
    nodes = [
        Scalar(place.file, place.line, place.column or 1, word, "'", None, place.line, [])
        for word in words
    ]
    own = container.items("args") if key == "args" else []
    sequence = Sequence(place.file, place.line, place.column or 1)
    sequence.items = [*nodes, *own]
    result.entries[key] = sequence
    result.keys.setdefault(key, place)
    return result


def _parallel(parallelism: Mapping | None) -> list[Field]:
    """The flags that the chart derives."""
    if parallelism is None:
        return []
    tensor = number(parallelism.get("tensor"))
    data, _, _ = _data(parallelism)
    fields: list[Field] = []
    if tensor is not None and tensor > 1:
        place = parallelism.keys["tensor"]
        fields.extend(field_at(t, place) for t in ("--tensor-parallel-size", str(tensor)))
    if data > 1:
        place = parallelism.location
        fields.extend(field_at(t, place) for t in ("--data-parallel-size", str(data)))
    return fields


def _data(parallelism: Mapping | None) -> tuple[int, int, int]:
    """Data parallelism, its local share, and workers, by the chart's defaults."""
    if parallelism is None:
        return 1, 1, 1
    data, local, workers = (number(parallelism.get(k)) for k in ("data", "dataLocal", "workers"))
    if data is None:
        data = (local or 1) * (workers or 1)
    if local is None:
        local = data // workers if workers else data
    return data, max(local, 1), workers or max(data // max(local, 1), 1)


def _claim(
    server: PodServer, part: Mapping, parallelism: Mapping | None, root: Mapping
) -> GpuClaim:
    _, local, workers = _data(parallelism)
    tensor = number(parallelism.get("tensor")) if parallelism is not None else None
    claim = server.gpu
    kind = root.text("accelerator", "type") or "nvidia"
    if claim.count_source in ("", "CUDA_VISIBLE_DEVICES") and kind != "cpu":
        node = parallelism or part
        claim = replace(
            claim,
            count_per_pod=local * (tensor or 1),
            count_source="parallelism (dataLocal x tensor)",
            count_location=node.location,
            resource=_RESOURCES.get(kind, kind),
        )
    types = part.mapping("acceleratorTypes")
    labels = node_labels(part)
    if types is not None and types.text("labelKey"):
        values = tuple(n.text for n in types.items("labelValues") if isinstance(n, Scalar))
        labels = (*labels, *_known_label(types, values))
    place = server.found.location
    claim = narrowed(claim, dict(server.found.environment), place)
    pods = workers if root.text("multinode") == "true" else 1  # then a LeaderWorkerSet is made
    return replace(claim, pods_per_instance=pods, labels=(*claim.labels, *labels))


def _known_label(types: Mapping, values: tuple[str, ...]) -> tuple[GpuLabel, ...]:
    from pytest_llmserve.manifests.gpu_claims import is_gpu_label

    key = types.text("labelKey") or ""
    return (GpuLabel(key, values, types.location),) if is_gpu_label(key) and values else ()
