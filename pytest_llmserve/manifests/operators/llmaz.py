"""llmaz: OpenModel, Playground, Service and BackendRuntime, joined by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.making import (
    Made,
    add,
    argument_fields,
    image_of,
    model_field,
    number,
    variables,
)
from pytest_llmserve.manifests.pods import object_name
from pytest_llmserve.manifests.servers import VLLM_SERVE
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field

_BACKENDS: Final = {"tgi": "tgi", "llamacpp": "llamacpp", "sglang": "sglang", "vllm": "vllm"}


def read_playground(root: Mapping, objects: Objects) -> None:
    """A Playground: models by claim, a backend (vLLM unless named), GPUs by the model's flavor."""
    models = _claimed(root)
    if not models:
        objects.gathering.ignored.append(f"Playground {object_name(root)}: claims no model")
        return
    problems: list[Problem] = []
    main = next((name for name, role in models if role in ("main", "leader")), models[0][0])
    draft = next((name for name, role in models if role == "draft"), None)
    backend = root.mapping("spec", "backendRuntimeConfig")
    named = (backend.text("backendName") if backend is not None else None) or "vllm"
    fields = [f for f in (_model(main, objects, problems, root),) if f is not None]
    fields.extend(argument_fields(backend.get("args") if backend is not None else None))
    if draft is not None and (path := _model(draft, objects, problems, root)) is not None:
        message = (
            f"the draft model {path.text} is passed on by arguments of the {named} BackendRuntime,"
            " which are not read: what it takes of the memory is not known"
        )
        problems.append(Problem(ProblemKind.UNRESOLVED, message, path.location, value=path.text))
    values, places = variables(backend.get("envs") if backend is not None else None)
    runtime = _BACKENDS.get(named, named)
    message = f"the {named} BackendRuntime's own arguments are not in this file"
    if objects.find(("BackendRuntime",), named) is None:
        problems.append(Problem(ProblemKind.WARNING, message, root.location))
    add(
        Made(
            name=object_name(root),
            form="llmaz Playground",
            location=root.location,
            runtime=runtime,
            entrypoint=VLLM_SERVE if runtime == "vllm" else runtime,
            fields=fields,
            environment=values,
            places=places,
            gpu=_flavor(main, objects, backend, problems),
            replicas=number(root.get("spec", "replicas")),
            problems=problems,
        ),
        objects.gathering,
    )


def read_service(root: Mapping, objects: Objects) -> None:
    """A Service: a LeaderWorkerSet's template of one's own."""
    template = root.mapping("spec", "workloadTemplate")
    if template is None:
        objects.gathering.ignored.append(f"Service (line {root.line})")
        return
    from pytest_llmserve.manifests.kubernetes import read_group

    read_group(root, template, objects, form="llmaz Service")


def read_backend(root: Mapping, objects: Objects) -> None:
    """A BackendRuntime by itself: the command, with the model left to whoever uses it."""
    spec = root.mapping("spec")
    configs = list(spec.mappings("recommendedConfigs")) if spec is not None else []
    configs = configs or (list(spec.mappings("configs")) if spec is not None else [])
    if spec is None or not configs:
        objects.gathering.ignored.append(f"BackendRuntime {object_name(root)}: no configs")
        return
    from pytest_llmserve.manifests.servers import find_start

    command = argument_fields(spec.get("command"))
    start = find_start([item.text for item in command])
    default = next((c for c in configs if c.text("name") == "default"), configs[0])
    add(
        Made(
            name=object_name(root),
            form="llmaz BackendRuntime",
            location=spec.location,
            runtime=start.runtime if start is not None else object_name(root),
            entrypoint=start.entrypoint if start is not None else object_name(root),
            fields=argument_fields(default.get("args")),
            image=image_of(spec.get("image")),
        ),
        objects.gathering,
    )


def read_open_model(root: Mapping, objects: Objects) -> None:
    """A model by itself starts nothing."""
    objects.gathering.ignored.append(f"OpenModel {object_name(root)}: a model, no server")


def _claimed(root: Mapping) -> list[tuple[str, str]]:
    single = root.text("spec", "modelClaim", "modelName")
    if single:
        return [(single, "main")]
    claims = root.mappings("spec", "modelClaims", "models")
    return [(c.text("name") or "?", c.text("role") or "main") for c in claims]


def _model(name: str, objects: Objects, problems: list[Problem], root: Mapping) -> Field | None:
    found = objects.find(("OpenModel", "Model"), name)
    if found is None:
        message = f"the OpenModel {name!r} is not among the files: what it loads is not known"
        problems.append(Problem(ProblemKind.UNRESOLVED, message, root.location, value=name))
        return None
    node = found.get("spec", "source", "modelHub", "modelID")
    file = found.text("spec", "source", "modelHub", "filename")
    if isinstance(node, Scalar):
        return field_at(f"{node.text}#{file}" if file else node.text, node.location)
    return model_field(found.get("spec", "source", "uri"))


def _flavor(
    name: str, objects: Objects, backend: Mapping | None, problems: list[Problem]
) -> GpuClaim:
    own = resource_claim(backend.mapping("resources") if backend is not None else None, problems)
    model = objects.find(("OpenModel", "Model"), name)
    flavors = list(model.mappings("spec", "inferenceConfig", "flavors")) if model else []
    if not flavors:
        return own
    first = flavors[0]
    limits = first.mapping("limits") or first.mapping("requests")
    holder = Mapping(first.file, first.line, first.column)
    if limits is not None:
        holder.entries = {"limits": limits}
    claim = own if own.count_per_pod is not None else resource_claim(holder, problems)
    names = tuple(f.text("name") or "?" for f in flavors)
    labels: tuple[GpuLabel, ...] = (GpuLabel("flavors", names, first.location),)
    labels = node_labels(first) or labels
    return GpuClaim(
        count_per_pod=claim.count_per_pod,
        count_source=claim.count_source,
        count_location=claim.count_location,
        resource=claim.resource,
        labels=labels,
    )
