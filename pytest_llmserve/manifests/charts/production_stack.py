"""vLLM production stack: Helm values ``servingEngineSpec``, and the ``VLLMRuntime`` kind.

Facts of the chart (helm/templates/deployment-vllm-multi.yaml and ray-cluster.yaml of
vllm-project/production-stack): which keys become flags, ``--no-enable-prefix-caching`` without
``enablePrefixCaching``, ``extraArgs`` read under ``vllmConfig`` only, LMCache as a transfer config.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.gpu_claims import node_labels
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import (
    Made,
    add,
    argument_fields,
    image_of,
    is_off,
    marked,
    model_field,
    number,
    variables,
)
from pytest_llmserve.manifests.pods import downloads, object_name
from pytest_llmserve.manifests.vllm_config import python_value
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field
    from pytest_llmserve.manifests.yaml_nodes import Node

# Keys of vllmConfig that the chart turns into a flag with a value, in its order.
_VALUES: Final = (
    ("maxModelLen", "--max-model-len"),
    ("dtype", "--dtype"),
    ("tensorParallelSize", "--tensor-parallel-size"),
    ("pipelineParallelSize", "--pipeline-parallel-size"),
    ("maxNumSeqs", "--max-num-seqs"),
    ("maxNumBatchedTokens", "--max-num-batched-tokens"),
    ("gpuMemoryUtilization", "--gpu_memory_utilization"),
    ("maxLoras", "--max_loras"),
)


def read_values(root: Mapping, objects: Objects) -> None:
    """Every entry of ``servingEngineSpec.modelSpec``."""
    engine = root.mapping("servingEngineSpec")
    if engine is None:
        return
    is_on = not is_off(engine.get("enableEngine"))
    specs = list(engine.mappings("modelSpec"))
    for spec in specs:
        _model_spec(spec, engine, objects, is_on=is_on)
    if not specs:
        message = "servingEngineSpec has no modelSpec: no server"
        objects.gathering.problem(ProblemKind.UNKNOWN, message, engine.location)
    if root.mapping("routerSpec") is not None:
        objects.gathering.ignored.append("routerSpec: a router, no server")


def _model_spec(spec: Mapping, engine: Mapping, objects: Objects, *, is_on: bool) -> None:
    problems: list[Problem] = []
    config = spec.mapping("vllmConfig")
    fields = [f for f in (model_field(spec.get("modelURL")),) if f is not None]
    fields.extend(_flags(spec, config))
    fields.extend(_transfer(spec.mapping("lmcacheConfig"), config))
    if (node := spec.get("extraArgs")) is not None:
        message = (
            "extraArgs here is not read by the chart, so none of it takes effect; it belongs under"
            " vllmConfig"
        )
        problems.append(Problem(ProblemKind.WARNING, message, node.location, key="extraArgs"))
    values, places = variables(spec.get("env"))
    devices = spec.get("lmcacheConfig", "cudaVisibleDevices")
    if isinstance(devices, Scalar):
        values["CUDA_VISIBLE_DEVICES"] = devices.text
        places["CUDA_VISIBLE_DEVICES"] = devices.location
    initial = spec.mapping("initContainer")
    if isinstance(config_v0 := spec.get("vllmConfig", "v0"), Scalar) and config_v0.text == "1":
        values["VLLM_USE_V1"], places["VLLM_USE_V1"] = "0", config_v0.location
    add(
        Made(
            name=spec.text("name") or "engine",
            form="production-stack values",
            location=spec.location,
            fields=fields,
            image=image_of(spec),
            environment=values,
            places=places,
            gpu=_claim(spec, engine),
            replicas=1 if _is_ray(spec) else number(spec.get("replicaCount")),
            is_deployed=is_on and not is_off(spec.get("enabled")),
            problems=problems,
            sources=list(downloads(initial)) if initial is not None else [],
        ),
        objects.gathering,
    )


def _flags(spec: Mapping, config: Mapping | None, *, has_defaults: bool = True) -> list[Field]:
    fields: list[Field] = []
    fields.extend(_switch(spec, "enableLoRA", "--enable-lora"))
    fields.extend(_switch(spec, "enableTool", "--enable-auto-tool-choice"))
    parser = spec.get("toolCallParser")
    if isinstance(parser, Scalar) and parser.text:
        fields.extend([field_at("--tool-call-parser", parser.location), marked(parser)])
    if config is None:
        return fields
    chunked = config.get("enableChunkedPrefill")
    if isinstance(chunked, Scalar):
        is_true = python_value(chunked) is True
        text = "--enable-chunked-prefill" if is_true else "--no-enable-chunked-prefill"
        fields.append(field_at(text, chunked.location))
    caching = config.get("enablePrefixCaching")
    is_cached = isinstance(caching, Scalar) and python_value(caching) is True
    if has_defaults or is_cached:
        text = "--enable-prefix-caching" if is_cached else "--no-enable-prefix-caching"
        fields.append(field_at(text, caching.location if caching is not None else config.location))
    for key, name in _VALUES:
        node = config.get(key)
        if isinstance(node, Scalar):
            fields.extend([field_at(name, config.keys[key]), marked(node)])
    fields.extend(argument_fields(config.get("extraArgs")))
    return fields


def _switch(spec: Mapping, key: str, flag: str) -> list[Field]:
    node = spec.get(key)
    is_on = isinstance(node, Scalar) and python_value(node) is True
    return [field_at(flag, spec.keys[key])] if is_on else []


def _transfer(cache: Mapping | None, config: Mapping | None) -> list[Field]:
    """What the chart writes where LMCache is enabled."""
    node = cache.get("enabled") if cache is not None else None
    if cache is None or not isinstance(node, Scalar) or python_value(node) is not True:
        return []
    role = cache.text("kvRole") or "kv_both"
    is_v0 = config is not None and config.text("v0") == "1"
    connector = "LMCacheConnector" if is_v0 else "LMCacheConnectorV1"
    extra = ""
    if cache.get("enablePD") is not None:
        port = cache.text("nixlRole") or ""
        connector = "LMCacheConnectorV1"
        extra = (
            f',"kv_connector_extra_config":{{"discard_partial_chunks": false,'
            f' "lmcache_rpc_port": "{port}"}}'
        )
    text = f'{{"kv_connector":"{connector}","kv_role":"{role}"{extra}}}'
    return [field_at(t, node.location) for t in ("--kv-transfer-config", text)]


def _claim(spec: Mapping, engine: Mapping) -> GpuClaim:
    labels = node_labels(spec)
    terms = spec.get("nodeSelectorTerms")
    if terms is not None:
        labels = (*labels, *node_labels(_required(terms)))
    labels = labels or node_labels(engine)
    node = spec.get("requestGPU")
    count = number(node)
    claim = GpuClaim(
        count_per_pod=count,
        count_source="requestGPU" if node is not None else "",
        count_location=node.location if node is not None else None,
        resource=spec.text("requestGPUType") or ("nvidia.com/gpu" if count else None),
        labels=labels,
    )
    ray = spec.mapping("raySpec")
    if ray is None or count is None or not _is_ray(spec):
        return claim
    head = number(ray.get("headNode", "requestGPU"))
    workers = number(spec.get("replicaCount")) or 1
    if head == count:
        return replace(claim, pods_per_instance=1 + workers)
    return replace(claim, count_per_pod=(head or 0) + count * workers)


def _is_ray(spec: Mapping) -> bool:
    """Whether head and workers of a Ray cluster serve: ``replicaCount`` then counts workers."""
    ray = spec.mapping("raySpec")
    return ray is not None and not is_off(ray.get("enabled"))


def _required(terms: Node) -> Mapping:
    """``nodeSelectorTerms`` as the affinity that the chart writes around them."""
    result: Node = terms
    path = ("nodeSelectorTerms", "requiredDuringSchedulingIgnoredDuringExecution")
    for key in (*path, "nodeAffinity", "affinity"):
        outer = Mapping(terms.file, terms.line, terms.column)
        outer.entries = {key: result}
        result = outer
    assert isinstance(result, Mapping)
    return result


def read_runtime(root: Mapping, objects: Objects) -> None:
    """A ``VLLMRuntime``: the same ideas as a custom resource."""
    model, config = root.mapping("spec", "model"), root.mapping("spec", "vllmConfig")
    deployment = root.mapping("spec", "deploymentConfig")
    if model is None:
        return
    fields = [f for f in (model_field(model.get("modelURL")),) if f is not None]
    merged = Mapping(root.file, root.line, root.column)
    for part in (config, model):
        if part is not None:
            merged.entries.update(part.entries)
            merged.keys.update(part.keys)
    fields.extend(_flags(merged, _without_off(merged), has_defaults=False))
    values, places = variables(config.get("env") if config is not None else None)
    node = deployment.get("resources", "gpu") if deployment is not None else None
    claim = GpuClaim(
        count_per_pod=number(node),
        count_source="deploymentConfig.resources.gpu",
        count_location=node.location if node is not None else None,
        resource=deployment.text("resources", "gpuType") if deployment is not None else None,
        labels=node_labels(deployment) if deployment is not None else (),
    )
    add(
        Made(
            name=object_name(root),
            form="production-stack VLLMRuntime",
            location=root.location,
            fields=fields,
            image=image_of(deployment.get("image") if deployment is not None else None),
            environment=values,
            places=places,
            gpu=claim,
            replicas=number(deployment.get("replicas") if deployment is not None else None),
        ),
        objects.gathering,
    )


def _without_off(mapping: Mapping) -> Mapping:
    """The operator writes a flag for what is true, and nothing for what is false."""
    result = Mapping(mapping.file, mapping.line, mapping.column)
    result.entries = {k: v for k, v in mapping.entries.items() if not is_off(v)}
    result.keys = mapping.keys
    return result
