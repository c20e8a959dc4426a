"""KAITO: Workspace, InferenceSet and MultiRoleInference; vLLM's settings are in a ConfigMap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.embedded import embedded
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.making import Made, add, flag_fields, number
from pytest_llmserve.manifests.pods import add_server, object_name, pod_servers
from pytest_llmserve.manifests.text import unknown_names
from pytest_llmserve.manifests.variables import mark_placeholders
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field

# Presets -> hub ids: presets/workspace/models/supported_models.yaml and model.go files of
# kaito-project/kaito. A preset with a slash is a hub id itself.
_PRESETS: Final = {
    "deepseek-r1-0528": "deepseek-ai/DeepSeek-R1-0528",
    "deepseek-r1-distill-llama-8b": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    "deepseek-r1-distill-qwen-14b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
    "deepseek-v3-0324": "deepseek-ai/DeepSeek-V3-0324",
    "falcon-7b": "tiiuae/falcon-7b",
    "falcon-7b-instruct": "tiiuae/falcon-7b-instruct",
    "falcon-40b": "tiiuae/falcon-40b",
    "falcon-40b-instruct": "tiiuae/falcon-40b-instruct",
    "gemma-3-4b-instruct": "google/gemma-3-4b-it",
    "gemma-3-27b-instruct": "google/gemma-3-27b-it",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "llama-3.1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "llama-3.3-70b-instruct": "meta-llama/Llama-3.3-70B-Instruct",
    "mistral-7b": "mistralai/Mistral-7B-v0.3",
    "mistral-7b-instruct": "mistralai/Mistral-7B-Instruct-v0.3",
    "phi-2": "microsoft/phi-2",
    "phi-3-mini-4k-instruct": "microsoft/Phi-3-mini-4k-instruct",
    "phi-3-mini-128k-instruct": "microsoft/Phi-3-mini-128k-instruct",
    "phi-3-medium-4k-instruct": "microsoft/Phi-3-medium-4k-instruct",
    "phi-3-medium-128k-instruct": "microsoft/Phi-3-medium-128k-instruct",
    "phi-3.5-mini-instruct": "microsoft/Phi-3.5-mini-instruct",
    "phi-4": "microsoft/phi-4",
    "phi-4-mini-instruct": "microsoft/Phi-4-mini-instruct",
    "qwen2.5-coder-7b-instruct": "Qwen/Qwen2.5-Coder-7B-Instruct",
    "qwen2.5-coder-32b-instruct": "Qwen/Qwen2.5-Coder-32B-Instruct",
}


def read_kaito(root: Mapping, objects: Objects) -> None:
    """Servers of one KAITO object."""
    kind = root.text("kind")
    if kind == "MultiRoleInference":
        _roles(root, objects)
        return
    spec = root.mapping("spec", "template") if kind == "InferenceSet" else root
    if spec is None:
        return
    inference = spec.mapping("inference")
    if inference is None:
        objects.gathering.ignored.append(f"{kind} {object_name(root)}: no inference (tuning)")
        return
    template = inference.mapping("template", "spec") or inference.mapping("template")
    resource = spec.mapping("resource")
    claim = _machines(resource)
    replicas = number(root.get("spec", "replicas"))
    if template is not None and template.items("containers"):
        for server in pod_servers(template, objects, f"{kind}/{object_name(root)}"):
            gpu = server.gpu if server.gpu.labels else replace(server.gpu, labels=claim.labels)
            add_server(
                server,
                objects,
                name=object_name(root),
                form=f"kaito {kind}",
                gpu=gpu,
                replicas=replicas,
            )
        return
    model = _preset(inference.get("preset", "name"))
    _add(object_name(root), root, model, inference.text("config"), claim, replicas, objects)


def _roles(root: Mapping, objects: Objects) -> None:
    model = _preset(root.get("spec", "model", "name"))
    for role in root.mappings("spec", "roles"):
        name = f"{object_name(root)}/{role.text('type') or 'role'}"
        config = role.text("inferenceConfig") or role.text("config")
        replicas = number(role.get("replicas"))
        _add(name, role, model, config, _machines(role), replicas, objects)


def _add(
    name: str,
    node: Mapping,
    model: Field | None,
    config: str | None,
    claim: GpuClaim,
    replicas: int | None,
    objects: Objects,
) -> None:
    problems: list[Problem] = []
    flags = _config(config, node, objects, problems)
    for label in claim.labels:
        names = [n for text in label.alternatives for n in unknown_names(text)]
        if names:
            message = f"instanceType is {names[0]}: it has no value here, so the GPU is not known"
            problems.append(
                Problem(ProblemKind.UNRESOLVED, message, label.location, value=names[0])
            )
            claim = GpuClaim(pods_per_instance=claim.pods_per_instance)
    add(
        Made(
            name=name,
            form="kaito",
            location=node.location,
            fields=[*([model] if model else []), *flags],
            gpu=claim,
            replicas=replicas,
            is_typed=True,
            problems=problems,
        ),
        objects.gathering,
    )


def _preset(node: object) -> Field | None:
    if not isinstance(node, Scalar):
        return None
    return field_at(_PRESETS.get(node.text.lower(), node.text), node.location)


def _machines(resource: Mapping | None) -> GpuClaim:
    """Whole machines of an instance type, or one MIG slice of them."""
    if resource is None:
        return GpuClaim()
    labels: tuple[GpuLabel, ...] = ()
    node = resource.get("instanceType")
    if isinstance(node, Scalar):
        text = mark_placeholders(node.source()).text
        labels = (GpuLabel("instanceType", (text,), node.location),)
    profile = resource.get("partition", "profile")
    if isinstance(profile, Scalar):
        return GpuClaim(
            count_per_pod=1,
            count_source="resource.partition",
            count_location=profile.location,
            resource=f"nvidia.com/mig-{profile.text}",
            labels=labels,
        )
    return GpuClaim(
        count_source="instanceType",
        is_whole_machine=True,
        pods_per_instance=number(resource.get("count")) or 1,
        labels=labels,
    )


def _config(
    name: str | None, node: Mapping, objects: Objects, problems: list[Problem]
) -> list[Field]:
    """Flags of ``vllm:`` in the ConfigMap's ``inference_config.yaml``."""
    if name is None:
        return []
    data = objects.config_maps.get(name)
    if data is None:
        found = objects.find(("ConfigMap",), name)
        data = found.mapping("data") if found is not None else None
    text = data.get("inference_config.yaml") if data is not None else None
    if not isinstance(text, Scalar):
        message = (
            f"config {name!r}: this ConfigMap is not among the files, so its settings are open"
        )
        problems.append(Problem(ProblemKind.UNRESOLVED, message, node.location, value=name))
        return []
    for document in embedded(text):
        if isinstance(document.root, Mapping):
            settings = document.root.mapping("vllm")
            return flag_fields(settings) if settings is not None else []
        if document.error is not None:
            message = f"inference_config.yaml: {document.error}"
            problems.append(Problem(ProblemKind.UNREADABLE, message, text.location))
    return []
