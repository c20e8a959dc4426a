"""llm-d-benchmark scenarios: a custom command by role, or fields that become flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import ContainerReading, read_script
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import (
    Made,
    add,
    argument_fields,
    flag,
    image_of,
    is_off,
    model_field,
    number,
    variables,
)
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.shell_state import State
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field
    from pytest_llmserve.verdict import Problem

_ROLES: Final = ("standalone", "decode", "prefill")
_FLAGS: Final = (
    ("maxModelLen", "--max-model-len"),
    ("blockSize", "--block-size"),
    ("gpuMemoryUtilization", "--gpu-memory-utilization"),
)
# Names that the project's commands use for fields of its schema.
_VARIABLES: Final = {
    "VLLM_MAX_MODEL_LEN": ("model", "maxModelLen"),
    "VLLM_BLOCK_SIZE": ("model", "blockSize"),
    "VLLM_GPU_MEMORY_UTILIZATION": ("model", "gpuMemoryUtilization"),
    "VLLM_ACCELERATOR_MEM_UTIL": ("model", "gpuMemoryUtilization"),
}


def read_scenarios(root: Mapping, objects: Objects) -> None:
    """Every role of every scenario."""
    shared = root.mapping("shared") or Mapping(root.file, root.line, root.column)
    for scenario in root.mappings("scenario"):
        for role in _ROLES:
            part = scenario.mapping(role) or shared.mapping(role)
            if part is not None and not is_off(part.get("enabled")):
                _role(role, part, scenario, objects)


def _role(role: str, part: Mapping, scenario: Mapping, objects: Objects) -> None:
    name = f"{scenario.text('name') or objects.gathering.path.stem}/{role}"
    claim = _claim(part, scenario)
    replicas = number(part.get("replicas"))
    command = part.get("vllm", "customCommand")
    values, places = variables(part.get("extraEnvVars"))
    if isinstance(command, Scalar) and command.text.strip():
        values = {**_known(part, scenario), **values}
        _custom(name, command, values, claim, replicas, objects)
        return
    if part.get("vllm") is None and part.get("parallelism") is None and replicas is None:
        return
    add(
        Made(
            name=name,
            form="llm-d-benchmark",
            location=part.location,
            fields=_fields(part, scenario),
            image=image_of(part.get("image") or scenario.get("images", "vllm")),
            environment=values,
            places=places,
            gpu=claim,
            replicas=replicas,
        ),
        objects.gathering,
    )


def _known(part: Mapping, scenario: Mapping) -> dict[str, str]:
    values = {n: v for n, p in _VARIABLES.items() if (v := scenario.text(*p)) is not None}
    tensor = part.text("parallelism", "tensor") or scenario.text("model", "tensorParallelSize")
    if tensor is not None:
        values.update(dict.fromkeys(("VLLM_TENSOR_PARALLELISM", "VLLM_TENSOR_PARALLEL"), tensor))
    return values


def _custom(
    name: str,
    command: Scalar,
    values: dict[str, str],
    claim: GpuClaim,
    replicas: int | None,
    objects: Objects,
) -> None:
    container = Container(
        image=None,
        entrypoint=None,
        arguments=[],
        environment=values,
        location=command.location,
        beside=objects.gathering.beside,
    )
    reading = ContainerReading()
    state = State(variables=dict(values), exported=frozenset(values))
    read_script(command.source(), state, container, reading)
    objects.gathering.problems.extend(reading.problems)
    for found in reading.found:
        server = PodServer("", found, claim)
        add_server(server, objects, name=name, form="llm-d-benchmark", replicas=replicas)
    if not reading.found:
        objects.gathering.ignored.append(f"{name}: {reading.ignored or 'no server'}")


def _fields(part: Mapping, scenario: Mapping) -> list[Field]:
    """``vllm serve MODEL`` with the fields that the template passes on."""
    node = scenario.get("model", "huggingfaceId") or scenario.get("model", "name")
    model = model_field(node)
    fields: list[Field] = [model] if model is not None else []
    settings = scenario.mapping("model")
    for key, name in _FLAGS:
        node = settings.get(key) if settings is not None else None
        if settings is not None and node is not None:
            fields.extend(flag(name, node, settings.keys[key]))
    tensor = part.get("parallelism", "tensor")
    if isinstance(tensor, Scalar):
        fields.append(field_at(f"--tensor-parallel-size={tensor.text}", tensor.location))
    fields.extend(argument_fields(part.get("vllm", "additionalFlags")))
    return fields


def _claim(part: Mapping, scenario: Mapping) -> GpuClaim:
    problems: list[Problem] = []
    labels = node_labels(scenario.mapping("affinity") or scenario)
    stated = resource_claim(part.mapping("resources"), problems)
    if stated.count_per_pod is not None:
        return GpuClaim(
            count_per_pod=stated.count_per_pod,
            count_source=stated.count_source,
            count_location=stated.count_location,
            pods_per_instance=_pods(part),
            resource=stated.resource,
            labels=labels,
        )
    pods = _pods(part)
    node = part.get("accelerator", "count")
    tensor = number(part.get("parallelism", "tensor"))
    tensor = tensor or number(scenario.get("model", "tensorParallelSize")) or 1
    local = number(part.get("parallelism", "dataLocal")) or 1
    count = number(node)
    return GpuClaim(
        count_per_pod=count if count is not None else tensor * local,
        count_source="accelerator.count" if count is not None else "parallelism",
        count_location=(node or part).location,
        pods_per_instance=pods,
        resource=scenario.text("accelerator", "resource") or "nvidia.com/gpu",
        labels=labels,
    )


def _pods(part: Mapping) -> int:
    """Pods of one instance: data ranks that do not fit into one pod."""
    data = number(part.get("parallelism", "data"))
    local = number(part.get("parallelism", "dataLocal"))
    return data // local if data and local and data > local else 1
