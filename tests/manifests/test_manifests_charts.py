"""Helm and kustomize: templates read by themselves, tools run only where they are allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from pytest_llmserve.manifests.charts import rendering
from pytest_llmserve.manifests.options import OwnForm, ReadOptions
from pytest_llmserve.manifests.reader import read_file
from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from pathlib import Path

    from manifest_files import Read

    from pytest_llmserve.manifests.launch import Launch

RENDERED = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: rendered}
spec: {template: {spec: {containers: [{image: vllm/vllm-openai:v0.12.0, args: [m]}]}}}
"""
TEMPLATE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-chat
spec:
  replicas: {{ .Values.replicas | default 3 }}
  template:
    spec:
      containers:
        - image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
          args:
            - --model={{ .Values.model }}
            {{- if .Values.maxLen }}
            - --max-model-len={{ .Values.maxLen }}
            {{- else }}
            - --max-model-len=1
            {{- end }}
            {{- range .Values.extra }}
            - {{ . | quote }}
            {{- end }}
          resources: {{- toYaml .Values.resources | nindent 12 }}
"""
VALUES = """\
image: {repository: vllm/vllm-openai, tag: v0.12.0}
model: org/model
maxLen: 4096
resources: {limits: {nvidia.com/gpu: 2}}
"""


def chart(tmp_path: Path, values: str = VALUES) -> Path:
    (tmp_path / "templates").mkdir(parents=True)
    (tmp_path / "Chart.yaml").write_text("name: c\n")
    (tmp_path / "values.yaml").write_text(values)
    path = tmp_path / "templates" / "deployment.yaml"
    path.write_text(TEMPLATE)
    return path


def words(launch: Launch) -> list[str]:
    return [word.text for word in launch.argv]


def test_a_template_takes_plain_values_from_its_chart(tmp_path: Path) -> None:
    reading = read_file(chart(tmp_path), display="t.yaml")
    (launch,) = reading.launches
    assert words(launch) == ["--model=org/model", "--max-model-len=4096"]
    assert [word.location.line for word in launch.argv] == [12, 14]
    assert launch.image is not None
    assert launch.image.text == "vllm/vllm-openai:v0.12.0"
    assert (launch.gpu.count, launch.replicas) == (2, 3)
    assert reading.problems == ()


def test_without_values_every_choice_is_unresolved(tmp_path: Path) -> None:
    path = tmp_path / "deployment.yaml"
    path.write_text(TEMPLATE)
    reading = read_file(path, display="t.yaml")
    (launch,) = reading.launches
    assert launch.argv[0].unresolved == (".Values.model",)
    (problem,) = reading.problems
    assert problem.kind is ProblemKind.UNRESOLVED
    assert "the lines 13, 18, 21" in problem.message
    assert problem.location.line == 13


def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{dedent(script)}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_helm_runs_only_where_the_policy_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart(tmp_path / "chart")
    values = tmp_path / "chart" / "values.yaml"
    tool(
        tmp_path,
        monkeypatch,
        "helm",
        f"""
        import sys
        assert sys.argv[1:3] == ["template", "release"] and sys.argv[4:5] == ["--values"]
        print({RENDERED!r})
        """,
    )
    plain = read_file(values, display="values.yaml")
    assert [launch.name for launch in plain.launches] == ["values"]
    assert any(p.kind is ProblemKind.UNRESOLVED for p in plain.launches[0].problems)
    allowed = read_file(
        values, display="values.yaml", options=ReadOptions(render=frozenset({"helm"}))
    )
    assert [launch.name for launch in allowed.launches] == ["rendered"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "there is no `helm`"),
        ("import sys; sys.exit('Error: token hf_abcdefghijklmnopqrst')", "failed with status 1"),
        ("import time; time.sleep(60)", "took longer than"),
        ("print('a: [')", "not valid YAML"),
        ("print('kind: Service\\napiVersion: v1')", "no server in the output"),
    ],
)
def test_a_tool_that_fails_is_never_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, message: str
) -> None:
    chart(tmp_path / "chart")
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        tool(tmp_path, monkeypatch, "helm", script)
    monkeypatch.setattr(rendering, "TIMEOUT_S", 1)
    path = tmp_path / "chart" / "values.yaml"
    reading = read_file(
        path, display="values.yaml", options=ReadOptions(render=frozenset({"helm"}))
    )
    assert reading.launches == ()
    (problem,) = reading.problems
    assert message in problem.message
    assert "hf_abc" not in problem.message


def test_a_kustomization_is_built_where_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kustomization.yaml"
    path.write_text("resources: [base.yaml]\n")
    refused = read_file(path, display="k.yaml")
    assert refused.launches == ()
    assert 'render = ["kustomize"]' in refused.problems[0].message
    tool(tmp_path, monkeypatch, "kubectl", f"print({RENDERED!r})")
    built = read_file(path, display="k.yaml", options=ReadOptions(render=frozenset({"kustomize"})))
    assert [launch.name for launch in built.launches] == ["rendered"]


def test_values_of_an_unknown_chart_are_unresolved(read: Read) -> None:
    text = """\
    vllm:
      image: {repository: vllm/vllm-openai, tag: v0.12.0}
      model: {id: org/model}
      maxModelLen: 4096
      extraArgs: ["--max-num-seqs", "8"]
      resources: {limits: {nvidia.com/gpu: 1}}
    tgi: {enabled: false, image: {repository: ghcr.io/huggingface/text-generation-inference}}
    agent: {llm_engine: vllm, model: org/model}
    """
    chat, tgi = read("values.yaml", text).launches
    assert words(chat) == ["org/model", "--max-num-seqs", "8", "--max-model-len=4096"]
    assert chat.image is not None
    assert chat.image.text == "vllm/vllm-openai:v0.12.0"
    assert (chat.gpu.count, chat.is_deployed) == (1, True)
    assert [p.kind for p in chat.problems] == [ProblemKind.UNRESOLVED]
    assert (tgi.runtime, tgi.is_deployed) == ("tgi", False)


def test_misplaced_arguments_of_the_production_stack_are_told(read: Read) -> None:
    text = """\
    servingEngineSpec:
      modelSpec:
        - {name: a, repository: vllm/vllm-openai, tag: v0.12.0, modelURL: m, requestGPU: 1,
           extraArgs: [--max-model-len=8]}
    """
    (launch,) = read("values.yaml", text).launches
    assert words(launch) == ["m"]
    (problem,) = launch.problems
    assert (problem.kind, problem.key) == (ProblemKind.WARNING, "extraArgs")


OWN = """\
fleet:
  chat:
    engine: {args: [--max-model-len, "4096"], model: org/model, image: "vllm/vllm-openai:v0.12.0"}
    machine: {gpu: h100, count: 2}
  code:
    engine: {args: "--max-model-len 1", model: org/other}
"""


def test_a_form_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "fleet" / "prod.yaml"
    path.parent.mkdir()
    path.write_text(OWN)
    form = OwnForm(
        file="fleet/*.yaml",
        servers="fleet.*",
        argv="engine.args",
        model="engine.model",
        image="engine.image",
        gpu="machine.gpu",
        gpu_count="machine.count",
    )
    options = ReadOptions(forms=(form,), base_dir=tmp_path)
    chat, code = read_file(path, display="prod.yaml", options=options).launches
    assert (chat.name, words(chat)) == ("chat", ["org/model", "--max-model-len", "4096"])
    assert (chat.gpu.count, chat.gpu.labels[0].alternatives) == (2, ("h100",))
    assert [word.location.line for word in chat.argv] == [3, 3, 3]
    assert (code.name, words(code)) == ("code", ["org/other", "--max-model-len", "1"])
    assert code.gpu.count is None
    elsewhere = read_file(path, display="p.yaml", options=ReadOptions(forms=(form,)))
    assert {launch.form for launch in elsewhere.launches} == {"helm values"}


def test_an_own_form_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("fleet: {chat: {engine: {}}}\n")
    for form in (
        OwnForm(file="*.yaml", servers="fleet.*", argv="engine.args"),
        OwnForm(file="*.yaml", servers="ships.*", argv="engine.args"),
    ):
        options = ReadOptions(forms=(form,), base_dir=tmp_path)
        reading = read_file(path, display="a.yaml", options=options)
        assert reading.launches == ()
        assert reading.problems[0].kind is ProblemKind.UNKNOWN


def test_a_plain_manifest_loads_no_other_reader(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(RENDERED)
    code = (
        "import sys; from pathlib import Path;"
        "from pytest_llmserve.manifests.reader import read_file;"
        f"assert read_file(Path({str(path)!r})).launches;"
        "print([m for m in sys.modules if m.startswith('pytest_llmserve.manifests.')])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    for other in ("operators", "charts", "platforms", "plain", "dispatch", "shell_run", "making"):
        assert f"manifests.{other}" not in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "backend: vllm\nmodel: org/model\nnum_prompts: 100\n",  # a benchmark's settings
        "model-path: x\nport: 80\n",
        "name: a\nspecs: [{a: 1}]\n",
        "backend: x\nparameters: {a: 1}\n",
        "catalog: {a: {b: 1}}\n",
        "supervisor: {llm_engine: vllm, model: org/model}\n",
        "scenario: a\n",
    ],
)
def test_settings_of_something_else_are_no_server(read: Read, text: str) -> None:
    reading = read("settings.yaml", text)
    assert reading.launches == ()
    assert [p.kind for p in reading.problems] == [ProblemKind.UNKNOWN]


def test_a_model_service_starts_what_its_chart_writes(read: Read) -> None:
    text = """\
    modelArtifacts: {name: org/model, uri: "pvc://claim/models/m"}
    multinode: true
    decode:
      parallelism: {tensor: 2, data: 8, dataLocal: 4}
      containers:
        - {name: vllm, image: x, modelCommand: vllmServe, args: [--tensor-parallel-size, "1"]}
    prefill:
      create: false
      parallelism: {tensor: 4}
      containers:
        - {name: vllm, image: x, command: [vllm, serve, m], args: [-tp, $(TP_SIZE)]}
    """
    decode, prefill = read("v.yaml", text).launches
    assert words(decode) == [
        *("/model-cache/models/m", "--tensor-parallel-size", "2", "--data-parallel-size", "8"),
        *("--data-parallel-size-local", "4", "--tensor-parallel-size", "1"),
    ]
    assert (decode.gpu.count_per_pod, decode.gpu.pods_per_instance) == (8, 2)
    assert [s.source for s in decode.model_sources] == ["org/model"]
    assert (words(prefill), prefill.is_deployed) == (["m", "-tp", "4"], False)
    assert prefill.gpu.count == 4


def test_a_ray_server_of_the_production_stack_has_one_instance(read: Read) -> None:
    text = """\
    servingEngineSpec:
      modelSpec:
        - name: a
          repository: vllm/vllm-openai
          tag: v0.12.0
          modelURL: m
          replicaCount: 3
          requestGPU: 2
          vllmConfig: {tensorParallelSize: 2, pipelineParallelSize: 4}
          lmcacheConfig: {enabled: true, kvRole: kv_producer, enablePD: true, nixlRole: sender}
          raySpec: {enabled: true, headNode: {requestGPU: 2}}
    """
    (launch,) = read("values.yaml", text).launches
    assert (launch.gpu.count_per_pod, launch.gpu.pods_per_instance, launch.replicas) == (2, 4, 1)
    assert words(launch)[:2] == ["m", "--no-enable-prefix-caching"]
    transfer = json.loads(words(launch)[-1])
    assert transfer["kv_role"] == "kv_producer"
    assert transfer["kv_connector_extra_config"]["lmcache_rpc_port"] == "sender"
