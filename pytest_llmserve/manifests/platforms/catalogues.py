"""Model catalogues: GPUStack's sets of specs, LocalAI's model files and gallery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.embedded import embedded
from pytest_llmserve.manifests.making import (
    Made,
    add,
    argument_fields,
    flag,
    model_field,
    number,
    variables,
)
from pytest_llmserve.manifests.servers import VLLM_SERVE
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field

_SOURCES: Final = (
    *("huggingface_repo_id", "model_scope_model_id", "ollama_library_model_name", "local_path"),
)
_RUNTIMES: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llama-cpp": "llamacpp",
    "llama-box": "llama-box",
    "ascend-mindie": "mindie",
    "mindie": "mindie",
}
# Keys of LocalAI's vLLM backend -> flags.
_LOCALAI: Final = (
    ("context_size", "--max-model-len"),
    ("max_model_len", "--max-model-len"),
    ("gpu_memory_utilization", "--gpu-memory-utilization"),
    ("tensor_parallel_size", "--tensor-parallel-size"),
    ("quantization", "--quantization"),
    ("dtype", "--dtype"),
    ("enforce_eager", "--enforce-eager"),
    ("trust_remote_code", "--trust-remote-code"),
)


def read_gpustack(root: Mapping, objects: Objects) -> None:
    """Every spec of every model set; a catalogue deploys nothing by itself."""
    sets = list(root.mappings("model_sets")) or [root]
    for model_set in sets:
        for spec in model_set.mappings("specs"):
            _spec(model_set.text("name") or "model", spec, objects)


def _spec(name: str, spec: Mapping, objects: Objects) -> None:
    backend = (spec.text("backend") or "vLLM").lower()
    runtime = _RUNTIMES.get(backend, backend)
    node = next((n for key in _SOURCES if (n := spec.get(key)) is not None), None)
    if node is None:
        objects.gathering.ignored.append(f"{name}: a spec without a model")
        return
    model = model_field(node)
    values, places = variables(spec.get("env"))
    quantization = spec.text("quantization")
    add(
        Made(
            name=f"{name}/{quantization}" if quantization else name,
            form="gpustack catalogue",
            location=spec.location,
            runtime=runtime,
            entrypoint=VLLM_SERVE if runtime == "vllm" else runtime,
            fields=[*([model] if model else []), *argument_fields(spec.get("backend_parameters"))],
            environment=values,
            places=places,
            replicas=number(spec.get("replicas")),
            is_deployed=False,
        ),
        objects.gathering,
    )


def read_localai(root: Mapping, objects: Objects) -> None:
    """A LocalAI model file, or an entry of its gallery with the file inside."""
    inner = root.get("config_file")
    if isinstance(inner, Scalar):
        for document in embedded(inner):
            if isinstance(document.root, Mapping):
                _localai(root.text("name"), document.root, objects)
        return
    _localai(None, root, objects)


def _localai(name: str | None, root: Mapping, objects: Objects) -> None:
    backend = (root.text("backend") or "llama-cpp").lower()
    runtime = _RUNTIMES.get(backend, backend)
    model = model_field(root.get("parameters", "model"))
    if model is None:
        objects.gathering.ignored.append(f"{root.text('name') or name}: no parameters.model")
        return
    fields: list[Field] = [model]
    for key, option in _LOCALAI if runtime == "vllm" else ():
        node = root.get(key)
        if node is not None:
            fields.extend(flag(option, node, root.keys[key]))
    add(
        Made(
            name=root.text("name") or name or objects.gathering.path.stem,
            form="localai",
            location=root.location,
            runtime=runtime,
            entrypoint=VLLM_SERVE if runtime == "vllm" else runtime,
            fields=fields,
            is_typed=True,
        ),
        objects.gathering,
    )
