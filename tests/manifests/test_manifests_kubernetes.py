from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

import pytest

from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from manifest_files import Read

    from pytest_llmserve.manifests.launch import Launch


def words(launch: Launch) -> list[str]:
    return [word.text for word in launch.argv]


def deployment(container: str, *, kind: str = "Deployment", spec: str = "", pod: str = "") -> str:
    return (
        f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: chat}}\nspec:\n{indent(spec, '  ')}"
        f"  template:\n    spec:\n{indent(pod, '      ')}      containers:\n"
        f"{indent(container, '      ')}"
    )


EXEC = """\
- name: server
  image: vllm/vllm-openai:v0.12.0
  command: ["vllm", "serve"]
  args:
    - org/model-7b
    - --max-model-len=4096
    - --gpu-memory-utilization
    - "0.90"
  resources:
    limits:
      nvidia.com/gpu : "2"
"""


def test_exec_form_gives_words_with_their_lines(read: Read) -> None:
    reading = read("d.yaml", deployment(EXEC, spec="replicas: 3\n"))
    (launch,) = reading.launches
    assert reading.problems == ()
    assert (launch.name, launch.form, launch.runtime) == ("chat", "kubernetes Deployment", "vllm")
    assert launch.entrypoint == "vllm serve"
    assert words(launch) == [
        "org/model-7b",
        "--max-model-len=4096",
        "--gpu-memory-utilization",
        "0.90",
    ]
    assert [word.location.line for word in launch.argv] == [13, 14, 15, 16]
    assert launch.argv[1].location.column == 13
    assert str(launch.image) == "vllm/vllm-openai:v0.12.0"
    assert (launch.gpu.count, launch.gpu.resource) == (2, "nvidia.com/gpu")
    assert str(launch.gpu.count_location) == "d.yaml:19"
    assert launch.replicas == 3
    assert launch.is_deployed
    assert launch.problems == ()


@pytest.mark.parametrize(
    ("image", "entrypoint"),
    [
        ("vllm/vllm-openai:v0.8.5", "vllm.entrypoints.openai.api_server"),
        ("docker.io/vllm/vllm-openai:v0.11.0", "vllm.entrypoints.openai.api_server"),
        ("vllm/vllm-openai:v0.22.1", "vllm serve"),
        ("vllm/vllm-openai:latest", "vllm serve"),
    ],
)
def test_args_alone_go_to_the_image_entrypoint(read: Read, image: str, entrypoint: str) -> None:
    reading = read("d.yaml", deployment(f"- image: {image}\n  args: [--model, m]\n"))
    (launch,) = reading.launches
    assert launch.entrypoint == entrypoint
    assert words(launch) == ["--model", "m"]


def test_command_decides_before_image_and_name(read: Read) -> None:
    container = """\
- name: vllm
  image: vllm/vllm-openai:v0.12.0
  command: [python3, -u, -m, sglang.launch_server, --model-path, m]
- name: anything
  image: registry.corp/private:1
  command: [/opt/venv/bin/vllm, serve, m2]
"""
    sglang, vllm = read("d.yaml", deployment(container)).launches
    assert (sglang.name, sglang.runtime, words(sglang)) == (
        "chat/vllm",
        "sglang",
        ["--model-path", "m"],
    )
    assert (vllm.name, vllm.runtime, words(vllm)) == ("chat/anything", "vllm", ["m2"])


@pytest.mark.parametrize(
    ("container", "runtime"),
    [
        ("- image: ghcr.io/huggingface/text-generation-inference:3.0\n", "tgi"),
        ("- image: ghcr.io/ggml-org/llama.cpp:server-cuda\n  args: [-m, x.gguf]\n", "llamacpp"),
        ("- image: ollama/ollama:0.12\n", "ollama"),
        ("- image: x\n  command: [trtllm-serve, serve, m]\n", "tensorrt_llm"),
        ("- image: x\n  command: [python3, -m, dynamo.trtllm, --model, m]\n", "tensorrt_llm"),
    ],
)
def test_other_runtimes_are_named(read: Read, container: str, runtime: str) -> None:
    (launch,) = read("d.yaml", deployment(container)).launches
    assert launch.runtime == runtime


@pytest.mark.parametrize(
    "container",
    [
        "- image: lmsysorg/sglang:latest\n  command: [python3, -m, sglang_router.launch_router]\n",
        "- image: vllm/vllm-router:1\n  args: [--model, m]\n",
        "- image: aibrix/runtime:v0.3\n  command: [aibrix_runtime, --port, '8080']\n",
        "- image: vllm/vllm-openai:v0.12.0\n  command: [vllm, bench, serve, --model, m]\n",
        "- image: x\n  command: [bash, multi-node-serving.sh, worker]\n",
    ],
)
def test_routers_sidecars_and_clients_are_no_servers(read: Read, container: str) -> None:
    reading = read("d.yaml", deployment(container))
    assert reading.launches == ()
    assert reading.problems
    assert "container" in reading.ignored[0]


def test_probe_and_lifecycle_commands_are_not_launches(read: Read) -> None:
    container = EXEC + (
        "  livenessProbe: {exec: {command: [sh, -c, vllm serve probe]}}\n"
        "  lifecycle: {preStop: {exec: {command: [vllm, serve, late]}}}\n"
    )
    (launch,) = read("d.yaml", deployment(container)).launches
    assert words(launch)[0] == "org/model-7b"


def test_init_containers_are_ignored(read: Read) -> None:
    pod = "initContainers:\n- {name: fetch, image: x, command: [vllm, serve, no]}\n"
    reading = read("d.yaml", deployment(EXEC, pod=pod))
    assert len(reading.launches) == 1
    assert "Deployment/chat init container fetch" in reading.ignored


def test_kubelet_variables(read: Read) -> None:
    container = """\
- image: vllm/vllm-openai:v0.12.0
  command: [vllm, serve, $(MODEL), --max-model-len=$(LEN), --x=$(MISSING), --y=$$(MODEL)]
  env:
  - {name: MODEL, value: org/m}
  - {name: LEN, value: "$(BASE)"}
  - {name: BASE, value: "4096"}
"""
    (launch,) = read("d.yaml", deployment(container)).launches
    model, length, missing, escaped = launch.argv
    assert model.text == "org/m"
    # $(BASE) is used before it is defined: the kubelet leaves it as text
    assert length.text == "--max-model-len=$(BASE)"
    assert missing.unresolved == ("MISSING",)
    assert missing.text == "--x=$(MISSING)"
    assert escaped.text == "--y=$(MODEL)"


def test_env_from_config_maps_of_the_same_file(read: Read) -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
        "data: {MODEL: org/m, HF_TOKEN: hf_abcdefghijklmnopqrst}\n---\n"
    ) + deployment("""\
- image: vllm/vllm-openai:v0.12.0
  args: [--model, $(MODEL), --len, $(LEN)]
  envFrom: [{configMapRef: {name: settings}}]
  env: [{name: LEN, valueFrom: {configMapKeyRef: {name: settings, key: MODEL}}}]
""")
    (launch,) = read("d.yaml", text).launches
    assert words(launch) == ["--model", "org/m", "--len", "org/m"]
    assert launch.env["HF_TOKEN"].text == "***"


def test_secret_references_are_unresolved_where_they_are_used(read: Read) -> None:
    container = """\
- image: vllm/vllm-openai:v0.12.0
  args: [--model, m, --host, $(POD_IP)]
  env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
"""
    (launch,) = read("d.yaml", deployment(container)).launches
    assert launch.argv[3].unresolved == ("POD_IP",)
    assert launch.problems == ()


def test_placeholders_of_other_tools_are_unresolved(read: Read) -> None:
    container = """\
- image: IMAGE_NAME
  args: ["--model=${MODEL_NAME}", "--max-model-len", "<length>", "{{ .Values.seqs }}"]
"""
    (launch,) = read("d.yaml", deployment(container)).launches
    assert [word.unresolved for word in launch.argv] == [
        ("MODEL_NAME",),
        (),
        ("<length>",),
        ("{{ .Values.seqs }}",),
    ]
    kinds = {(p.kind, p.key) for p in launch.problems}
    assert (ProblemKind.UNRESOLVED, "image") in kinds
    assert launch.image is not None
    assert launch.image.unresolved == ("IMAGE_NAME",)


def test_block_script_lines_are_exact(read: Read) -> None:
    container = """\
- image: vllm/vllm-openai:v0.12.0
  command: [/bin/bash, -c]
  args:
  - |-
    # vllm serve in a comment
    export LEN=8192
    exec vllm serve org/m \\
      --max-model-len $LEN \\
      --kv-transfer-config '{"a": 1,
                             "b": 2}' \\
      --max-num-seqs ${SEQS:-64}  # shell comment
  env: [{name: OTHER, value: x}]
"""
    (launch,) = read("d.yaml", deployment(container)).launches
    assert words(launch)[:4] == ["org/m", "--max-model-len", "8192", "--kv-transfer-config"]
    assert words(launch)[5:] == ["--max-num-seqs", "64"]
    assert words(launch)[4].split() == ['{"a":', "1,", '"b":', "2}"]
    lines = [word.location.line for word in launch.argv]
    assert lines == [14, 15, 15, 16, 16, 18, 18]
    assert launch.location.line == 14
    assert launch.env["LEN"].text == "8192"


def test_double_quoted_scalar_over_two_lines(read: Read) -> None:
    container = """\
- image: vllm/vllm-openai:v0.8.5
  command:
  - sh
  - -c
  - "echo head;
     python3 -m vllm.entrypoints.openai.api_server --model org/m
     --tensor-parallel-size 8"
"""
    (launch,) = read("d.yaml", deployment(container)).launches
    assert words(launch) == ["--model", "org/m", "--tensor-parallel-size", "8"]
    assert [word.location.line for word in launch.argv] == [13, 13, 14, 14]


@pytest.mark.parametrize("dashes", [["--"], ["dummy-arg"], ["bash"]])
def test_what_follows_the_script_is_dollar_zero_and_then_arguments(
    read: Read, dashes: list[str]
) -> None:
    container = (
        "- image: x\n  command: [bash, -lc, 'exec vllm serve \"$@\"']\n"
        f"  args: {[*dashes, 'org/m', '--max-model-len', '10']}\n"
    )
    (launch,) = read("d.yaml", deployment(container)).launches
    assert words(launch) == ["org/m", "--max-model-len", "10"]


def test_unquoted_numbers_are_refused_by_kubernetes(read: Read) -> None:
    container = """\
- image: vllm/vllm-openai:v0.12.0
  args: [--model, m, --max-model-len, 4096, --port, "8000", --flag, true]
  env: [{name: SEQS, value: 8}]
"""
    (launch,) = read("d.yaml", deployment(container)).launches
    refused = [p for p in launch.problems if p.kind is ProblemKind.REFUSED]
    assert [p.value for p in refused] == ["8", "4096", "true"]
    assert refused[1].expected == '"4096"'
    assert words(launch)[3] == "4096"


def test_one_item_with_a_blank_is_refused_and_read_as_meant(read: Read) -> None:
    container = """\
- image: vllm/vllm-openai:v0.12.0
  args: [--model, m, "--max-model-len 4096", '{"a": 1}']
"""
    (launch,) = read("d.yaml", deployment(container)).launches
    assert words(launch) == ["--model", "m", "--max-model-len", "4096", '{"a": 1}']
    (problem,) = launch.problems
    assert problem.kind is ProblemKind.REFUSED
    assert "one argument with a blank inside" in problem.message


def test_a_whole_command_line_in_one_item(read: Read) -> None:
    container = '- image: x\n  command: ["vllm serve org/m --max-model-len 10"]\n'
    (launch,) = read("d.yaml", deployment(container)).launches
    assert words(launch) == ["org/m", "--max-model-len", "10"]
    assert launch.problems[0].kind is ProblemKind.REFUSED


def test_command_as_a_string_is_refused(read: Read) -> None:
    (launch,) = read("d.yaml", deployment("- image: x\n  command: vllm serve org/m\n")).launches
    assert words(launch) == ["org/m"]
    assert "takes a list" in launch.problems[0].message


def test_the_image_already_starts_the_server(read: Read) -> None:
    container = "- image: vllm/vllm-openai:v0.12.0\n  args: [vllm, serve, org/m]\n"
    (launch,) = read("d.yaml", deployment(container)).launches
    assert words(launch) == ["org/m"]
    assert launch.problems[0].kind is ProblemKind.REFUSED
    assert "already starts 'vllm serve'" in launch.problems[0].message


def test_an_unknown_image_with_vllm_flags_is_taken_as_vllm_with_a_warning(read: Read) -> None:
    container = "- image: registry.corp/llm:1\n  args: [--model=m, --max_model_len=10]\n"
    (launch,) = read("d.yaml", deployment(container)).launches
    assert launch.runtime == "vllm"
    assert launch.problems[0].kind is ProblemKind.WARNING


def test_a_launch_hidden_in_a_script_of_the_image(read: Read) -> None:
    reading = read(
        "d.yaml",
        deployment("- image: vllm/vllm-openai:v0.12.0\n  command: [bash, /opt/start.sh]\n"),
    )
    (problem,) = reading.problems
    assert problem.kind is ProblemKind.UNRESOLVED
    assert "/opt/start.sh" in problem.message


def test_a_script_and_a_config_from_a_config_map(read: Read) -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: files}\ndata:\n"
        "  start.sh: |\n    vllm serve org/m --config /etc/llm/conf.yaml\n"
        "  conf.yaml: |\n    max-model-len: 4096\n---\n"
    ) + deployment(
        """\
- image: x
  command: [bash, /etc/llm/start.sh]
  volumeMounts: [{name: v, mountPath: /etc/llm}]
""",
        pod="volumes: [{name: v, configMap: {name: files}}]\n",
    )
    (launch,) = read("d.yaml", text).launches
    assert words(launch) == ["org/m", "--config", "/etc/llm/conf.yaml"]
    assert launch.argv[0].location.line == 6
    (entry,) = launch.config_entries
    assert (entry.key, entry.value, entry.location.line) == ("max-model-len", 4096, 8)


def test_replicas_zero_and_suspended_jobs_are_not_deployed(read: Read) -> None:
    (off,) = read("d.yaml", deployment(EXEC, spec="replicas: 0\n")).launches
    (job,) = read("d.yaml", deployment(EXEC, kind="Job", spec="suspend: true\n")).launches
    assert not off.is_deployed
    assert not job.is_deployed


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "ReplicaSet", "Job"])
def test_other_workloads(read: Read, kind: str) -> None:
    (launch,) = read("d.yaml", deployment(EXEC, kind=kind)).launches
    assert launch.form == f"kubernetes {kind}"


def test_cron_jobs_pods_and_lists(read: Read) -> None:
    template = indent("containers:\n" + EXEC, "  ")
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: one}}\nspec:\n{template}"
    cron = (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: two}\nspec:\n  jobTemplate:\n"
        f"    spec:\n      template:\n        spec:\n{indent(template, '        ')}"
    )
    listed = "apiVersion: v1\nkind: List\nitems:\n- " + indent(pod, "  ")[2:]
    reading = read("d.yaml", f"{pod}\n---\n{cron}\n---\n{listed}")
    assert [launch.name for launch in reading.launches] == ["one", "two", "one-2"]


def test_stateful_set_replicas_as_nodes_of_one_server(read: Read) -> None:
    container = "- image: x\n  command: [vllm, serve, m, --nnodes, '2', --node-rank, $(RANK)]\n"
    container += "  resources: {limits: {nvidia.com/gpu: 8}}\n"
    (launch,) = read(
        "d.yaml", deployment(container, kind="StatefulSet", spec="replicas: 2\n")
    ).launches
    assert (launch.gpu.count, launch.gpu.pods_per_instance, launch.replicas) == (16, 2, 1)


LWS = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}
        containers:
        - name: leader
          image: vllm/vllm-openai:v0.22.1
          command: [sh, -c, "ray start --head --size $(LWS_GROUP_SIZE);
            vllm serve org/m -pp $(LWS_GROUP_SIZE) -dp $((LWS_GROUP_SIZE * 4))"]
          resources: {limits: {nvidia.com/gpu: "8"}}
    workerTemplate:
      spec:
        containers:
        - name: worker
          image: vllm/vllm-openai:v0.22.1
          command: [WORKER]
          resources: {limits: {nvidia.com/gpu: "8"}}
"""


def test_leader_worker_set_multiplies_by_its_size(read: Read) -> None:
    (launch,) = read("l.yaml", LWS.replace("WORKER", "sh, -c, ray start --address $X")).launches
    assert words(launch) == ["org/m", "-pp", "2", "-dp", "8"]
    assert (launch.gpu.count_per_pod, launch.gpu.count, launch.replicas) == (8, 16, 2)
    assert launch.gpu.labels[0].alternatives == ("nvidia-h100-80gb",)
    assert [word.location.line for word in launch.argv] == [15] * 5


def test_a_headless_worker_belongs_to_its_leader(read: Read) -> None:
    text = LWS.replace("WORKER", "vllm, serve, org/m, --headless")
    reading = read("l.yaml", text)
    assert [launch.name for launch in reading.launches] == ["big"]
    assert any("worker pods of the leader" in row for row in reading.ignored)


def test_a_worker_with_a_server_of_its_own(read: Read) -> None:
    reading = read("l.yaml", LWS.replace("WORKER", "vllm, serve, other/m"))
    assert [launch.name for launch in reading.launches] == ["big/leader", "big/worker"]


def test_worker_template_alone(read: Read) -> None:
    text = LWS.replace("leaderTemplate", "ignoredTemplate").replace(
        "WORKER", "vllm, serve, org/m, -dpr, $(LWS_WORKER_INDEX)"
    )
    (launch,) = read("l.yaml", text).launches
    assert launch.gpu.count == 16
    assert launch.argv[2].unresolved == ("LWS_WORKER_INDEX",)


def test_group_size_that_is_not_known(read: Read) -> None:
    text = LWS.replace("size: 2", "size: ${NODES}").replace("WORKER", "sleep")
    reading = read("l.yaml", text)
    (launch,) = reading.launches
    assert launch.gpu.count is None
    assert reading.problems[0].kind is ProblemKind.UNRESOLVED
    assert "NODES" in reading.problems[0].message


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("{requests: {nvidia.com/gpu: 1}}", "stands in requests and not in limits"),
        ("{limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 1}}", "differs"),
        ("{limits: {nvidia.com/gpu: two}}", "expected a whole number"),
        ("{limits: {nvidia.com/gpu: '${GPUS}'}}", "GPUS"),
        ("{claims: [{name: gpu}]}", "resourceClaims"),
    ],
)
def test_gpu_counts_that_do_not_work(read: Read, resources: str, message: str) -> None:
    container = f"- image: x\n  command: [vllm, serve, m]\n  resources: {resources}\n"
    (launch,) = read("d.yaml", deployment(container)).launches
    assert message in launch.problems[0].message


@pytest.mark.parametrize(
    "resource", ["nvidia.com/mig-1g.10gb", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi"]
)
def test_resource_names(read: Read, resource: str) -> None:
    container = (
        f"- image: x\n  command: [vllm, serve, m]\n  resources: {{limits: {{{resource}: 4}}}}\n"
    )
    (launch,) = read("d.yaml", deployment(container)).launches
    assert (launch.gpu.resource, launch.gpu.count) == (resource, 4)


def affinity(terms: str) -> str:
    return (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:"
        f" {{nodeSelectorTerms: {terms}}}}}}}\n"
    )


def labels(read: Read, pod: str) -> list[tuple[str, tuple[str, ...]]]:
    (launch,) = read("d.yaml", deployment(EXEC, pod=pod)).launches
    return [(label.key, label.alternatives) for label in launch.gpu.labels]


def test_node_selector_labels(read: Read) -> None:
    pod = "nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4, disk: ssd}\n"
    assert labels(read, pod) == [("nvidia.com/gpu.product", ("NVIDIA-L4",))]


def test_affinity_values_and_terms_are_alternatives(read: Read) -> None:
    key = "node.kubernetes.io/instance-type"
    one = f"{{matchExpressions: [{{key: {key}, operator: In, values: [a, b]}}]}}"
    two = f"{{matchExpressions: [{{key: {key}, operator: In, values: [b, c]}}]}}"
    assert labels(read, affinity(f"[{one}, {two}]")) == [(key, ("a", "b", "c"))]


def test_affinity_that_leaves_the_gpu_open_says_nothing(read: Read) -> None:
    key = "nvidia.com/gpu.product"
    one = f"{{matchExpressions: [{{key: {key}, operator: In, values: [a]}}]}}"
    no = f"{{matchExpressions: [{{key: {key}, operator: NotIn, values: [a]}}]}}"
    assert labels(read, affinity(f"[{one}, {{matchExpressions: []}}]")) == []
    assert labels(read, affinity(f"[{no}]")) == []
    preferred = affinity(f"[{one}]").replace("required", "preferred")
    assert labels(read, preferred) == []


def test_visible_devices_narrow_the_count(read: Read) -> None:
    container = EXEC + '  env: [{name: CUDA_VISIBLE_DEVICES, value: "0"}]\n'
    (launch,) = read("d.yaml", deployment(container)).launches
    assert (launch.gpu.count, launch.gpu.count_source) == (1, "CUDA_VISIBLE_DEVICES")


def test_alternatives_of_an_undecided_script(read: Read) -> None:
    container = """\
- image: x
  command:
  - sh
  - -c
  - |
    if [ "$RANK" = 0 ]; then
      vllm serve org/m --port 1
    else
      vllm serve org/m --port 2
    fi
  env: [{name: RANK, valueFrom: {fieldRef: {fieldPath: x}}}]
"""
    first, second = read("d.yaml", deployment(container)).launches
    assert (first.name, second.name) == ("chat", "chat-2")
    assert (words(first)[-1], words(second)[-1]) == ("1", "2")
    assert "line 13 decides" in first.notes[0]


def test_comments_that_name_a_gpu_are_notes(read: Read) -> None:
    (launch,) = read("d.yaml", "# runs on 2x H100 nodes\n" + deployment(EXEC)).launches
    assert launch.notes == ("a comment in line 1 names 2x H100",)
    assert launch.gpu.labels == ()


def test_a_patch_without_image(read: Read) -> None:
    reading = read("patch.yaml", deployment("- name: server\n  args: [--model-id=x]\n"))
    assert reading.launches == ()
    assert "has no image" in reading.problems[0].message


def test_a_broken_secret_does_not_hide_the_deployment(read: Read) -> None:
    text = deployment(EXEC) + "---\napiVersion: v1\nkind: Secret\nstringData: {a: b: c}\n"
    reading = read("d.yaml", text)
    assert len(reading.launches) == 1
    (problem,) = reading.problems
    assert problem.kind is ProblemKind.WARNING
    assert problem.location.line == 22


def test_unquoted_template_value_in_another_document(read: Read) -> None:
    text = deployment(EXEC) + "---\napiVersion: v1\nkind: Secret\nstringData:\n  t: {{HF_TOKEN}}\n"
    reading = read("d.yaml", text)
    assert len(reading.launches) == 1
    assert reading.problems == ()


def test_a_document_without_pod(read: Read) -> None:
    reading = read("d.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n")
    assert "has no spec.template.spec" in reading.problems[0].message
