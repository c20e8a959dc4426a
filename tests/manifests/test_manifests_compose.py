from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from pathlib import Path

    from manifest_files import Read

    from pytest_llmserve.manifests.launch import Launch


def words(launch: Launch) -> list[str]:
    return [word.text for word in launch.argv]


def service(rest: str) -> str:
    rows = "".join(f"    {row}\n" for row in rest.strip("\n").split("\n"))
    return f"services:\n  chat:\n    image: vllm/vllm-openai:v0.12.0\n{rows}"


def test_a_string_command_is_split_and_placed(read: Read) -> None:
    text = service("""
command: >
  --model ${MODEL:-org/m}
  --max-model-len ${LEN:-8192}
  --override '{"a": 1}' "x y"
deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
""")
    reading = read("compose.yaml", text)
    (launch,) = reading.launches
    assert (launch.name, launch.form, launch.entrypoint) == ("chat", "compose", "vllm serve")
    assert words(launch) == [
        "--model",
        "org/m",
        "--max-model-len",
        "8192",
        "--override",
        '{"a": 1}',
        "x y",
    ]
    assert [word.location.line for word in launch.argv] == [5, 5, 6, 6, 7, 7, 7]
    assert (launch.gpu.count, launch.gpu.resource) == (2, "nvidia.com/gpu")
    assert reading.problems == ()


def test_a_list_command(read: Read) -> None:
    text = service("""
command:
  - --model
  - ${MODEL:-org/m}
  - "${PREFIX_ARG:---enable-prefix-caching}"
  - --kv-cache-memory-bytes=${X-}
  - ${EAGER:+--enforce-eager}
""")
    (launch,) = read("compose.yaml", text).launches
    assert words(launch) == [
        "--model",
        "org/m",
        "--enable-prefix-caching",
        "--kv-cache-memory-bytes=",
        "",
    ]
    assert [word.location.line for word in launch.argv] == [5, 6, 7, 8, 9]


def test_values_come_from_the_env_file_beside(read: Read, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# comment\nexport MODEL='org/m' \nLEN=4096 # tokens\nBOTH=${MODEL}-x\nEMPTY=\n"
    )
    text = service("command: --model $MODEL --len ${LEN:-1} --n ${BOTH} --e ${EMPTY:-d} ${EMPTY-d}")
    (launch,) = read("compose.yaml", text).launches
    assert words(launch) == ["--model", "org/m", "--len", "4096", "--n", "org/m-x", "--e", "d"]


def test_env_file_key_feeds_the_container_only(read: Read) -> None:
    text = service("""
env_file: vars.env
environment: [B=$LEN, "C=c"]
entrypoint: [sh, -c, 'vllm serve $$MODEL --len "$LEN" --c $$C']
""")
    (launch,) = read("compose.yaml", text, vars__env="MODEL=org/m\nLEN=1\n").launches
    model, _, length, _, c = launch.argv
    assert model.text == "org/m"
    assert length.unresolved == ("LEN",)  # compose itself expands it, and does not know it
    assert c.text == "c"


def test_nested_defaults_and_dollars(read: Read) -> None:
    text = service("command: ['${A:-${B:-deep}}', '$$HOME', '${A:?needed}', 'a$', '$1']")
    (launch,) = read("compose.yaml", text).launches
    assert words(launch) == ["deep", "$HOME", "${A}", "a$", "$1"]
    assert [word.unresolved for word in launch.argv] == [(), (), ("A",), (), ()]


def test_a_script_with_parameters(read: Read) -> None:
    text = service("""
entrypoint:
  - /bin/bash
  - -c
  - |
    ARGS=()
    if [ "$${SPEC:-3}" -gt 0 ]; then
      ARGS=(--speculative-config "{\\"n\\": $${SPEC:-3}}")
    fi
    exec vllm serve $${EAGER:+--enforce-eager} "$$@" "$${ARGS[@]}"
  - --
command: [--model, org/m]
environment: {EAGER: 1}
""")
    (launch,) = read("compose.yaml", text).launches
    assert words(launch) == [
        "--enforce-eager",
        "--model",
        "org/m",
        "--speculative-config",
        '{"n": 3}',
    ]
    assert [word.location.line for word in launch.argv] == [12, 14, 14, 10, 10]


def test_what_compose_refuses(read: Read) -> None:
    text = service("entrypoint: [sh, -c, 'vllm serve ${ARGS[@]}']")
    (launch,) = read("compose.yaml", text).launches
    refused = [p for p in launch.problems if p.kind is ProblemKind.REFUSED]
    assert "write '$$'" in refused[0].message
    assert refused[0].location.line == 4


def test_anchors_merges_and_extends(read: Read) -> None:
    text = """\
    x-gpu: &gpu
      gpus: all
      environment: {CUDA_VISIBLE_DEVICES: "0,1"}
    services:
      base:
        image: vllm/vllm-openai:v0.12.0
        command: --model base
      one:
        <<: *gpu
        image: vllm/vllm-openai:v0.12.0
        command: --model one
      two: {extends: base, command: --model two}
      three: {extends: {service: base}}
      four: {extends: {service: base, file: other.yaml}, image: redis}
    """
    reading = read("compose.yaml", text)
    found = {launch.name: words(launch)[1] for launch in reading.launches}
    assert found == {"base": "base", "one": "one", "two": "two", "three": "base"}
    one = reading.launches[1]
    assert (one.gpu.count, one.gpu.count_source) == (2, "CUDA_VISIBLE_DEVICES")
    assert reading.problems[0].kind is ProblemKind.UNRESOLVED


@pytest.mark.parametrize(
    ("rest", "count", "source"),
    [
        ("gpus: all", None, "gpus: all"),
        ("gpus: [{count: 2}]", 2, "devices count"),
        ("gpus: [{driver: nvidia, device_ids: ['0', '3']}]", 2, "device_ids"),
        ("gpus: [{count: all}]", None, "devices count: all"),
        ("gpus: [{driver: nvidia}]", None, "devices without a count: all"),
        ("gpus: [{count: '${N:-4}'}]", 4, "devices count"),
        ("runtime: nvidia", None, "runtime: nvidia"),
        (
            "runtime: nvidia\nenvironment: {NVIDIA_VISIBLE_DEVICES: '1,2'}",
            2,
            "NVIDIA_VISIBLE_DEVICES",
        ),
        ("gpus: all\nenvironment: [NVIDIA_VISIBLE_DEVICES=all]", None, "gpus: all"),
        ("devices: [/dev/kfd, /dev/dri]", None, "devices: /dev/kfd"),
        ("devices: ['nvidia.com/gpu=0']", 1, "devices: nvidia.com/gpu"),
        ("restart: always", None, ""),
    ],
)
def test_gpus(read: Read, rest: str, count: int | None, source: str) -> None:
    (launch,) = read("compose.yaml", service(f"command: --model m\n{rest}")).launches
    assert (launch.gpu.count, launch.gpu.count_source) == (count, source)


def test_a_gpu_count_that_is_not_known(read: Read) -> None:
    (launch,) = read("compose.yaml", service("command: -m x\ngpus: [{count: $GPUS}]")).launches
    (problem,) = launch.problems
    assert problem.kind is ProblemKind.UNRESOLVED
    assert "GPUS" in problem.message
    assert ".env" in problem.message


def test_profiles_scale_and_replicas(read: Read, tmp_path: Path) -> None:
    text = """\
    services:
      a: {image: vllm/vllm-openai, command: [m], profiles: [pd]}
      b: {image: vllm/vllm-openai, command: [m], scale: 0}
      c: {image: vllm/vllm-openai, command: [m], deploy: {replicas: 3}}
    """
    a, b, c = read("compose.yaml", text).launches
    assert [x.is_deployed for x in (a, b, c)] == [False, False, True]
    assert [x.replicas for x in (a, b, c)] == [None, 0, 3]
    (tmp_path / ".env").write_text("COMPOSE_PROFILES=pd,x\n")
    assert read("compose.yaml", text).launches[0].is_deployed


def test_an_unknown_image_variable(read: Read) -> None:
    text = "services:\n  a:\n    image: ${IMG}\n    command: vllm serve m\n"
    (launch,) = read("compose.yaml", text).launches
    (problem,) = launch.problems
    assert (problem.kind, problem.location.line) == (ProblemKind.UNRESOLVED, 3)
    assert "IMG" in problem.message


def test_healthchecks_and_helpers_are_no_servers(read: Read) -> None:
    text = """\
    services:
      web:
        image: nginx
        healthcheck: {test: [CMD-SHELL, vllm serve m]}
      pull:
        image: ollama/ollama
        entrypoint: [/bin/sh, -c, ollama pull x]
    """
    reading = read("compose.yaml", text)
    assert reading.launches == ()
    assert reading.problems[0].kind is ProblemKind.UNKNOWN
    assert "service web" in reading.problems[0].message


def test_configs_and_volumes_hold_the_config_file(read: Read) -> None:
    text = """\
    configs: {inline: {content: "max-num-seqs: ${SEQS:-8}"}}
    services:
      a:
        image: vllm/vllm-openai
        command: [m, --config, /etc/a.yaml]
        configs: [{source: inline, target: /etc/a.yaml}]
      b:
        image: vllm/vllm-openai
        command: [m, --config, /conf/b.yaml]
        volumes: ["./settings:/conf:ro", "./b.yaml:/conf/b.yaml"]
    """
    a, b = read("compose.yaml", text, b__yaml="max-num-seqs: 4\n").launches
    assert a.config_entries[0].value == 8
    assert (b.config_entries[0].value, str(b.config_entries[0].location)) == (4, "b.yaml:1")


@pytest.mark.parametrize("key", ["include: [x.yaml]"])
def test_what_is_not_read_yet_is_said(read: Read, key: str) -> None:
    reading = read("compose.yaml", f"{key}\nservices: {{a: {{image: redis}}}}\n")
    assert "form not read yet" in reading.problems[0].message


def test_an_override_beside_is_said(read: Read, tmp_path: Path) -> None:
    (tmp_path / "docker-compose.override.yml").write_text("services: {}\n")
    reading = read("docker-compose.yml", service("command: --model m"))
    assert len(reading.launches) == 1
    (problem,) = reading.problems
    assert problem.kind is ProblemKind.WARNING
    assert "docker compose config" in problem.message


def test_operators_and_backslashes_in_a_string_command(read: Read) -> None:
    text = service(
        """
command: |
  --model m \\
  --max-num-seqs 4 | tee log
""".replace("\\\\", "\\")
    )
    (launch,) = read("compose.yaml", text).launches
    assert words(launch) == ["--model", "m", "--max-num-seqs", "4"]
    assert [p.location.line for p in launch.problems] == [6, 5]


def test_a_quote_that_is_not_closed(read: Read) -> None:
    reading = read("compose.yaml", service("command: --model 'm"))
    problems = [*reading.problems, *(p for x in reading.launches for p in x.problems)]
    assert any("not closed" in p.message and p.location.line == 4 for p in problems)
