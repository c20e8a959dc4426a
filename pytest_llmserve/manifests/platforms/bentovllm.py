"""BentoVLLM: the generator's input, fields and ``cli_args``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.accelerators import accelerator_claim
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import (
    Made,
    add,
    argument_fields,
    flag,
    model_field,
    number,
    variables,
)
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field

_FLAGS: Final = (
    ("max_model_len", "--max-model-len"),
    ("tp", "--tensor-parallel-size"),
    ("kv_transfer_config", "--kv-transfer-config"),
    ("max_num_seqs", "--max-num-seqs"),
    ("gpu_memory_utilization", "--gpu-memory-utilization"),
)


def read_arguments(root: Mapping, objects: Objects) -> None:
    """The server that ``args:`` describes."""
    part = root.mapping("args")
    if part is None:
        return
    model = model_field(part.get("model_id"))
    fields: list[Field] = [*([model] if model else []), *argument_fields(part.get("cli_args"))]
    for key, name in _FLAGS:
        node = part.get(key)
        if node is not None:
            fields.extend(flag(name, node, part.keys[key]))
    values, places = variables(part.get("envs"))
    add(
        Made(
            name=part.text("name") or objects.gathering.path.stem,
            form="bentovllm",
            location=part.location,
            fields=fields,
            environment=values,
            places=places,
            gpu=_claim(part),
            is_typed=True,
        ),
        objects.gathering,
    )


def _claim(part: Mapping) -> GpuClaim:
    node = part.get("gpu_type")
    count = number(part.get("tp")) or 1
    if not isinstance(node, Scalar):
        return GpuClaim()
    return accelerator_claim(
        [f"{node.text}:{count}"], "cloud.google.com/gke-accelerator", node.location
    )
