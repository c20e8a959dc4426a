"""Script files as a user names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from manifest_files import Read

    from pytest_llmserve.manifests.launch import Launch


def words(launch: Launch) -> list[str]:
    return [word.text for word in launch.argv]


def test_a_one_line_command(read: Read) -> None:
    (launch,) = read("run.sh", "vllm serve org/m --max-model-len 8192\n").launches
    assert (launch.name, launch.form, launch.entrypoint) == ("run", "shell", "vllm serve")
    assert words(launch) == ["org/m", "--max-model-len", "8192"]
    assert launch.gpu.count is None
    assert launch.image is None


def test_a_command_in_a_file_without_a_suffix(read: Read) -> None:
    (launch,) = read("start", "vllm serve org/m\n").launches
    assert launch.form == "shell"


def test_names_come_from_the_served_model(read: Read) -> None:
    text = (
        "vllm serve a --served-model-name chat other &\nvllm serve b --served-model-name=chat &\n"
        "vllm serve c &\n"
    )
    assert [launch.name for launch in read("run.sh", text).launches] == ["chat", "chat-2", "run"]


def test_visible_devices_count_gpus(read: Read) -> None:
    (launch,) = read("run.sh", "CUDA_VISIBLE_DEVICES=0,1 vllm serve m\n").launches
    assert (launch.gpu.count, launch.gpu.count_source) == (2, "CUDA_VISIBLE_DEVICES")
    assert launch.env["CUDA_VISIBLE_DEVICES"].text == "0,1"


@pytest.mark.parametrize(
    ("options", "count", "resource"),
    [
        ("--gpus all", None, "nvidia.com/gpu"),
        ("--gpus 2", 2, "nvidia.com/gpu"),
        ("--gpus=4", 4, "nvidia.com/gpu"),
        ("--gpus '\"device=0,3\"'", 2, "nvidia.com/gpu"),
        ("--gpus device=GPU-1234", 1, "nvidia.com/gpu"),
        ("--gpus '\"device=0,1\",capabilities=compute'", 2, "nvidia.com/gpu"),
        ("--gpus all -e CUDA_VISIBLE_DEVICES=1", 1, "nvidia.com/gpu"),
        ("--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0,1", 2, "nvidia.com/gpu"),
        ("--runtime=nvidia", None, "nvidia.com/gpu"),
        ("--device nvidia.com/gpu=0 --device nvidia.com/gpu=1", 2, "nvidia.com/gpu"),
        ("--device nvidia.com/gpu=all", None, "nvidia.com/gpu"),
        ("--device=/dev/kfd --device=/dev/dri", None, "amd.com/gpu"),
        ("", None, None),
    ],
)
def test_docker_run_gpus(read: Read, options: str, count: int | None, resource: str | None) -> None:
    text = f"docker run --rm {options} vllm/vllm-openai:v0.12.0 org/m --max-num-seqs 4\n"
    (launch,) = read("run.sh", text).launches
    assert (launch.gpu.count, launch.gpu.resource) == (count, resource)
    assert words(launch) == ["org/m", "--max-num-seqs", "4"]


def test_docker_options_with_and_without_values(read: Read) -> None:
    text = """\
    IMAGE=vllm/vllm-openai:v0.22.1
    sudo docker run -d -it --name chat -p 8000:8000 -v$HOME/x:/x --shm-size=8g --ipc host \\
      --ulimit memlock=-1 -e HF_TOKEN=hf_abcdefghijklmnopqrst -e "VLLM_USE_V1=1" --privileged \\
      --restart unless-stopped --cap-add SYS_PTRACE $IMAGE \\
      --model org/m
    """
    (launch,) = read("run.sh", text).launches
    assert (launch.name, launch.form) == ("chat", "docker run")
    assert str(launch.image) == "vllm/vllm-openai:v0.22.1"
    assert words(launch) == ["--model", "org/m"]
    assert [w.location.line for w in launch.argv] == [5, 5]
    assert {name: word.text for name, word in launch.env.items()} == {
        "HF_TOKEN": "***",
        "VLLM_USE_V1": "1",
    }


@pytest.mark.parametrize(
    "text",
    [
        "docker run --entrypoint bash vllm/vllm-openai:v0.12.0 -c 'vllm serve m -tp 2'",
        "docker run --entrypoint vllm x serve m -tp 2",
        "podman run rocm/vllm:latest vllm serve m -tp 2",
        "docker run lmsysorg/x bash -lc 'exec vllm serve m -tp 2'",
    ],
)
def test_docker_entrypoints(read: Read, text: str) -> None:
    (launch,) = read("run.sh", text + "\n").launches
    assert words(launch) == ["m", "-tp", "2"]


def test_docker_run_of_something_else(read: Read) -> None:
    reading = read(
        "run.sh", "docker run redis:7\ndocker compose up\ndocker pull vllm/vllm-openai\n"
    )
    assert reading.launches == ()
    assert reading.problems


def test_batch_jobs(read: Read) -> None:
    text = """\
    #!/bin/bash
    #SBATCH --nodes=2
    #SBATCH --gres=gpu:h100:8
    srun --container-image=x bash -lc "vllm serve m \\
      --node-rank \\$SLURM_PROCID --master $(hostname)"
    """
    (launch,) = read("job.sbatch", text).launches
    assert (launch.form, launch.gpu.count) == ("slurm", 16)
    assert launch.gpu.labels[0].alternatives == ("h100",)
    assert [word.location.line for word in launch.argv] == [4, 5, 5, 5, 5]
    assert launch.argv[2].unresolved == ("SLURM_PROCID",)
    assert launch.argv[4].unresolved == ("hostname",)


def test_a_config_written_by_a_heredoc(read: Read) -> None:
    text = """\
    LEN=$((4096 * 2))
    cat > conf.yaml <<EOF
    max-model-len: $LEN
    enable-prefix-caching: false
    hosts: $HOSTS
    EOF
    vllm serve org/m --config conf.yaml
    """
    (launch,) = read("run.sh", text).launches
    found = [(e.key, e.value, e.location.line, e.unresolved) for e in launch.config_entries]
    assert found == [
        ("max-model-len", 8192, 3, ()),
        ("enable-prefix-caching", False, 4, ()),
        ("hosts", "$HOSTS", 5, ("HOSTS",)),
    ]


def test_a_config_beside_the_script(read: Read) -> None:
    reading = read(
        "run.sh", "vllm serve org/m --config conf/../conf.yaml\n", conf__yaml="max-num-seqs: 4\n"
    )
    (entry,) = reading.launches[0].config_entries
    assert (entry.key, entry.value, str(entry.location)) == ("max-num-seqs", 4, "conf.yaml:1")


def test_a_config_through_a_docker_volume(read: Read) -> None:
    text = "docker run -v ./c.yaml:/etc/v.yaml vllm/vllm-openai m --config /etc/v.yaml\n"
    (launch,) = read("run.sh", text, c__yaml="max-num-seqs: 4\n").launches
    assert launch.config_entries[0].value == 4


@pytest.mark.parametrize("path", ["/etc/absent.yaml", "$CONF", "conf.yaml"])
def test_a_config_out_of_reach(read: Read, path: str) -> None:
    (launch,) = read("run.sh", f"vllm serve m --config {path}\n").launches
    (problem,) = launch.problems
    assert problem.kind is ProblemKind.UNRESOLVED
    assert path in problem.message
    assert launch.config_entries == ()


def test_joined_config_is_not_read(read: Read) -> None:
    (launch,) = read("run.sh", "vllm serve m --config=c.yaml\n", c__yaml="a: 1\n").launches
    assert launch.config_entries == ()
    assert launch.problems == ()


def test_a_script_that_calls_one_beside_it(read: Read) -> None:
    reading = read(
        "all.sh", "bash one.sh 8192\n", one__sh='vllm serve m --max-model-len "${1:-1}"\n'
    )
    (launch,) = reading.launches
    assert words(launch) == ["m", "--max-model-len", "8192"]
    assert str(launch.location) == "one.sh:1"


def test_variables_sourced_from_a_file_beside(read: Read) -> None:
    (launch,) = read(
        "run.sh", "source env.sh\nvllm serve $MODEL\n", env__sh="MODEL=org/m\n"
    ).launches
    assert words(launch) == ["org/m"]


def test_an_api_key_is_masked(read: Read) -> None:
    (launch,) = read(
        "run.sh", "vllm serve m --api-key sk-123 --max-num-batched-tokens 5\n"
    ).launches
    assert words(launch) == ["m", "--api-key", "***", "--max-num-batched-tokens", "5"]


def test_a_launch_that_cannot_be_followed_is_said_by_line(read: Read) -> None:
    reading = read("run.sh", "echo\nssh host 'vllm serve m'\n")
    (problem,) = reading.problems
    assert (problem.kind, problem.location.line) == (ProblemKind.UNKNOWN, 2)
    assert "looks like a launch" in problem.message


def test_a_broken_script_is_located(read: Read) -> None:
    (problem,) = read("run.sh", "vllm serve m\nif true; then\n").problems
    assert problem.kind is ProblemKind.UNREADABLE
    assert str(problem).startswith("run.sh:3: cannot follow the script: expected")


def test_a_stray_backslash_is_warned_about(read: Read) -> None:
    (problem,) = read("run.sh", "vllm serve m \\ \n --a 1\n").problems
    assert (problem.kind, problem.location.line) == (ProblemKind.WARNING, 1)


def test_glued_quoted_variable(read: Read) -> None:
    (launch,) = read("run.sh", 'EXTRA="--a 1"\nvllm serve m "$EXTRA"\n').launches
    assert launch.problems[0].kind is ProblemKind.REFUSED
    assert words(launch) == ["m", "--a", "1"]
