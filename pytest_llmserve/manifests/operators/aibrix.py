"""AIBrix: ModelDeploymentTemplates, kept as a list in a ConfigMap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.accelerators import accelerator_claim
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import (
    Made,
    add,
    argument_fields,
    flag,
    flag_fields,
    image_of,
    model_field,
    number,
)
from pytest_llmserve.manifests.servers import VLLM_SERVE
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field

_ENGINES: Final = frozenset({"vllm", "sglang"})
_PARALLEL: Final = (
    ("tp", "tensor_parallel_size"),
    ("pp", "pipeline_parallel_size"),
    ("dp", "data_parallel_size"),
)
_QUANTIZATION: Final = (("weight", "quantization"), ("kv_cache", "kv_cache_dtype"))
_UNQUANTIZED: Final = frozenset({"bf16", "fp16", "bfloat16", "float16", "none", "auto"})


def read_template(item: Mapping, objects: Objects) -> None:
    """One template: engine, model source, accelerator, parallelism and engine arguments."""
    spec = item.mapping("spec")
    engine = spec.text("engine", "type") if spec is not None else None
    name = item.text("name") or "template"
    if spec is None or engine not in _ENGINES:
        objects.gathering.ignored.append(f"template {name}: engine {engine}: no LLM server")
        return
    model = model_field(spec.get("model_source", "uri"))
    arguments = spec.mapping("engine_args")
    fields = [*([model] if model else []), *argument_fields(spec.get("engine", "serve_args"))]
    fields.extend(_named(spec.mapping("parallelism"), _PARALLEL))
    fields.extend(_named(spec.mapping("quantization"), _QUANTIZATION))
    if arguments is not None:
        written = {f.text.partition("=")[0].lstrip("-").replace("-", "_") for f in fields}
        fields.extend(flag_fields(arguments, skip=sorted(written)))
    add(
        Made(
            name=name,
            form="aibrix template",
            location=item.location,
            runtime=engine,
            entrypoint=VLLM_SERVE if engine == "vllm" else "sglang.launch_server",
            fields=fields,
            image=image_of(spec.get("engine", "image")),
            gpu=_claim(spec.mapping("accelerator")),
            is_deployed=item.text("status") in (None, "active"),
            is_typed=True,
        ),
        objects.gathering,
    )


def _named(mapping: Mapping | None, names: tuple[tuple[str, str], ...]) -> list[Field]:
    fields: list[Field] = []
    for key, name in names:
        node = mapping.get(key) if mapping is not None else None
        is_plain = isinstance(node, Scalar) and node.text.lower() in _UNQUANTIZED
        if mapping is not None and node is not None and not is_plain:
            fields.extend(flag(name, node, mapping.keys[key]))
    return fields


def _claim(accelerator: Mapping | None) -> GpuClaim:
    node = accelerator.get("type") if accelerator is not None else None
    if accelerator is None or not isinstance(node, Scalar):
        return GpuClaim()
    count, size = number(accelerator.get("count")), number(accelerator.get("vram_gb"))
    kind = f"{node.text}-{size}GB" if size else node.text
    return accelerator_claim([f"{kind}:{count or 1}"], "accelerator.type", node.location)
