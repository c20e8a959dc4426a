"""Settings files of SGLang (``--config``) and TensorRT-LLM (extra options), by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import Made, add, model_field, number
from pytest_llmserve.manifests.vllm_config import mapping_entries

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field
    from pytest_llmserve.manifests.yaml_nodes import Mapping

_MODEL: Final = ("model-path", "model_path", "model")
_SERVER: Final = ("model_path", "model", "model_name")


def read_sglang(root: Mapping, objects: Objects) -> None:
    """SGLang's own settings file."""
    _add(root, "sglang", "sglang config", "sglang.launch_server", objects)


def read_trtllm(root: Mapping, objects: Objects) -> None:
    """TensorRT-LLM's options file."""
    _add(root, "tensorrt_llm", "tensorrt-llm config", "trtllm-serve", objects)


def _add(root: Mapping, runtime: str, form: str, entrypoint: str, objects: Objects) -> None:
    add(
        Made(
            name=objects.gathering.path.stem,
            form=form,
            location=root.location,
            runtime=runtime,
            entrypoint=entrypoint,
            config_entries=mapping_entries(root),
        ),
        objects.gathering,
    )


def read_slurm(root: Mapping, objects: Objects) -> None:
    """TensorRT-LLM's slurm benchmarks: ``server`` or worker settings, and ``hardware``."""
    parts = [("", root.mapping("server"))]
    workers = root.mapping("worker_config")
    if workers is not None:
        parts = [(role, workers.mapping(role)) for role in ("gen", "ctx")]
    for role, part in parts:
        if part is not None:
            _slurm(role, part, root, objects)


def _slurm(role: str, part: Mapping, root: Mapping, objects: Objects) -> None:
    model = None
    for holder in (part, root.mapping("environment"), root.mapping("model")):
        for key in _SERVER:
            model = model or model_field(holder.get(key) if holder is not None else None)
    name = objects.gathering.path.stem
    skipped = {*_SERVER, "port", "host"}
    fields: list[Field] = [model] if model is not None else []
    add(
        Made(
            name=f"{name}/{role}" if role else name,
            form="tensorrt-llm slurm",
            location=part.location,
            runtime="tensorrt_llm",
            entrypoint="trtllm-serve",
            fields=fields,
            gpu=_claim(part, root),
            config_entries=[e for e in mapping_entries(part) if e.key not in skipped],
        ),
        objects.gathering,
    )


def _claim(part: Mapping, root: Mapping) -> GpuClaim:
    tp = number(part.get("tp_size")) or number(part.get("tensor_parallel_size")) or 1
    pp = number(part.get("pp_size")) or number(part.get("pipeline_parallel_size")) or 1
    per_node = number(root.get("hardware", "gpus_per_node"))
    count, pods = tp * pp, 1
    if per_node and count > per_node and count % per_node == 0:
        count, pods = per_node, count // per_node
    return GpuClaim(
        count_per_pod=count,
        count_source="tp_size x pp_size",
        count_location=part.location,
        pods_per_instance=pods,
        resource="slurm gpu",
    )
