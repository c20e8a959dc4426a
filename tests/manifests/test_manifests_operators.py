"""Custom resources: halves that are joined, pods that serve together, what is no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from manifest_files import Read

    from pytest_llmserve.manifests.launch import Launch, Reading


def words(launch: Launch) -> list[str]:
    return [word.text for word in launch.argv]


def only(reading: Reading) -> Launch:
    (launch,) = reading.launches
    return launch


RUNTIME = """\
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: vllm-runtime}
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
  containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.12.0
      command: [python3, -m, vllm.entrypoints.openai.api_server]
      args: [--port=8080, --model=/mnt/models]
"""
SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: chat}
spec:
  predictor:
    minReplicas: 2
    model:
      runtime: vllm-runtime
      modelFormat: {name: vLLM}
      storageUri: hf://org/model@main
      args: [--max-model-len=4096]
      resources: {limits: {nvidia.com/gpu: "2"}}
"""


def test_an_inference_service_is_joined_with_its_runtime(read: Read) -> None:
    for reading in (
        read("both.yaml", f"{RUNTIME}---\n{SERVICE}"),
        read("service.yaml", SERVICE, runtime__yaml=RUNTIME),
    ):
        launch = only(reading)
        assert launch.name == "chat"
        assert words(launch) == ["--port=8080", "--model=/mnt/models", "--max-model-len=4096"]
        assert launch.entrypoint == "vllm.entrypoints.openai.api_server"
        assert launch.image is not None
        assert launch.image.text == "vllm/vllm-openai:v0.12.0"
        assert (launch.gpu.count, launch.replicas) == (2, 2)
        assert launch.gpu.labels[0].alternatives == ("NVIDIA-L40S",)
        (source,) = launch.model_sources
        assert (source.path, source.source, source.how) == (
            "/mnt/models",
            "org/model",
            "storageUri",
        )


def test_a_runtime_that_is_not_there_is_unresolved(read: Read) -> None:
    launch = only(read("service.yaml", SERVICE))
    assert words(launch) == ["org/model", "--max-model-len=4096"]
    (problem,) = launch.problems
    assert problem.kind is ProblemKind.UNRESOLVED
    assert "'vllm-runtime' is not among the files" in problem.message


def test_base_configs_of_an_llm_service_are_found_beside(read: Read) -> None:
    base = """\
    apiVersion: serving.kserve.io/v1alpha1
    kind: LLMInferenceServiceConfig
    metadata: {name: base}
    spec:
      template:
        containers:
          - name: main
            image: vllm/vllm-openai:v0.12.0
            command: [sh, -c]
            args: ["vllm serve /mnt/models $VLLM_ADDITIONAL_ARGS"]
    """
    text = """\
    apiVersion: serving.kserve.io/v1alpha1
    kind: LLMInferenceService
    metadata: {name: chat}
    spec:
      model: {uri: hf://org/model}
      baseRefs: [{name: base}]
      template:
        containers:
          - name: main
            env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len 4096"}]
    """
    launch = only(read("chat.yaml", text, base__yaml=base))
    assert words(launch) == ["/mnt/models", "--max-model-len", "4096"]
    assert launch.image is not None
    assert launch.image.text == "vllm/vllm-openai:v0.12.0"
    missing = read("alone.yaml", text.replace("[{name: base}]", "[{name: other}]"))
    assert "baseRefs names 'other'" in missing.problems[0].message


def test_prefill_and_decode_of_an_llm_service_and_its_workers(read: Read) -> None:
    text = """\
    apiVersion: serving.kserve.io/v1alpha1
    kind: LLMInferenceService
    metadata: {name: chat}
    spec:
      model: {uri: hf://org/model}
      parallelism: {data: 16, dataLocal: 8, expert: true}
      template: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 8}}}]}
      worker: {containers: [{name: main}]}
      prefill:
        replicas: 3
        template: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
    """
    reading = read("chat.yaml", text)
    decode, prefill = reading.launches
    assert words(decode) == [
        *("org/model", "--data-parallel-size", "16", "--data-parallel-size-local", "8"),
        "--enable-expert-parallel",
    ]
    assert (decode.gpu.count_per_pod, decode.gpu.pods_per_instance) == (8, 2)
    assert (prefill.gpu.count, prefill.replicas, words(prefill)) == (1, 3, ["org/model"])
    assert "worker: pods of the same server" in "".join(reading.ignored)


def test_role_templates_are_merged_with_their_patches(read: Read) -> None:
    text = """\
    apiVersion: workloads.x-k8s.io/v1alpha2
    kind: RoleBasedGroup
    metadata: {name: pd}
    spec:
      roleTemplates:
        - name: base
          template:
            spec:
              containers:
                - name: main
                  image: vllm/vllm-openai:v0.12.0
                  env: [{name: LEN, value: "4096"}]
      roles:
        - name: router
          standalonePattern:
            template:
              spec: {containers: [{image: x, command: [python3, -m, sglang_router.launch_router]}]}
        - name: decode
          replicas: 2
          leaderWorkerPattern:
            size: 2
            templateRef:
              name: base
              patch:
                spec:
                  containers:
                    - name: main
                      command: [vllm, serve, org/model, --max-model-len, $(LEN)]
                      args: [--nnodes, $(RBG_LWP_GROUP_SIZE)]
                      resources: {limits: {nvidia.com/gpu: 4}}
    """
    reading = read("rbg.yaml", text)
    launch = only(reading)
    assert launch.name == "pd"
    assert words(launch) == ["org/model", "--max-model-len", "4096", "--nnodes", "2"]
    assert launch.image is not None
    assert launch.image.text == "vllm/vllm-openai:v0.12.0"
    assert (launch.gpu.count, launch.replicas) == (8, 2)
    assert "a router, no server" in "".join(reading.ignored)


def test_workers_of_a_ray_cluster_add_their_gpus(read: Read) -> None:
    group = "{replicas: 1, template: {spec: {containers: [{image: x, resources: %s}]}}}"
    gpus = "{limits: {nvidia.com/gpu: 8}}"
    text = f"""\
    apiVersion: ray.io/v1
    kind: RayCluster
    metadata: {{name: big}}
    spec:
      headGroupSpec:
        template:
          spec:
            containers:
              - image: vllm/vllm-openai:v0.12.0
                command: [bash, -lc, --]
                args: ["ray start --head; vllm serve org/model -tp 16"]
                resources: {gpus}
      workerGroupSpecs: [{group % gpus}]
    """
    launch = only(read("ray.yaml", text))
    assert words(launch) == ["org/model", "-tp", "16"]
    assert (launch.gpu.count_per_pod, launch.gpu.pods_per_instance) == (8, 2)


def test_engine_kwargs_keep_their_lines_and_their_types(read: Read) -> None:
    text = """\
    applications:
      - name: app
        args:
          llm_configs:
            - model_loading_config: {model_id: chat}
              engine_kwargs:
                max_model_len: 4096
                enable_prefix_caching: false
                trust_remote_code: true
                kv_transfer_config: {kv_connector: NixlConnector}
                quantization: null
    """
    launch = only(read("serve.yaml", text))
    assert words(launch) == [
        "chat",
        "--max_model_len=4096",
        "--no-enable_prefix_caching",
        "--trust_remote_code",
        '--kv_transfer_config={"kv_connector": "NixlConnector"}',
    ]
    assert [word.location.line for word in launch.argv] == [5, 7, 8, 9, 10]
    assert launch.is_typed


def test_yaml_inside_yaml_knows_its_lines(read: Read) -> None:
    text = """\
    apiVersion: ray.io/v1
    kind: RayService
    metadata: {name: chat}
    spec:
      serveConfigV2: |
        applications:
          - args:
              llm_configs:
                - model_loading_config:
                    model_id: org/model
                  engine_kwargs:
                    max_model_len: 4096
    """
    launch = only(read("ray.yaml", text))
    places = [(w.text, w.location.line, w.location.column) for w in launch.argv]
    assert places == [("org/model", 10, 27), ("--max_model_len=4096", 12, 17)]


def test_dynamo_keeps_its_own_flags(read: Read) -> None:
    text = """\
    apiVersion: nvidia.com/v1alpha1
    kind: DynamoGraphDeployment
    metadata: {name: g}
    spec:
      services:
        Frontend: {componentType: frontend, extraPodSpec: {mainContainer: {image: x}}}
        decode:
          multinode: {nodeCount: 2}
          resources: {limits: {gpu: "8"}}
          extraPodSpec:
            mainContainer:
              command: [python3, -m, dynamo.vllm]
              args: [--model, m, --disaggregation-mode, decode, -tp, "16", --dyn-endpoint, a]
    """
    launch = only(read("g.yaml", text))
    assert (launch.runtime, launch.entrypoint) == ("vllm", "dynamo.vllm")
    assert words(launch) == ["--model", "m", "-tp", "16"]
    kept = [word.text for word in launch.wrapper_argv]
    assert kept == ["--disaggregation-mode", "decode", "--dyn-endpoint", "a"]
    assert launch.gpu.count == 16


CLAIM = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata: {name: gpus}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          deviceClassName: %s
          count: 2
          selectors: [{cel: {expression: "%s"}}]
        - {name: nic, deviceClassName: rdma.example.com}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpus}]
  containers:
    - image: vllm/vllm-openai:v0.12.0
      args: [m]
      resources: {claims: [{name: gpu}]}
"""


@pytest.mark.parametrize(
    ("device", "expression", "resource", "labels"),
    [
        ("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA L4'",
         "nvidia.com/gpu", ("NVIDIA L4",)),
        ("mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'",
         "nvidia.com/mig-1g.10gb", ()),
        ("gpu.amd.com", "true", "amd.com/gpu", ()),
    ],
)  # fmt: skip
def test_claims_give_count_class_and_product(
    read: Read, device: str, expression: str, resource: str, labels: tuple[str, ...]
) -> None:
    launch = only(read("dra.yaml", f"{CLAIM % (device, expression)}---\n{POD}"))
    assert (launch.gpu.count, launch.gpu.resource) == (2, resource)
    assert tuple(v for label in launch.gpu.labels for v in label.alternatives) == labels
    assert launch.gpu.count_location is not None
    assert launch.gpu.count_location.line == 8


def test_a_claim_of_another_file_is_unresolved(read: Read) -> None:
    launch = only(read("pod.yaml", POD))
    assert launch.gpu.count is None
    (problem,) = launch.problems
    assert problem.kind is ProblemKind.UNRESOLVED
    assert "'gpus', which is not in this file" in problem.message


def test_memory_labels_stand_beside_the_kind(read: Read) -> None:
    labels = "{karpenter.k8s.aws/instance-gpu-name: a100,"
    labels += ' karpenter.k8s.aws/instance-gpu-memory: "81920"}'
    text = POD.replace("  resourceClaims", f"  nodeSelector: {labels}\n  resourceClaims")
    keys = {label.key.rpartition("-")[2] for label in only(read("p.yaml", text)).gpu.labels}
    assert keys == {"name", "memory"}


def test_init_containers_tell_what_fills_a_path(read: Read) -> None:
    text = """\
    apiVersion: v1
    kind: Pod
    metadata: {name: chat}
    spec:
      initContainers:
        - name: get
          image: python
          command: [sh, -c]
          args: ["pip install huggingface_hub && hf download org/model --local-dir /models/m"]
        - name: copy
          image: aws
          command: [aws, s3, sync, "s3://bucket/other", /models/other]
      containers: [{image: "vllm/vllm-openai:v0.12.0", args: [/models/m]}]
    """
    launch = only(read("pod.yaml", text))
    assert [(s.path, s.source, s.location.line) for s in launch.model_sources] == [
        ("/models/m", "org/model", 9),
        ("/models/other", "s3://bucket/other", 12),
    ]


def test_counts_that_differ_leave_the_task_open(read: Read) -> None:
    text = """\
    resources: {accelerators: {L4:8, A100:4}}
    run: vllm serve m -tp $SKYPILOT_NUM_GPUS_PER_NODE
    """
    launch = only(read("t.yaml", text))
    assert launch.gpu.count is None
    assert launch.gpu.labels[0].alternatives == ("L4", "A100-40GB")
    assert launch.argv[-1].unresolved == ("SKYPILOT_NUM_GPUS_PER_NODE",)
    assert "leaves the number of GPUs open (4, 8)" in launch.problems[0].message


def test_secrets_of_any_form_are_masked(read: Read) -> None:
    secret = "top-secret-1"
    flag = f"--api-key {secret}"
    values = f"{{model: m, hf_token: {secret}, env: {{HF_TOKEN: {secret}}}"
    config = f"{{model_loading_config: {{model_id: m}}, engine_kwargs: {{api_key: {secret}}}}}"
    texts = {
        "Dockerfile": f"FROM vllm/vllm-openai\nENV API_KEY={secret}\nCMD vllm serve m {flag}\n",
        "a.service": f"[Service]\nEnvironment=API_KEY={secret}\nExecStart=vllm serve m {flag}\n",
        "values.yaml": f"vllm: {values}, args: [--api-key={secret}]}}\n",
        "t.yaml": f"resources: {{}}\nenvs: {{KEY: {secret}}}\nrun: vllm serve m --api-key $KEY\n",
        "r.yaml": f"applications: [{{args: {{llm_configs: [{config}]}}}}]\n",
    }
    for name, text in texts.items():
        reading = read(name, text)
        assert reading.launches, name
        assert secret not in repr(reading), name


@pytest.mark.parametrize(("other", "count"), [(1, 1), (2, None)])
def test_the_first_available_device_may_be_any(read: Read, other: int, count: int | None) -> None:
    def request(product: str, number: int) -> str:
        cel = f"device.attributes['gpu.nvidia.com'].productName == '{product}'"
        selector = f'{{cel: {{expression: "{cel}"}}}}'
        return f"{{deviceClassName: gpu.nvidia.com, count: {number}, selectors: [{selector}]}}"

    choices = f"[{request('NVIDIA L4', 1)}, {request('NVIDIA L40S', other)}]"
    text = f"""\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: gpus}}
spec: {{spec: {{devices: {{requests: [{{name: gpu, firstAvailable: {choices}}}]}}}}}}
---
{POD}"""
    launch = only(read("dra.yaml", text))
    assert launch.gpu.count == count
    if count:
        assert launch.gpu.labels[0].alternatives == ("NVIDIA L4", "NVIDIA L40S")


def test_a_patch_is_read_and_its_base_is_missed(read: Read) -> None:
    text = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: chat}
    spec: {template: {spec: {containers: [{name: vllm, args: [--max-model-len=4096]}]}}}
    """
    launch = only(read("patch.yaml", text))
    assert words(launch) == ["--max-model-len=4096"]
    assert ProblemKind.UNRESOLVED in {p.kind for p in launch.problems}
    assert any("'vllm' has no image: a patch?" in p.message for p in launch.problems)


@pytest.mark.parametrize(
    ("priorities", "labels"),
    [
        ("[{gpu: {type: nvidia-l4, count: 1}}, {gpu: {type: nvidia-h100-80gb}}]",
         [("cloud.google.com/gke-accelerator", ("nvidia-l4", "nvidia-h100-80gb"))]),
        ("[{machineType: g2-standard-12}]",
         [("node.kubernetes.io/instance-type", ("g2-standard-12",))]),
        ("[{gpu: {type: nvidia-l4}}, {machineFamily: n2}]", []),
    ],
)  # fmt: skip
def test_a_compute_class_of_the_file_names_its_gpus(
    read: Read, priorities: str, labels: list[tuple[str, tuple[str, ...]]]
) -> None:
    text = f"""\
    apiVersion: cloud.google.com/v1
    kind: ComputeClass
    metadata: {{name: gpus}}
    spec: {{priorities: {priorities}}}
    ---
    apiVersion: v1
    kind: Pod
    metadata: {{name: chat}}
    spec:
      nodeSelector: {{cloud.google.com/compute-class: gpus}}
      containers: [{{image: vllm/vllm-openai, args: [m]}}]
    """
    launch = only(read("pod.yaml", text))
    assert [(label.key, label.alternatives) for label in launch.gpu.labels] == labels
