"""Laws over all forms: an argument list written into a form is read back; bad input is told."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_llmserve.manifests.launch import Reading
from pytest_llmserve.manifests.reader import read_file

from test_manifests_forms import EXAMPLES  # isort: skip
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "Qwen/Qwen3-8B"
NAMES = ["max-model-len", "kv-cache-dtype", "served-model-name", "max_num_seqs", "hf-overrides"]
# Text that no form expands: the forms differ in what they do with $, {{ and <...>.
VALUES = st.one_of(
    st.integers(0, 10**6).map(str),
    st.text("abcXYZ019 .,:;=_/'\"[]{}()#&|!*?~@%^+-é", min_size=1, max_size=16).filter(
        lambda text: "{{" not in text and "{%" not in text and not text.startswith("-")
    ),
    st.just('{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'),
)
FLAGS = st.lists(
    st.tuples(st.sampled_from(NAMES), VALUES), min_size=1, max_size=4, unique_by=lambda p: p[0]
)
QUIET = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def quoted(words: list[str]) -> str:
    return json.dumps(words, ensure_ascii=False)


def script(words: list[str]) -> str:
    return json.dumps(shlex.join(["vllm", "serve", MODEL, *words]), ensure_ascii=False)


def pod(words: list[str], command: str = '["vllm", "serve", "Qwen/Qwen3-8B"]') -> str:
    return f"{{containers: [{{image: x, command: {command}, args: {quoted(words)}}}]}}"


def kind(kind: str, spec: str, version: str = "v1") -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: chat}}\nspec: {spec}\n"


def dynamo(words: list[str]) -> str:
    main = f"{{image: x, command: [python3, -m, dynamo.vllm], args: {quoted(words)}}}"
    spec = f"{{services: {{w: {{extraPodSpec: {{mainContainer: {main}}}}}}}}}"
    return kind("DynamoGraphDeployment", spec, "nvidia.com/v1alpha1")


def modelservice(words: list[str]) -> str:
    container = f"{{image: x, modelCommand: vllmServe, args: {quoted(words)}}}"
    return f"modelArtifacts: {{uri: hf://{MODEL}}}\ndecode: {{containers: [{container}]}}\n"


def production_stack(words: list[str]) -> str:
    spec = f"{{name: a, modelURL: {MODEL}, vllmConfig: {{extraArgs: {quoted(words)}}}}}"
    return f"servingEngineSpec: {{modelSpec: [{spec}]}}\n"


def compose(words: list[str]) -> str:
    escaped = [word.replace("$", "$$") for word in words]
    return f"services: {{a: {{image: vllm/vllm-openai, command: {quoted(escaped)}}}}}\n"


def compose_string(words: list[str]) -> str:
    command = json.dumps(shlex.join(words), ensure_ascii=False)
    return f"services: {{a: {{image: vllm/vllm-openai, command: {command}}}}}\n"


def isvc(words: list[str]) -> str:
    model = f"{{modelFormat: {{name: huggingface}}, args: {quoted(words)}}}"
    return kind("InferenceService", f"{{predictor: {{model: {model}}}}}", "serving.kserve.io/v1")


def llmisvc(words: list[str]) -> str:
    value = json.dumps(shlex.join(words), ensure_ascii=False)
    template = f"{{containers: [{{env: [{{name: VLLM_ADDITIONAL_ARGS, value: {value}}}]}}]}}"
    return kind("LLMInferenceService", f"{{model: {{uri: x}}, template: {template}}}")


def ome(words: list[str]) -> str:
    runner = f"{{image: x, command: [vllm, serve, m], args: {quoted(words)}}}"
    spec = f"{{engineConfig: {{runner: {runner}}}}}"
    return kind("ClusterServingRuntime", spec, "ome.io/v1beta1")


def playground(words: list[str]) -> str:
    config = f"{{args: {quoted(words)}}}"
    spec = f"{{modelClaim: {{modelName: m}}, backendRuntimeConfig: {config}}}"
    return kind("Playground", spec, "inference.llmaz.io/v1alpha1")


def storm(words: list[str]) -> str:
    roles = f"[{{name: a, template: {{spec: {pod(words)}}}}}]"
    return kind("StormService", f"{{template: {{spec: {{roles: {roles}}}}}}}")


def values(words: list[str]) -> str:
    return f"image: {{repository: vllm/vllm-openai, tag: v0.19.1}}\nextraArgs: {quoted(words)}\n"


def dockerfile(words: list[str]) -> str:
    return f"FROM vllm/vllm-openai:v0.19.1\nCMD {quoted(words)}\n"


def llama_swap(words: list[str]) -> str:
    return f"healthCheckTimeout: 1\nmodels: {{a: {{cmd: {script(words)}}}}}\n"


def truss(words: list[str]) -> str:
    inner = shlex.quote(shlex.join(["vllm", "serve", MODEL, *words]))
    command = json.dumps(f"sh -c {inner}", ensure_ascii=False)
    return f"model_name: a\ndocker_server: {{start_command: {command}}}\n"


def skypilot(words: list[str]) -> str:
    return f"resources: {{accelerators: L4}}\nrun: {script(words)}\n"


def blueprint(words: list[str]) -> str:
    recipe = {"recipe_id": "a", "recipe_image_uri": "vllm/vllm-openai"}
    return json.dumps({**recipe, "recipe_container_command_args": words})


FORMS = {
    "d.yaml": lambda w: kind("Deployment", f"{{template: {{spec: {pod(w)}}}}}", "apps/v1"),
    "pod-script.yaml": lambda w: kind(
        "Pod", f"{{containers: [{{image: x, command: [sh, -c], args: [{script(w)}]}}]}}"
    ),
    "storm.yaml": storm,
    "compose.yaml": compose,
    "compose-text.yaml": compose_string,
    "serve.sh": lambda w: f"#!/bin/sh\n{shlex.join(['vllm', 'serve', MODEL, *w])}\n",
    "run.sh": lambda w: f"docker run --gpus all vllm/vllm-openai:v0.19.1 {shlex.join(w)}\n",
    "Dockerfile": dockerfile,
    "production-stack.yaml": production_stack,
    "modelservice.yaml": modelservice,
    "values.yaml": values,
    "isvc.yaml": isvc,
    "llmisvc.yaml": llmisvc,
    "dynamo.yaml": dynamo,
    "kubeai.yaml": lambda w: kind(
        "Model", f"{{url: 'hf://{MODEL}', engine: VLLM, args: {quoted(w)}}}", "kubeai.org/v1"
    ),
    "ome.yaml": ome,
    "llmaz.yaml": playground,
    "sky.yaml": skypilot,
    "dstack.yaml": lambda w: f"type: service\ncommands: [{script(w)}]\n",
    "truss.yaml": truss,
    "bento.yaml": lambda w: f"args: {{model_id: {MODEL}, cli_args: {quoted(w)}}}\n",
    "recipe.yaml": lambda w: (
        f"meta: {{}}\nmodel: {{model_id: {MODEL}}}\nvariants: {{a: {{extra_args: {quoted(w)}}}}}\n"
    ),
    "blueprint.json": blueprint,
    "swap.yaml": llama_swap,
}


@pytest.mark.parametrize("name", FORMS)
@given(flags=FLAGS)
@example(flags=[("hf-overrides", '{"a": "it\'s \\"b\\""}')])
@QUIET
def test_arguments_written_into_a_form_are_read_back(
    tmp_path: Path, name: str, flags: list[tuple[str, str]]
) -> None:
    words = [word for flag, value in flags for word in (f"--{flag}", value)]
    path = tmp_path / name
    path.write_text(FORMS[name](words), encoding="utf-8")
    reading = read_file(path, display=name)
    assert len(reading.launches) == 1, reading
    found = [word.text for word in reading.launches[0].argv]
    position = found.index(words[0])
    assert found[position : position + len(words)] == words


PIECES = st.sampled_from(
    [
        *("\t", "\0", "{{", "}}", "${", "$(", "`", "'", '"', ": ", "- ", "&a ", "*a", "!x "),
        *("<<: *a", "|", "\n---\n", "\n  ", "\\", "[", "]", "{", "}", "#", "<<<<<<< a\n", "é"),
        *("\ufeff", "null", "%"),
    ]
)


@pytest.mark.parametrize("seed", EXAMPLES, ids=lambda seed: seed["title"])
@given(data=st.data())
@QUIET
def test_mutated_files_yield_only_located_problems(
    tmp_path: Path, seed: dict[str, str], data: st.DataObject
) -> None:
    text = seed["text"]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 24)))
        text = text[:start] + data.draw(PIECES) + text[end:]
    path = tmp_path / seed["name"]
    path.write_text(text, encoding="utf-8")
    reading = read_file(path, display="f")
    assert isinstance(reading, Reading)
    assert reading.launches or reading.problems
    problems = [p for launch in reading.launches for p in launch.problems]
    for problem in (*reading.problems, *problems):
        assert problem.message
        assert problem.location.line >= 1
