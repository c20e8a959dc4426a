"""Helm values of any chart: blocks with an engine's image, arguments, model and resources.

What a chart makes of its values stands in its templates. Arguments that are written out are read
as they stand; keys such as ``maxModelLen`` are taken for the flag of that name, with the warning
that only the rendered chart can tell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container, Found, finished
from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.making import (
    argument_fields,
    flag,
    image_of,
    is_off,
    model_field,
    number,
    variables,
)
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.servers import VLLM_SERVE, image_start, looks_like_engine
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field
    from pytest_llmserve.manifests.yaml_nodes import Node

_ENGINES: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tgi": "tgi",
    "text-generation-inference": "tgi",
    "llamacpp": "llamacpp",
    "llama-cpp": "llamacpp",
    "llama.cpp": "llamacpp",
    "ollama": "ollama",
    "trtllm": "tensorrt_llm",
    "tensorrt-llm": "tensorrt_llm",
}
_ENTRYPOINTS: Final = {
    "vllm": VLLM_SERVE,
    "sglang": "sglang.launch_server",
    "tensorrt_llm": "trtllm-serve",
}
_ARGUMENTS: Final = (
    *("args", "extraArgs", "extra_args", "extraCmdArgs", "vllmArgs", "serverArgs", "engineArgs"),
    *("cliArgs", "additionalArgs", "commandArgs", "cmdArgs", "serverExtraArgs", "containerArgs"),
)
_NAMED: Final = ("framework", "engine", "backend", "inferenceEngine")
_MODELS: Final = (
    *("model", "modelId", "modelID", "model_id", "modelName", "model_name", "modelPath"),
    *("modelUri", "modelURL", "modelRepo", "huggingfaceId", "hfModelId", "LLM_MODEL_ID", "models"),
)
_MODEL_KEYS: Final = (
    "id",
    "name",
    "repo",
    "repository",
    "modelId",
    "model_id",
    "uri",
    "path",
    "pull",
    "run",
)
_VARIABLES: Final = ("LLM_MODEL_ID", "MODEL_ID", "MODEL_NAME", "MODEL")
# Values that name a flag of vLLM in other words.
_FLAGS: Final = {
    **dict.fromkeys(
        ("tensorParallelSize", "tpSize", "tp_size", "tensor_parallel_size"), "tensor-parallel-size"
    ),
    **dict.fromkeys(("pipelineParallelSize", "ppSize", "pp_size"), "pipeline-parallel-size"),
    **dict.fromkeys(("maxModelLen", "max_model_len", "maxModelLength"), "max-model-len"),
    **dict.fromkeys(("gpuMemoryUtilization", "gpu_memory_utilization"), "gpu-memory-utilization"),
    **dict.fromkeys(("maxNumSeqs", "max_num_seqs"), "max-num-seqs"),
    **dict.fromkeys(("kvCacheDtype", "kv_cache_dtype"), "kv-cache-dtype"),
    "maxNumBatchedTokens": "max-num-batched-tokens",
    "quantization": "quantization",
    "dtype": "dtype",
}
_SGLANG: Final = {
    "tensor-parallel-size": "tp",
    "pipeline-parallel-size": "pp",
    "max-model-len": "context-length",
}
_MAX_DEPTH: Final = 5


def read_values(root: Mapping, objects: Objects) -> None:
    """Every block of the values that looks like a server."""
    gathering = objects.gathering
    blocks = list(_blocks("", root, 0))
    for name, block in blocks:
        _block(name, block, root, objects)
    if not blocks:
        shown = ", ".join(list(root.entries)[:5])
        message = f"Helm values without an engine's arguments, image or model (keys: {shown})"
        gathering.problem(ProblemKind.UNKNOWN, f"no server here: {message}", root.location)


def is_values(root: Mapping, *, strict: bool) -> bool:
    """Whether a mapping without ``kind`` holds a block that looks like a server.

    ``strict``: an engine's name beside a model is not enough, as in a benchmark's settings.
    """
    return any(not strict or _starts_engine(block) for _, block in _blocks("", root, 0))


def _blocks(name: str, node: Mapping, depth: int) -> Iterator[tuple[str, Mapping]]:
    if _is_server(name, node):
        yield name, node
        return
    if depth >= _MAX_DEPTH:
        return
    for key, value in node.entries.items():
        if isinstance(value, Mapping):
            yield from _blocks(key, value, depth + 1)
        elif isinstance(value, Sequence):
            for item in value.items:
                if isinstance(item, Mapping):
                    yield from _blocks(item.text("name") or key, item, depth + 1)


def _is_server(name: str, block: Mapping) -> bool:
    arguments = _arguments(block)
    image = image_of(block.get("image"))
    substance = bool(arguments) or image is not None or _model(block) is not None
    has_gpu = block.get("resources", "limits") is not None or block.get("gpu") is not None
    is_named = _runtime(name, block) is not None
    return _starts_engine(block) or (is_named and (substance or has_gpu))


def _starts_engine(block: Mapping) -> bool:
    """Whether an image or flags of an engine stand in a block."""
    image = image_of(block.get("image"))
    starts = image is not None and _serves(image.text, block)
    return starts or looks_like_engine([f.text for f in _arguments(block)]) is not None


def _serves(image: str, block: Mapping) -> bool:
    start = image_start(image, [])
    if start is not None and start.runtime is not None:
        return True
    is_engine = start is not None and "runtime" not in image
    return is_engine and bool(_arguments(block) or _model(block))


def _runtime(name: str, block: Mapping) -> str | None:
    for text in (name, *(block.text(key) or "" for key in _NAMED)):
        found = _ENGINES.get(text.lower())
        if found is not None:
            return found
    return None


def _arguments(block: Mapping) -> list[Field]:
    fields: list[Field] = []
    for key in _ARGUMENTS:
        node = block.get(key)
        if node is not None:
            fields.extend(argument_fields(node))
    return fields


def _command(block: Mapping) -> list[Field] | None:
    for path in (("command",), ("extraCmd", "command"), ("image", "command")):
        node = block.get(*path)
        if node is not None:
            return argument_fields(node) or None
    return None


def _block(name: str, block: Mapping, root: Mapping, objects: Objects) -> None:
    problems: list[Problem] = []
    values, places = variables(
        block.get("env") or block.get("image", "env") or block.get("extraEnv")
    )
    arguments, command = _arguments(block), _command(block)
    image = image_of(block.get("image"))
    container = Container(
        image=image,
        entrypoint=command,
        arguments=arguments,
        environment=values,
        location=block.location,
        beside=objects.gathering.beside,
    )
    reading = read_container(container)
    problems.extend(p for p in reading.problems if p.kind is not ProblemKind.WARNING)
    is_open = command is None and (image is None or image_start(image.text, []) is None)
    assumed = _assumed(name, block, container) if is_open or not reading.found else []
    founds = assumed or reading.found
    if not founds:
        objects.gathering.ignored.append(f"{name or 'values'}: {reading.ignored or 'no server'}")
        return
    if _needs_rendering(block, command, root):
        problems.append(_unrendered(block))
    claim = _claim(block, root, problems)
    for found in founds:
        fields = _with_model(found, block, root, values)
        fields = [*fields, *_flags(block, root, found.runtime, fields)]
        server = PodServer("", replace(found, fields=tuple(fields)), claim, tuple(problems), places)
        add_server(
            server,
            objects,
            name=block.text("name") or name or objects.gathering.path.stem,
            form="helm values",
            replicas=_replicas(block, root),
            is_deployed=not is_off(block.get("enabled")),
        )


def _assumed(name: str, block: Mapping, container: Container) -> list[Found]:
    """The engine that a key names, where image and command leave it open."""
    runtime = _runtime(name, block)
    if runtime is None:
        return []
    found = Found(
        runtime=runtime,
        entrypoint=_ENTRYPOINTS.get(runtime, runtime),
        fields=tuple(container.arguments),
        environment=container.environment,
        location=container.location,
        image=container.image,
    )
    return [finished(found, container)]


def _needs_rendering(block: Mapping, command: list[Field] | None, root: Mapping) -> bool:
    """Whether anything but the container's own words decides what starts."""
    is_whole = bool(command) and not any(k in block.entries for k in (*_FLAGS, *_MODELS))
    return not is_whole


def _unrendered(block: Mapping) -> Problem:
    message = (
        "these are values of a chart whose templates are not read here, so what it adds to the"
        " command is not known; give the output of `helm template`, or allow it in the policy"
        ' (render = ["helm"])'
    )
    return Problem(ProblemKind.UNRESOLVED, message, block.location)


def _with_model(found: Found, block: Mapping, root: Mapping, values: dict[str, str]) -> list[Field]:
    fields = list(found.fields)
    names = {f.text.partition("=")[0] for f in fields}
    has_model = bool(fields) and not fields[0].text.startswith("-")
    if has_model or names & {"--model", "--model-id", "--model-path", "-m"}:
        return fields
    model = _model(block) or _model(root)
    if model is None:
        from pytest_llmserve.manifests.words import field as field_at

        named = next((values[v] for v in _VARIABLES if values.get(v)), None)
        model = field_at(named, block.location) if named else None
    return fields if model is None else [model, *fields]


def _model(block: Mapping) -> Field | None:
    for key in _MODELS:
        node = block.get(key)
        if isinstance(node, Mapping):
            node = next((n for k in _MODEL_KEYS if (n := node.get(k)) is not None), None)
        if isinstance(node, Sequence):
            node = node.items[0] if node.items else None
        if isinstance(node, Scalar):
            return model_field(node)
    return None


def _flags(block: Mapping, root: Mapping, runtime: str, fields: list[Field]) -> list[Field]:
    written = {f.text.partition("=")[0].lstrip("-").replace("_", "-") for f in fields}
    added: list[Field] = []
    holders = [block, block.mapping("model"), root.mapping("model") if block is not root else None]
    for holder in (h for h in holders if h is not None):
        for key, node in holder.entries.items():
            name = _FLAGS.get(key)
            if name is None or name in written or not isinstance(node, Scalar) or not node.text:
                continue
            if runtime == "sglang":
                name = _SGLANG.get(name, name)
            written.add(name)
            added.extend(flag(name, node, holder.keys[key]))
    return added if runtime in ("vllm", "sglang") else []


def _claim(block: Mapping, root: Mapping, problems: list[Problem]) -> GpuClaim:
    claim = resource_claim(block.mapping("resources"), problems)
    nodes = number(block.get("nnodes")) or number(block.get("nodes")) or 1
    labels = node_labels(block) or node_labels(root)
    models = block.get("gpuModels") or root.get("gpuModels")
    if isinstance(models, Sequence):
        texts = tuple(n.text for n in models.items if isinstance(n, Scalar))
        if texts and not any("TYPE" in text for text in texts):
            labels = (*labels, GpuLabel("nvidia.com/gpu.product", texts, models.location))
    if claim.count_per_pod is None:
        claim = _counted(block, root, nodes) or claim
    else:
        claim = replace(claim, pods_per_instance=nodes)
    return replace(claim, labels=(*claim.labels, *labels))


def _counted(block: Mapping, root: Mapping, nodes: int) -> GpuClaim | None:
    """GPU counts that charts keep outside ``resources``."""
    gpu = block.mapping("gpu")
    if gpu is not None and not is_off(gpu.get("enabled")):
        found = _stated(gpu, ("number", "count"), 1)
        if found is not None:
            return found
    for holder in (block, root.mapping("job"), root):
        keys = ("gpus", "gpuCount", "gpu_count", "numGpus", "requestGPU")
        found = _stated(holder, keys, 1) if holder is not None else None
        if found is not None:
            return found
    tensor = _stated(block, ("tpSize", "tp_size", "tensorParallelSize"), 1)
    if tensor is not None and nodes > 1 and tensor.count_per_pod:
        return replace(tensor, count_per_pod=tensor.count_per_pod // nodes, pods_per_instance=nodes)
    return None


def _stated(holder: Mapping, keys: tuple[str, ...], pods: int) -> GpuClaim | None:
    for key in keys:
        node: Node | None = holder.get(key)
        count = number(node)
        if count is not None and node is not None:
            return GpuClaim(
                count_per_pod=count,
                count_source=key,
                count_location=node.location,
                pods_per_instance=pods,
                resource="nvidia.com/gpu",
            )
    return None


def _replicas(block: Mapping, root: Mapping) -> int | None:
    for holder in (block, root):
        for key in ("replicaCount", "replicas"):
            count = number(holder.get(key))
            if count is not None:
                return count
    return None
