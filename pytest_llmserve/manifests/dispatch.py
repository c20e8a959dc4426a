"""Which reader a document goes to: by kind, by keys, by the file's name. Readers load when met."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Mapping

_ROOM: Final = "pytest_llmserve.manifests."
# Kind -> reader; where kinds share a name, the beginning of apiVersion decides.
_KINDS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "InferenceService": (("", "operators.kserve:read_service"),),
    "ServingRuntime": (("", "operators.kserve:read_runtime"),),
    "ClusterServingRuntime": (("", "operators.kserve:read_runtime"),),
    "LLMInferenceService": (("", "operators.llmisvc:read_llm_service"),),
    "LLMInferenceServiceConfig": (("", "operators.llmisvc:read_llm_service"),),
    "DynamoGraphDeployment": (("", "operators.dynamo:read_graph"),),
    "DynamoComponentDeployment": (("", "operators.dynamo:read_graph"),),
    "RayService": (("", "operators.ray_cluster:read_ray"),),
    "RayCluster": (("", "operators.ray_cluster:read_ray"),),
    "RayJob": (("", "operators.ray_cluster:read_ray"),),
    "RayClusterFleet": (("", "operators.ray_cluster:read_ray"),),
    "Model": (("kubeai.org", "operators.kubeai:read_model"),),
    "Workspace": (("kaito.sh", "operators.kaito:read_kaito"),),
    "InferenceSet": (("kaito.sh", "operators.kaito:read_kaito"),),
    "MultiRoleInference": (("kaito.sh", "operators.kaito:read_kaito"),),
    "OpenModel": (("llmaz.io", "operators.llmaz:read_open_model"),),
    "Playground": (("inference.llmaz.io", "operators.llmaz:read_playground"),),
    "Service": (
        ("inference.llmaz.io", "operators.llmaz:read_service"),
        ("serving.knative.dev", "pod_templates:read_pods"),
    ),
    "BackendRuntime": (("", "operators.llmaz:read_backend"),),
    "NIMService": (("", "operators.nim:read_nim"),),
    "VLLMRuntime": (("", "charts.production_stack:read_runtime"),),
    "Kustomization": (("kustomize.config", "charts.kustomize:read_kustomization"),),
    "HelmRelease": (("", "charts.helm:read_release"),),
    "Application": (("argoproj.io", "charts.helm:read_release"),),
    "ConfigMap": (("v1", "operators.config_maps:read_config_map"),),
}
# Keys of a top mapping without ``kind`` -> reader. The first whose keys are all there counts.
_KEYS: Final[tuple[tuple[frozenset[str], str], ...]] = tuple(
    (frozenset(keys.split()), reader)
    for keys, reader in (
        ("servingEngineSpec", "charts.production_stack:read_values"),
        ("scenario", "platforms.llmd_benchmark:read_scenarios"),
        ("model_sets", "platforms.catalogues:read_gpustack"),
        ("name specs", "platforms.catalogues:read_gpustack"),
        ("name config_file", "platforms.catalogues:read_localai"),
        ("backend parameters", "platforms.catalogues:read_localai"),
        ("modelArtifacts", "charts.modelservice:read_values"),
        ("docker_server", "platforms.truss:read_config"),
        ("model_name trt_llm", "platforms.truss:read_config"),
        ("model_metadata model_name", "platforms.truss:read_config"),
        ("applications", "operators.ray_serve:read_serve_config"),
        ("engine_config", "operators.ray_serve:read_legacy"),
        ("catalog", "operators.kubeai:read_catalog"),
        ("commands type", "platforms.dstack:read_configuration"),
        ("resources run", "platforms.skypilot:read_task"),
        ("run setup", "platforms.skypilot:read_task"),
        ("run num_nodes", "platforms.skypilot:read_task"),
        ("healthCheckTimeout models", "platforms.llama_swap:read_models"),
        ("macros models", "platforms.llama_swap:read_models"),
        ("variants model meta", "platforms.recipe:read_recipe"),
        ("backend resources model", "platforms.srt_slurm:read_recipe"),
        ("recipe_id", "platforms.blueprint:read_blueprint"),
        ("recipe_container_command_args", "platforms.blueprint:read_blueprint"),
        ("deployment_group", "platforms.blueprint:read_blueprint"),
        ("slurm server hardware", "platforms.engine_config:read_slurm"),
        ("slurm worker_config hardware", "platforms.engine_config:read_slurm"),
    )
)
# Flags that only these runtimes' settings files have.
_SGLANG: Final = frozenset(
    {"mem-fraction-static", "tp-size", "enable-dp-attention", "disable-radix-cache"}
    | {"chunked-prefill-size", "max-running-requests", "cuda-graph-max-bs"}
)
_TRTLLM: Final = frozenset(
    {
        "kv_cache_config",
        "llm_api_args",
        "cuda_graph_config",
        "moe_config",
        "free_gpu_memory_fraction",
    }
    | {"kv_cache_free_gpu_mem_fraction", "cache_transceiver_config", "enable_attention_dp"}
)
# Files told by their name -> reader of their text.
_NAMES: Final = (
    (
        re.compile(r"(?:dockerfile|containerfile).*|.*\.(?:dockerfile|containerfile)"),
        "dockerfile:read_dockerfile",
    ),
    (re.compile(r".*\.(?:service|container)"), "systemd:read_unit"),
    (re.compile(r"modelfile.*|.*\.modelfile"), "modelfile:read_modelfile"),
    (re.compile(r"procfile.*"), "command_lines:read_procfile"),
    (re.compile(r"(?:gnu)?makefile.*|.*\.mk|\.?justfile"), "command_lines:read_makefile"),
)


def kind_reader(root: Mapping) -> str | None:
    """The reader of an object's kind, or None."""
    version = root.text("apiVersion") or ""
    for prefix, reader in _KINDS.get(root.text("kind") or "", ()):
        if version.startswith(prefix):
            return reader
    return None


def text_reader(name: str) -> str | None:
    """The reader of a file that is no YAML, by its name."""
    lower = name.lower()
    for pattern, reader in _NAMES:
        if pattern.fullmatch(lower):
            return f"plain.{reader}"
    return None


def key_reader(root: Mapping) -> str | None:
    """The reader of a mapping without ``kind``, by its keys."""
    keys = root.entries.keys()
    for needed, reader in _KEYS:
        if needed <= keys:
            return reader
    if root.get("args", "model_id") is not None or root.get("args", "cli_args") is not None:
        return "platforms.bentovllm:read_arguments"
    if not _TRTLLM.isdisjoint(keys):
        return "platforms.engine_config:read_trtllm"
    if not _SGLANG.isdisjoint(key.replace("_", "-") for key in keys):
        return "platforms.engine_config:read_sglang"
    return None


def call(reader: str, root: Mapping, objects: Objects) -> None:
    """Load a reader and let it read."""
    module, _, function = reader.partition(":")
    getattr(import_module(_ROOM + module), function)(root, objects)


def call_text(reader: str, text: str, objects: Objects) -> None:
    """Load a reader of text and let it read."""
    module, _, function = reader.partition(":")
    getattr(import_module(_ROOM + module), function)(text, objects)


def read_mapping(root: Mapping, objects: Objects, *, is_values: bool = False) -> bool:
    """Read a mapping without ``kind``; False where no form is recognised.

    Args:
        root: the mapping.
        objects: of the whole file.
        is_values: it is known to be a chart's values.
    """
    reader = key_reader(root)
    if reader is not None:
        call(reader, root, objects)
        return True
    name = objects.gathering.path.name.lower()
    from pytest_llmserve.manifests.charts.values import is_values as looks_like_values

    if is_values or "values" in name or looks_like_values(root, strict=True):
        call("charts.helm:read_values", root, objects)
        return True
    return False
