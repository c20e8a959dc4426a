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
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.pods import PodServer
    from pytest_llmserve.manifests.words import Field
    from pytest_llmserve.manifests.yaml_nodes import Node
    from pytest_llmserve.verdict import Location

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
    """What the chart makes of ``modelArtifacts.uri``, the values that it names itself put in."""
    node = root.get("modelArtifacts", "uri")
    if not isinstance(node, Scalar):
        return model_field(root.get("modelArtifacts", "name")), None
    text = _VALUE.sub(lambda match: _looked_up(root, match), shown(node.text)).replace('"', "")
    mount = root.text("modelArtifacts", "mountPath") or _MOUNT
    scheme, _, path = text.partition("://")
    if scheme == "pvc" and "/" in path:
        text = f"{mount}/{path.partition('/')[2]}"
    elif scheme == "pvc+hf":
        text = "/".join(path.split("/")[-2:])
    plain = Scalar(node.file, node.line, node.column, text, "'", None, node.line, node.lines)
    name = root.text("modelArtifacts", "name")
    path = text if scheme == "pvc" else mount
    source = ModelSource(path, name, "modelArtifacts.name", node.location) if name else None
    return model_field(plain), source


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
    parallelism = part.mapping("parallelism")
    containers = tuple(_with_command(c, model, parallelism) for c in part.mappings("containers"))
    data, local, _ = _data(parallelism)
    tensor = parallelism.text("tensor") if parallelism is not None else None
    injected = {"TP_SIZE": tensor or "1", "DP_SIZE": str(data), "DP_SIZE_LOCAL": str(local)}
    for server in pod_servers(part, objects, role, injected, containers=containers):
        sources = server.sources if source is None else (*server.sources, source)
        server = replace(server, sources=sources)
        add_server(
            server,
            objects,
            name=role,
            form="modelservice values",
            gpu=_claim(server, part, parallelism, root),
            replicas=number(part.get("replicas")),
            is_deployed=is_on,
        )


def _with_command(container: Mapping, model: Field | None, parallelism: Mapping | None) -> Mapping:
    """The container as the chart writes it: ``vllmServe`` and ``imageDefault`` put words first."""
    kind = container.text("modelCommand") or "custom"
    if kind == "custom" or model is None:
        return container
    result = Mapping(container.file, container.line, container.column)
    result.entries, result.keys = dict(container.entries), dict(container.keys)
    added = [_word(text, place) for text, place in _parallel(parallelism)]
    name = _word(model.text, model.location)
    if kind == "vllmServe":
        words = [_word("vllm", model.location), _word("serve", model.location), name, *added]
    else:
        words = [_word("--model", model.location), name, *added, *container.items("args")]
    key = "command" if kind == "vllmServe" else "args"
    sequence = Sequence(model.location.file, model.location.line, model.location.column or 1)
    sequence.items = words
    result.entries[key] = sequence
    result.keys.setdefault(key, model.location)
    return result


def _word(text: str, place: Location) -> Node:
    return Scalar(place.file, place.line, place.column or 1, text, "'", None, place.line, [])


def _parallel(parallelism: Mapping | None) -> list[tuple[str, Location]]:
    """The flags that the chart derives; sizes of one are left out."""
    if parallelism is None:
        return []
    data, local, _ = _data(parallelism)
    sizes = (
        ("tensor", "--tensor-parallel-size", number(parallelism.get("tensor")) or 1),
        ("data", "--data-parallel-size", data),
        ("dataLocal", "--data-parallel-size-local", local),
    )
    words: list[tuple[str, Location]] = []
    for key, flag, size in sizes:
        if size > 1:
            place = parallelism.keys.get(key, parallelism.location)
            words.extend([(flag, place), (str(size), place)])
    return words


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
