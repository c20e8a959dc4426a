"""KServe ``InferenceService`` and ``ServingRuntime``: each holds half of the argument list."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim
from pytest_llmserve.manifests.kubernetes_parts import (
    container_words,
    environment,
    image_field,
    mounted_files,
)
from pytest_llmserve.manifests.launch import GpuClaim, ModelSource
from pytest_llmserve.manifests.making import Made, add, argument_fields, model_field, number
from pytest_llmserve.manifests.model_sources import hub_id
from pytest_llmserve.manifests.pods import PodServer, add_server, object_name, pod_servers
from pytest_llmserve.manifests.secrets import masked_text
from pytest_llmserve.manifests.servers import image_start
from pytest_llmserve.manifests.text import shown
from pytest_llmserve.manifests.variables import mark_placeholders
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field

_RUNTIMES: Final = ("ServingRuntime", "ClusterServingRuntime")
_HUGGINGFACE: Final = "kserve huggingfaceserver"
_MOUNT: Final = "/mnt/models"
_FORMATS: Final = frozenset({"vllm", "huggingface", "llm", "safetensors"})


def read_service(root: Mapping, objects: Objects) -> None:
    """One ``InferenceService``, joined with its runtime where that is among the files."""
    predictor = root.mapping("spec", "predictor")
    if predictor is None:
        from pytest_llmserve.manifests.operators.ome import read_service as read_ome

        read_ome(root, objects)
        return
    if predictor.items("containers"):
        _custom(root, predictor, objects)
        return
    model = predictor.mapping("model") or predictor.mapping("huggingface")
    if model is None:
        names = ", ".join(predictor.entries)
        objects.gathering.ignored.append(f"InferenceService {object_name(root)}: {names}: no LLM")
        return
    runtime = _runtime(model, objects)
    if runtime is not None:
        _joined(root, predictor, model, runtime, objects)
    else:
        _built_in(root, predictor, model, objects)


def read_runtime(root: Mapping, objects: Objects) -> None:
    """A runtime by itself: half of the arguments, without model and GPUs."""
    spec = root.mapping("spec")
    if spec is None:
        return
    if spec.mapping("engineConfig") is not None or (root.text("apiVersion") or "").startswith(
        "ome"
    ):
        from pytest_llmserve.manifests.operators.ome import read_runtime as read_ome

        read_ome(root, objects)
        return
    users = [
        o
        for (kind, _), o in objects.named.items()
        if kind == "InferenceService"
        and o.text("spec", "predictor", "model", "runtime") == object_name(root)
    ]
    if users:
        name = object_name(root)
        objects.gathering.ignored.append(f"{name}: read with the InferenceService that uses it")
        return
    for server in pod_servers(spec, objects, f"{root.text('kind')}/{object_name(root)}"):
        add_server(server, objects, name=object_name(root), form=f"kserve {root.text('kind')}")


def _custom(root: Mapping, predictor: Mapping, objects: Objects) -> None:
    label = f"InferenceService/{object_name(root)}"
    servers = list(pod_servers(predictor, objects, label))
    for server in servers:
        name = object_name(root)
        add_server(
            server,
            objects,
            name=f"{name}/{server.container}" if len(servers) > 1 else name,
            form="kserve InferenceService",
            gpu=replace(server.gpu, pods_per_instance=_pods(predictor)),
            replicas=number(predictor.get("minReplicas")) or None,
        )


def _pods(predictor: Mapping) -> int:
    """Pods of one instance: ``workerSpec`` adds workers to the head."""
    worker = predictor.mapping("workerSpec")
    return 1 if worker is None else number(worker.get("pipelineParallelSize")) or 2


def _runtime(model: Mapping, objects: Objects) -> Mapping | None:
    name = model.text("runtime")
    return objects.find(_RUNTIMES, name) if name else None


def _storage(model: Mapping) -> tuple[Field | None, list[ModelSource]]:
    node = model.get("storageUri")
    if not isinstance(node, Scalar):
        return None, []
    source = masked_text(hub_id(shown(mark_placeholders(node.source()).text)))
    return model_field(node), [ModelSource(_MOUNT, source, "storageUri", node.location)]


def _joined(
    root: Mapping, predictor: Mapping, model: Mapping, runtime: Mapping, objects: Objects
) -> None:
    """The runtime's container with the service's arguments after its own."""
    problems: list[Problem] = []
    base = next(iter(runtime.mappings("spec", "containers")), None)
    spec = runtime.mapping("spec")
    if base is None or spec is None:
        _built_in(root, predictor, model, objects)
        return
    values, places = environment(base, {}, objects, problems)
    own, own_places = environment(model, values, objects, problems)
    command = container_words(base, "command", own, problems)
    arguments = container_words(base, "args", own, problems) or []
    added = container_words(model, "args", own, problems) or []
    if command and not arguments:
        command, arguments = [*command, *added], []
    reading = read_container(
        Container(
            image=image_field(model.get("image") or base.get("image")),
            entrypoint=command,
            arguments=[*arguments, *added] if arguments or not command else [],
            environment=own,
            location=model.location,
            files=mounted_files(base, spec, objects),
            beside=objects.gathering.beside,
        )
    )
    claim = resource_claim(model.mapping("resources") or base.mapping("resources"), problems)
    labels = (*node_labels(predictor), *node_labels(spec))
    _, sources = _storage(model)
    for found in reading.found:
        server = PodServer(
            "", found, replace(claim, labels=labels), (*problems, *reading.problems),
            {**places, **own_places}, tuple(sources),
        )  # fmt: skip
        add_server(
            server,
            objects,
            name=object_name(root),
            form="kserve InferenceService",
            gpu=replace(server.gpu, pods_per_instance=_pods(predictor)),
            replicas=number(predictor.get("minReplicas")) or None,
        )
    if not reading.found:
        objects.gathering.ignored.append(f"{object_name(root)}: {reading.ignored}")


def _built_in(root: Mapping, predictor: Mapping, model: Mapping, objects: Objects) -> None:
    """A runtime that is not among the files: KServe's own Hugging Face server, or unknown."""
    named = model.text("runtime")
    form = (model.text("modelFormat", "name") or "huggingface").lower()
    problems: list[Problem] = []
    arguments = argument_fields(model.get("args"))
    is_nim = "nim" in form.split("-")
    if is_nim:
        message = "a NIM chooses its engine and settings when it starts: they stand in no file"
        problems.append(Problem(ProblemKind.UNKNOWN, message, model.location))
    if not is_nim and form not in _FORMATS and image_start("", [f.text for f in arguments]) is None:
        message = f"InferenceService {object_name(root)}: format {form}: no LLM server"
        objects.gathering.ignored.append(message)
        return
    if named is not None and not is_nim:
        message = (
            f"the runtime {named!r} is not among the files: the arguments of its own container are"
            " not known; give its ServingRuntime beside this file"
        )
        problems.append(
            Problem(ProblemKind.UNRESOLVED, message, model.location, key="runtime", value=named)
        )
    values, places = environment(model, {}, objects, problems)
    reference, sources = _storage(model)
    backend = _backend(arguments)
    claim = resource_claim(model.mapping("resources"), problems)
    labels = node_labels(predictor)
    add(
        Made(
            name=object_name(root),
            form="kserve InferenceService",
            location=model.location,
            runtime="nim" if is_nim else "vllm" if backend != "huggingface" else "hf-transformers",
            entrypoint="nim" if is_nim else _HUGGINGFACE,
            fields=[*([reference] if reference else []), *arguments],
            image=image_field(model.get("image")),
            environment=values,
            places=places,
            gpu=replace(claim, labels=labels) if claim != GpuClaim() or labels else claim,
            replicas=number(predictor.get("minReplicas")) or None,
            problems=problems,
            sources=sources,
        ),
        objects.gathering,
    )


def _backend(fields: list[Field]) -> str:
    for index, item in enumerate(fields):
        flag, equals, value = item.text.partition("=")
        if flag == "--backend":
            return value if equals else "".join(f.text for f in fields[index + 1 : index + 2])
    return "auto"
