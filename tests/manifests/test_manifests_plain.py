"""Dockerfiles, units, Makefiles, Modelfiles: text with rules of its own."""

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


@pytest.mark.parametrize(
    ("text", "argv", "lines"),
    [
        ('FROM vllm/vllm-openai:v0.12.0\nCMD ["m", "-tp", \\\n     "2"]\n', ["m", "-tp", "2"],
         [2, 2, 3]),
        ("FROM vllm/vllm-openai:v0.12.0\nENTRYPOINT vllm serve m \\\n  -tp 2\nCMD x\n",
         ["m", "-tp", "2"], [2, 3, 3]),
        ('FROM x AS base\nENTRYPOINT ["vllm", "serve"]\nFROM base\nCMD ["m"]\n', ["m"], [4]),
        ('ARG TAG=v0.12.0\nFROM vllm/vllm-openai:${TAG}\nARG M=a/b\nENV X=1 N=$M\n'
         "CMD vllm serve $N\n", ["a/b"], [5]),
        ("FROM x\nENV M m\n# CMD vllm serve no\nCMD vllm serve ${M}\n", ["m"], [4]),
        ('FROM vllm/vllm-openai:v0.12.0 AS a\nCMD ["no"]\nFROM vllm/vllm-openai:v0.12.0\n'
         'CMD ["m"]\n', ["m"], [4]),
    ],
)  # fmt: skip
def test_dockerfiles(read: Read, text: str, argv: list[str], lines: list[int]) -> None:
    launch = only(read("Dockerfile.chat", text))
    assert (launch.name, launch.form, words(launch)) == ("chat", "dockerfile", argv)
    assert [word.location.line for word in launch.argv] == lines


def test_the_base_image_of_a_dockerfile_is_its_image(read: Read) -> None:
    text = "ARG TAG\nFROM vllm/vllm-openai:${TAG}\nCMD [m]\n"
    launch = only(read("Dockerfile", text))
    assert launch.image is not None
    assert launch.image.unresolved == ("TAG",)
    assert launch.problems[0].kind is ProblemKind.UNRESOLVED
    assert "without FROM" in read("Dockerfile", "CMD x\n").problems[0].message


def test_units_expand_their_environment(read: Read) -> None:
    text = """\
    [Unit]
    Description=vllm serve other
    [Service]
    Environment="A=1 2" LEN=4096
    Environment=CUDA_VISIBLE_DEVICES=0,1
    EnvironmentFile=-/etc/chat.env
    ExecStartPre=/bin/sleep 1
    ExecStart=
    ExecStart=-/usr/bin/env vllm serve $MODEL \\
        --max-model-len ${LEN}
    """
    launch = only(read("chat.service", text, chat__env="MODEL=org/model\n"))
    assert (launch.name, launch.form) == ("chat", "systemd")
    assert words(launch) == ["org/model", "--max-model-len", "4096"]
    assert [word.location.line for word in launch.argv] == [9, 10, 10]
    assert (launch.gpu.count, launch.gpu.count_source) == (2, "CUDA_VISIBLE_DEVICES")


def test_quadlets_run_an_image(read: Read) -> None:
    text = """\
    [Container]
    Image=docker.io/vllm/vllm-openai:v0.12.0
    AddDevice=nvidia.com/gpu=0
    Exec=--model m --max-model-len 8
    """
    launch = only(read("chat.container", text))
    assert (launch.form, words(launch)) == ("quadlet", ["--model", "m", "--max-model-len", "8"])
    assert launch.gpu.count == 1


def test_makefiles_expand_their_own_variables(read: Read) -> None:
    text = (
        "MODEL ?= org/$(NAME)\nNAME = model\n\nall: serve\n\n"
        "serve: deps\n\t@echo start\n\t@vllm serve $(MODEL) \\\n\t  --max-model-len $${LEN:-8}"
        " -tp $(TP)\n\ntest:\n\techo vllm serve\n"
    )
    launch = only(read("Makefile", text))
    assert (launch.name, launch.form) == ("serve", "makefile")
    assert words(launch)[:3] == ["org/model", "--max-model-len", "8"]
    assert launch.argv[4].unresolved == ("TP",)
    assert [word.location.line for word in launch.argv] == [8, 9, 9, 9, 9]


def test_procfiles_have_one_command_a_line(read: Read) -> None:
    reading = read("Procfile", "web: gunicorn app\nllm: vllm serve m --max-model-len 8\n")
    launch = only(reading)
    assert (launch.name, launch.form, launch.argv[0].location.line) == ("llm", "procfile", 2)
    assert any(text.startswith("web:") for text in reading.ignored)


def test_modelfiles(read: Read) -> None:
    text = 'FROM qwen3:8b\nPARAMETER num_ctx 4096\nSYSTEM """\nFROM no\n"""\n'
    launch = only(read("Modelfile.chat", text))
    assert (launch.name, launch.runtime, words(launch)) == ("chat", "ollama", ["qwen3:8b"])
    assert [(e.key, e.value) for e in launch.config_entries] == [("PARAMETER num_ctx", "4096")]
    assert "without FROM" in read("Modelfile", "PARAMETER a 1\n").problems[0].message


def test_a_model_that_another_service_pulls(read: Read) -> None:
    text = """\
    services:
      ollama: {image: ollama/ollama}
      pull: {image: ollama/ollama, entrypoint: [sh, -c, "ollama pull qwen3:8b"]}
    """
    launch = only(read("compose.yaml", text))
    assert [(s.source, s.location.line) for s in launch.model_sources] == [("qwen3:8b", 3)]


def test_models_of_compose(read: Read) -> None:
    text = 'services: {a: {image: x}}\nmodels: {m: {model: "ai/x:${Q:-4}", context_size: 8}}\n'
    launch = only(read("compose.yaml", text))
    assert words(launch) == ["ai/x:4", "--ctx-size", "8"]


def test_names_that_differ_only_in_the_form(read: Read) -> None:
    knative = (
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: chat}\n"
        "spec: {template: {spec: {containers: [{image: vllm/vllm-openai, args: [m]}]}}}\n"
    )
    assert words(only(read("k.yaml", knative))) == ["m"]
    plain = read("s.yaml", "apiVersion: v1\nkind: Service\nspec: {}\n")
    assert plain.launches == ()
