"""Which model a launch serves: paths are traced to what fills them, names are only hints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from pytest_llmserve.manifests.reader import read_file
from pytest_llmserve.policy import Facts, Policy
from pytest_llmserve.servers.assemble import Assembler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_llmserve.subject import Subject

Subjects: TypeAlias = "Callable[..., Any]"
"""The subject of a manifest; each test knows which optional parts it has."""

KNOWN = "Qwen/Qwen3-8B"  # in the bundled catalogue


@pytest.fixture
def subject(tmp_path: Path) -> Subjects:
    def _subject(text: str, **policy: Any) -> Subject:
        path = tmp_path / "d.yaml"
        path.write_text(text)
        (launch,) = read_file(path, display="d.yaml").launches
        assembler = Assembler(Policy(base_dir=tmp_path, **policy))
        return assembler.from_launch(launch, path).subjects[0]

    return _subject


def pod(model: str, init: str = "", args: str = "") -> str:
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: chat}}
spec:
  initContainers: [{init}]
  containers: [{{image: "vllm/vllm-openai:v0.12.0", args: [--model, "{model}"{args}]}}]
"""


def download(source: str, path: str) -> str:
    return f'{{name: get, image: x, command: [sh, -c, "hf download {source} --local-dir {path}"]}}'


def test_a_download_tells_what_a_path_holds(subject: Subjects) -> None:
    deployment = subject(pod("/models/chat", download(KNOWN, "/models/chat"))).deployment
    assert deployment.model.id == KNOWN
    assert deployment.model_ref.value == KNOWN
    assert deployment.model_ref.source.startswith("derived: init container: hf download, line 5")


@pytest.mark.parametrize(
    "path",
    [
        "/cache/models--Qwen--Qwen3-8B",
        "/data/Qwen--Qwen3-8B/",
        "/mnt/models/Qwen/Qwen3-8B",
        "s3://bucket/models/Qwen--Qwen3-8B",
        "gs://bucket/Qwen/Qwen3-8B",
    ],
)
def test_folder_names_tell_the_hub_id(subject: Subjects, path: str) -> None:
    deployment = subject(pod(path)).deployment
    assert deployment.model.id == KNOWN
    assert deployment.model_ref.source == f"derived from the path {path}"


def test_a_storage_address_leads_on(subject: Subjects) -> None:
    text = f"""\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {{name: chat}}
spec: {{model: {{uri: "pvc://claim", name: {KNOWN}}}, template: {{containers: [{{name: main}}]}}}}
"""
    deployment = subject(text).deployment
    assert deployment.model.id == KNOWN
    assert deployment.model_ref.source == "derived: spec.model.name, line 4"


def test_the_policy_maps_paths_and_patterns(subject: Subjects) -> None:
    for paths in ({"/models/x": KNOWN}, {"/models/*": KNOWN}):
        found = subject(pod("/models/x", download("org/other", "/models/x")), model_paths=paths)
        assert found.deployment.model.id == KNOWN


def test_a_served_name_is_a_hint_and_no_model(subject: Subjects) -> None:
    found = subject(pod("/models/x", args=f', --served-model-name, "{KNOWN}"'))
    assert found.deployment.model is None
    (problem,) = [p for p in found.deployment.problems if p.key == "model"]
    assert f'model_paths = {{ "/models/x" = "{KNOWN}" }}' in problem.message


def test_a_download_to_another_place_says_nothing(subject: Subjects) -> None:
    found = subject(pod("/models/x", download(KNOWN, "/models/y")))
    assert found.deployment.model is None


def test_whole_machines_have_the_gpus_of_their_type(subject: Subjects) -> None:
    text = """\
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: chat}
resource: {instanceType: Standard_NC48ads_A100_v4, count: 2}
inference: {preset: {name: phi-4}}
"""
    deployment = subject(text).deployment
    assert deployment.gpu_count.value == 4
    assert deployment.gpu_count.source == "instanceType x 2 pods"
    assert deployment.gpu.id == "a100-pcie-80gb"
    settings = deployment.settings
    assert (settings.tensor_parallel_size.value, settings.pipeline_parallel_size.value) == (2, 2)
    assert settings.tensor_parallel_size.source == "KAITO uses every GPU (instanceType x 2 pods)"
    assert settings.is_auto_max_model_len


def test_settings_of_the_config_map_come_before_the_operator(subject: Subjects) -> None:
    config = "{vllm: {max-model-len: 4096, tensor-parallel-size: 1}}"
    text = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: c}}
data: {{inference_config.yaml: "{config}"}}
---
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {{name: chat}}
resource: {{instanceType: Standard_NC48ads_A100_v4}}
inference: {{preset: {{name: phi-4}}, config: c}}
"""
    settings = subject(text).deployment.settings
    assert (settings.tensor_parallel_size.value, settings.max_model_len.value) == (1, 4096)


def test_a_negative_that_the_version_lacks_is_the_default(subject: Subjects) -> None:
    kwargs = "{enforce_eager: false, enable_prefix_caching: false, max_model_len: 4096}"
    config = f"{{model_loading_config: {{model_id: {KNOWN}}}, engine_kwargs: {kwargs}}}"
    text = f"applications: [{{args: {{llm_configs: [{config}]}}}}]\n"
    found = subject(text)
    assert found.deployment.settings.enable_prefix_caching.value is False
    assert not [p for p in found.deployment.problems if "unrecognized" in p.message]
    assert found.deployment.refusals == ()


def test_dynamo_takes_the_model_by_flag_in_every_version(subject: Subjects) -> None:
    text = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: chat}}
spec:
  containers:
    - image: vllm/vllm-openai:v0.9.0
      command: [python3, -m, dynamo.vllm, --model, {KNOWN}, --dyn-tool-call-parser, hermes]
"""
    found = subject(text)
    assert found.deployment.model.id == KNOWN
    assert found.deployment.refusals == ()


def test_an_ambiguous_kind_is_not_overruled_by_another(subject: Subjects) -> None:
    text = f"""\
model_name: chat
docker_server: {{start_command: vllm serve {KNOWN}}}
resources: {{accelerator: H100}}
"""
    settled = subject(text, facts=Facts(gpu="h100-nvl-94gb")).deployment
    assert settled.gpu.id == "h100-nvl-94gb"
    other = subject(text, facts=Facts(gpu="l4")).deployment
    assert other.gpu is None
    (problem,) = [p for p in other.problems if p.key == "gpu"]
    assert "the policy's gpu = 'l4' is none of them" in problem.message
    unknown = subject(text.replace("H100", "gpu-pool-7"), facts=Facts(gpu="l4")).deployment
    assert unknown.gpu.id == "l4"


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, None)])
def test_all_gpus_are_at_least_one(subject: Subjects, size: int, count: int | None) -> None:
    devices = "[{driver: nvidia, count: all, capabilities: [gpu]}]"
    resources = f"{{resources: {{reservations: {{devices: {devices}}}}}}}"
    command = f"--model {KNOWN} -tp {size}"
    text = f"services: {{a: {{image: vllm/vllm-openai, command: {command}, deploy: {resources}}}}}"
    found = subject(text).deployment.gpu_count
    assert (found and found.value) == count


@pytest.mark.parametrize(
    ("resource", "gpu", "message"),
    [
        ("google.com/tpu", "l4", "accelerators but GPUs are not modelled"),
        ("habana.ai/gaudi", None, "accelerators but GPUs are not modelled"),
        ("amd.com/gpu", "l4", "the file asks for amd.com/gpu"),
        ("nvidia.com/gpu", "mi300x", "which is AMD's"),
    ],
)
def test_the_policy_puts_no_server_on_another_kind_of_machine(
    subject: Subjects, resource: str, gpu: str | None, message: str
) -> None:
    text = pod(KNOWN).replace("args", f"resources: {{limits: {{{resource}: 1}}}}, args")
    deployment = subject(text, facts=Facts(gpu=gpu)).deployment
    assert deployment.gpu is None
    (problem,) = [p for p in deployment.problems if p.key == "gpu"]
    assert message in problem.message


def test_labels_that_disagree_are_not_settled_by_the_policy(subject: Subjects) -> None:
    labels = "{nvidia.com/gpu.product: NVIDIA-L4, cloud.google.com/gke-accelerator: nvidia-b200}"
    text = pod(KNOWN).replace("containers:", f"nodeSelector: {labels}\n  containers:")
    deployment = subject(text, facts=Facts(gpu="l4")).deployment
    assert deployment.gpu is None
    assert "labels disagree" in next(p.message for p in deployment.problems if p.key == "gpu")
