"""Which files the guard reads, and how it tells those it cannot use."""

import os
import subprocess

import pytest
from plugin_files import FITS, TOO_LONG, write

SCRIPT = "#!/bin/bash\nvllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192\n"
LOAD = '[workload]\nlengths_file = "l.csv"\n'


@pytest.fixture(autouse=True)
def _not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def commit() -> None:
    for arguments in (
        ["init", "--quiet", "--initial-branch=main", "."],
        ["add", "--all"],
        ["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "base"],
    ):
        subprocess.run(["git", *arguments], check=True, capture_output=True)


def compared(pytester: pytest.Pytester, *names: str) -> pytest.RunResult:
    return pytester.runpytest("--llmserve", "--llmserve-compare", "main", *names)


@pytest.mark.parametrize("suffix", ["sbatch", "slurm", "tpl"])
def test_a_changed_file_is_no_new_server(pytester: pytest.Pytester, suffix: str) -> None:
    text = FITS if suffix == "tpl" else SCRIPT
    write(pytester, **{f"a_{suffix}": text}, llmserve_toml='gpu = "l4"\n')
    commit()
    write(pytester, **{f"a_{suffix}": text.replace("8192", "4096")})
    result = compared(pytester, f"a.{suffix}")
    result.stdout.fnmatch_lines(["*max_model_len*8,192 -> 4,096*"])


def test_a_docker_file_is_read_at_the_base(pytester: pytest.Pytester) -> None:
    text = 'FROM vllm/vllm-openai:v0.19.1\nCMD ["--model=Qwen/Qwen3-8B", "--max-model-len=8192"]\n'
    write(pytester, Dockerfile_vllm=text, llmserve_toml='gpu = "l4"\n')
    commit()
    write(pytester, Dockerfile_vllm=text.replace("8192", "4096"))
    result = compared(pytester, "Dockerfile.vllm")
    result.stdout.fnmatch_lines(["*max_model_len*8,192 -> 4,096*"])


def test_a_deleted_batch_script_is_told(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=FITS, b_sbatch=SCRIPT, llmserve_toml='gpu = "l4"\n')
    commit()
    (pytester.path / "b.sbatch").unlink()
    compared(pytester, "a.yaml").stdout.fnmatch_lines(["*b.sbatch*"])


def test_lengths_of_the_base_are_read(pytester: pytest.Pytester) -> None:
    csv = "prompt_tokens,output_tokens,count\n100,50,3\n"
    write(pytester, a_yaml=FITS, l_csv=csv, llmserve_toml=LOAD)
    commit()
    assert compared(pytester, "a.yaml").ret == pytest.ExitCode.OK


@pytest.mark.parametrize("pattern", ["/abs/*.yaml", "", "."])
def test_a_pattern_is_relative(pytester: pytest.Pytester, pattern: str) -> None:
    write(pytester, a_yaml=FITS, llmserve_toml=f'files = ["{pattern}"]\n')
    result = pytester.runpytest_subprocess("--llmserve")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            f"*llmserve.toml:1: files.0 = '{pattern}': "
            "expected a relative pattern such as deploy/[*].yaml"
        ]
    )


def test_a_comment_is_about_its_own_file(pytester: pytest.Pytester) -> None:
    script = (
        "#!/bin/bash\ntrue  # llmserve: ignore[LLM102] this line, not the other file's\n"
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --config c.yaml\n"
    )
    config = "max-num-seqs: 64\nmax-model-len: 131072\n"
    write(pytester, a_sh=script, c_yaml=config, llmserve_toml='gpu = "l4"\n')
    result = pytester.runpytest("--llmserve", "a.sh")
    result.stdout.fnmatch_lines(["*c.yaml:2*", "*nothing fails LLM102 there*"])


def test_a_baseline_gets_its_folder(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=TOO_LONG, llmserve_toml='baseline = "ci/b.toml"\n')
    pytester.runpytest("--llmserve", "--llmserve-update-baseline", "a.yaml")
    assert "kv-cache-fits" in (pytester.path / "ci" / "b.toml").read_text()


def test_a_baseline_that_cannot_be_written_is_told(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=TOO_LONG, llmserve_toml='baseline = "ci/b.toml"\n')
    (pytester.path / "ci").write_text("a file" + os.linesep)
    result = pytester.runpytest("--llmserve", "--llmserve-update-baseline", "a.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["baseline: *ci* cannot be written: *"])


def test_a_wrong_gpu_folder_is_told(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=FITS, llmserve_toml='gpus = "nowhere"\n')
    result = pytester.runpytest("--llmserve", "a.yaml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*nowhere*a folder with one TOML file for each part*"])
    assert "Traceback" not in result.stdout.str()
    assert "catalogue.py" not in result.stdout.str()


def test_a_wrong_policy_at_the_base_is_told(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=FITS, llmserve_toml="gpuz = 1\n")
    commit()
    write(pytester, llmserve_toml="")
    result = compared(pytester, "a.yaml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["at main: llmserve.toml:1: unknown key 'gpuz'*"])
    assert "policy_file.py" not in result.stdout.str()


def test_dotted_keys_below_tool_are_a_policy(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=FITS, pyproject_toml="[tool]\nllmserve.gpuz = 1\n")
    result = pytester.runpytest_subprocess("--llmserve", "a.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unknown key 'gpuz'*"])
