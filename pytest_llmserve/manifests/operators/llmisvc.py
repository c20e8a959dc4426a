"""KServe ``LLMInferenceService``: fields become flags, the rest rides in an environment variable.

What the controller starts is in config/llmisvcconfig of kserve/kserve: ``vllm serve /mnt/models``
with flags from ``spec.parallelism``, then ``$VLLM_ADDITIONAL_ARGS`` (evaluated by a shell), then
the container's ``args``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container, Found, finished
from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim
from pytest_llmserve.manifests.kubernetes_parts import (
    container_words,
    environment,
    image_field,
    mounted_files,
)
from pytest_llmserve.manifests.launch import ModelSource
from pytest_llmserve.manifests.making import flag, model_field, number, split_fields
from pytest_llmserve.manifests.model_sources import hub_id
from pytest_llmserve.manifests.pods import PodServer, add_server, object_name
from pytest_llmserve.manifests.secrets import masked_text
from pytest_llmserve.manifests.servers import VLLM_SERVE
from pytest_llmserve.manifests.text import shown
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field

_MOUNT: Final = "/mnt/models"
_FLAGS: Final = (
    ("tensor", "tensor-parallel-size"),
    ("pipeline", "pipeline-parallel-size"),
    ("data", "data-parallel-size"),
    ("dataLocal", "data-parallel-size-local"),
    ("expert", "enable-expert-parallel"),
)
_CONFIG: Final = "LLMInferenceServiceConfig"
_ADDED: Final = "VLLM_ADDITIONAL_ARGS"


def read_llm_service(root: Mapping, objects: Objects) -> None:
    """The servers of one service: decode (or the only one) and prefill."""
    spec = root.mapping("spec")
    if spec is None:
        return
    is_config = root.text("kind") == _CONFIG
    bases = _bases(spec, objects, root)
    roles: list[tuple[str, Mapping, tuple[str, ...]]] = [("", spec, ())]
    prefill = spec.mapping("prefill")
    if prefill is not None:
        roles = [("decode", spec, ()), ("prefill", prefill, ("prefill",))]
    for role, part, path in roles:
        under = [base for base in (b.mapping("spec", *path) for b in bases) if base is not None]
        if is_config and not part.items("template", "containers"):
            continue
        name = object_name(root)
        _role(f"{name}/{role}" if role else name, root, part, under, objects)


def _bases(spec: Mapping, objects: Objects, root: Mapping) -> list[Mapping]:
    found = []
    for reference in spec.mappings("baseRefs"):
        name = reference.text("name") or ""
        base = objects.find((_CONFIG,), name)
        if base is not None:
            found.append(base)
            continue
        message = (
            f"baseRefs names {name!r}, which is not among the files: its command and settings are"
            " not known; give that LLMInferenceServiceConfig beside this file"
        )
        objects.gathering.problems.append(
            Problem(ProblemKind.UNRESOLVED, message, reference.location, key="baseRefs", value=name)
        )
    return found


def _main(part: Mapping, key: str = "template") -> Mapping | None:
    containers = list(part.mappings(key, "containers"))
    return next((c for c in containers if c.text("name") == "main"), None) or (
        containers[0] if containers else None
    )


def _first(key: str, *containers: Mapping | None) -> Mapping | None:
    return next((c for c in containers if c is not None and c.get(key) is not None), None)


def _role(name: str, root: Mapping, part: Mapping, bases: list[Mapping], objects: Objects) -> None:
    problems: list[Problem] = []
    layers = [_main(part), *(_main(base) for base in reversed(bases))]
    own = layers[0] or root
    values: dict[str, str] = {}
    places = {}
    for layer in reversed(layers):
        if layer is not None:
            values, more = environment(layer, values, objects, problems)
            places.update(more)
    spec = root.mapping("spec") or root
    with_command = _first("command", *layers)
    image = _first("image", *layers)
    resources = _first("resources", *layers)
    claim = resource_claim(resources.mapping("resources") if resources else None, problems)
    pod = part.mapping("template") or part
    model, sources = _model(spec, root)
    container = Container(
        image=image_field(image.get("image")) if image is not None else None,
        entrypoint=container_words(with_command, "command", values, problems)
        if with_command is not None
        else None,
        arguments=[],
        environment=values,
        location=own.location,
        files=mounted_files(own, pod, objects),
        beside=objects.gathering.beside,
    )
    if with_command is not None:
        with_args = _first("args", *layers)
        arguments = container_words(with_args, "args", values, problems) if with_args else None
        reading = read_container(replace(container, arguments=arguments or []))
        problems.extend(reading.problems)
        founds = reading.found
    else:
        founds = [_built(part, own, model, values, container, problems)]
    for found in founds:
        gpu = replace(claim, labels=node_labels(pod), pods_per_instance=_pods(part, spec))
        server = PodServer("", found, gpu, tuple(problems), places, tuple(sources))
        add_server(
            server,
            objects,
            name=name,
            form="kserve LLMInferenceService",
            replicas=number(part.get("replicas")),
        )
    if part.mapping("worker") is not None:
        objects.gathering.ignored.append(f"{name} worker: pods of the same server")


def _built(
    part: Mapping,
    own: Mapping,
    model: Field | None,
    values: dict[str, str],
    container: Container,
    problems: list[Problem],
) -> Found:
    """What the controller's own template starts."""
    fields: list[Field] = [] if model is None else [model]
    parallelism = part.mapping("parallelism")
    if parallelism is not None:
        for key, name in _FLAGS:
            node = parallelism.get(key)
            if isinstance(node, Scalar) and node.text != "false":
                fields.extend(_two(flag(name, node, parallelism.keys[key])))
    fields.extend(_additional(own, values))
    fields.extend(container_words(own, "args", values, problems) or [])
    found = Found(
        runtime="vllm",
        entrypoint=VLLM_SERVE,
        fields=tuple(fields),
        environment=values,
        location=own.location,
        image=container.image,
    )
    return finished(found, container)


def _two(fields: list[Field]) -> list[Field]:
    """``--flag=value`` as the template writes it: two words."""
    from pytest_llmserve.manifests.words import field as field_at

    result: list[Field] = []
    for item in fields:
        name, equals, value = item.text.partition("=")
        parts = [name, value] if equals else [name]
        result.extend(field_at(text, item.location) for text in parts)
    return result


def _additional(own: Mapping, values: dict[str, str]) -> list[Field]:
    """``VLLM_ADDITIONAL_ARGS`` as the shell of the template splits it."""
    for entry in own.mappings("env"):
        node = entry.get("value")
        if entry.text("name") == _ADDED and isinstance(node, Scalar):
            return split_fields(node.source())
    text = values.get(_ADDED)
    if text is None:
        return []
    from pytest_llmserve.manifests.text import SourceText

    return split_fields(SourceText.at_place(text, own.location))


def _model(spec: Mapping, root: Mapping) -> tuple[Field | None, list[ModelSource]]:
    node = spec.get("model", "uri")
    if not isinstance(node, Scalar):
        return None, []
    source = masked_text(hub_id(shown(node.text)))
    sources = [ModelSource(_MOUNT, source, "spec.model.uri", node.location)]
    name = spec.text("model", "name")
    if name:
        sources.append(ModelSource(source, name, "spec.model.name", node.location))
    return model_field(node), sources


def _pods(part: Mapping, spec: Mapping) -> int:
    """Pods of one instance: data / dataLocal, or the stages of the pipeline."""
    if part.mapping("worker") is None:
        return 1
    parallelism = part.mapping("parallelism") or spec.mapping("parallelism")
    if parallelism is None:
        return 1
    data, local = number(parallelism.get("data")), number(parallelism.get("dataLocal"))
    if data and local:
        return max(data // local, 1)
    return number(parallelism.get("pipeline")) or 1
