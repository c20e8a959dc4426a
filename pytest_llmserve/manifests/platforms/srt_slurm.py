"""srt-slurm recipes (InferenceX): settings by role under ``backend.<engine>_config``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.making import Made, add, flag_fields, model_field, number, variables
from pytest_llmserve.manifests.servers import VLLM_SERVE
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects

_ENGINES: Final = (
    ("vllm_config", "vllm"),
    ("sglang_config", "sglang"),
    ("trtllm_config", "tensorrt_llm"),
)
_ROLES: Final = (("prefill", "prefill"), ("decode", "decode"), ("aggregated", "agg"))
_ENTRY: Final = {
    "vllm": VLLM_SERVE,
    "sglang": "sglang.launch_server",
    "tensorrt_llm": "trtllm-serve",
}


def read_recipe(root: Mapping, objects: Objects) -> None:
    """A server for each role that has settings."""
    backend = root.mapping("backend")
    if backend is None:
        return
    for key, runtime in _ENGINES:
        config = backend.mapping(key)
        if config is not None:
            for role, short in _ROLES:
                settings = config.mapping(role)
                if settings is not None:
                    _role(role, short, runtime, settings, root, objects)


def _role(
    role: str, short: str, runtime: str, settings: Mapping, root: Mapping, objects: Objects
) -> None:
    backend = root.mapping("backend") or root
    model = model_field(root.get("model", "path")) or model_field(settings.get("model-path"))
    flags = flag_fields(settings)
    if runtime != "vllm":  # these take no --no-flag: what is false is left out
        flags = [item for item in flags if not item.text.startswith("--no-")]
    if model is not None and runtime == "sglang":
        head = [field_at("--model-path", model.location), model]
    else:
        head = [model] if model is not None else []
    values, places = variables(backend.get(f"{role}_environment"))
    name = root.text("name") or objects.gathering.path.stem
    add(
        Made(
            name=f"{name}/{role}",
            form="srt-slurm recipe",
            location=settings.location,
            runtime=runtime,
            entrypoint=_ENTRY[runtime],
            fields=[*head, *flags],
            environment=values,
            places=places,
            gpu=_claim(root.mapping("resources"), role, short),
            replicas=number(root.get("resources", f"{short}_workers")),
            is_typed=True,
        ),
        objects.gathering,
    )


def _claim(resources: Mapping | None, role: str, short: str) -> GpuClaim:
    """GPUs of one worker: stated, or nodes x GPUs a node / workers."""
    if resources is None:
        return GpuClaim()
    kind = resources.get("gpu_type")
    labels: tuple[GpuLabel, ...] = ()
    if isinstance(kind, Scalar):
        labels = (GpuLabel("gpu_type", (kind.text,), kind.location),)
    per_node = number(resources.get("gpus_per_node"))
    workers = number(resources.get(f"{short}_workers"))
    nodes = number(resources.get(f"{short}_nodes"))
    count = number(resources.get(f"gpus_per_{role}")) or number(resources.get(f"gpus_per_{short}"))
    source = f"gpus_per_{role}"
    if count is None and per_node and nodes:
        count, source = per_node * nodes // (workers or 1), "nodes x gpus_per_node / workers"
    pods = 1
    if count and per_node and count > per_node and count % per_node == 0:
        count, pods = per_node, count // per_node
    return GpuClaim(
        count_per_pod=count,
        count_source=source,
        count_location=resources.location,
        pods_per_instance=pods,
        resource="slurm gpu",
        labels=labels,
    )
