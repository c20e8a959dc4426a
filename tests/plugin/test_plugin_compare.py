"""``--llmserve-compare``: what a pull request does, played on the example repository."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "pr-guard"
CHAT, LONG = Path("deploy/chat.yaml"), Path("deploy/long-context.yaml")


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


@pytest.fixture
def repo(pytester: pytest.Pytester) -> pytest.Pytester:
    """The example with one commit, which is the base."""
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True)
    git("init", "--quiet", "--initial-branch=main", ".")
    git("config", "user.email", "team@example.com")
    git("config", "user.name", "team")
    git("add", "--all")
    git("commit", "--quiet", "--message=base")
    return pytester


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def compared(repo: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return repo.runpytest("--llmserve", "--llmserve-compare", "main", *arguments)


def section(result: pytest.RunResult) -> list[str]:
    """What the summary says about changes."""
    lines = result.outlines
    start = next((i for i, line in enumerate(lines) if "against main" in line), len(lines))
    end = next((i for i in range(start, len(lines)) if lines[i].startswith("=")), len(lines))
    return [line.strip() for line in lines[start:end] if line.strip()]


def has(lines: list[str], what: str, change: str) -> bool:
    """Whether a row says so."""
    return any(line.startswith(f"{what} ") and line.endswith(change) for line in lines)


def test_nothing_changed_is_quiet(repo: pytest.Pytester) -> None:
    result = compared(repo)
    assert result.ret == 0
    assert len(section(result)) <= 1


def test_a_file_that_is_only_reformatted_is_quiet(repo: pytest.Pytester) -> None:
    text = CHAT.read_text().replace("            - --", "              - --")
    CHAT.write_text(
        "# Reformatted, moved down.\n\n" + text.replace("--max-model-len=", "--max_model_len=")
    )
    git("mv", str(LONG), "deploy/long.yaml")
    result = compared(repo)
    assert result.ret == 0
    assert len(section(result)) <= 1


def test_a_doubled_context(repo: pytest.Pytester) -> None:
    edit(CHAT, "12288", "24576")
    result = compared(repo)
    result.assert_outcomes(passed=33, failed=1)
    result.stdout.fnmatch_lines(
        [
            "LLM601 3.00 GiB more per GPU than at main: * 2GiB is allowed",
            "  deploy/chat.yaml:19   chat",
        ]
    )
    words = section(result)
    assert has(words, "max_model_len", "12,288 -> 24,576 (line 20)")
    assert not any("long-context" in line for line in words)


def test_another_gpu(repo: pytest.Pytester) -> None:
    edit(CHAT, "nvidia-h100-80gb", "nvidia-l4")
    result = compared(repo)
    assert result.ret == 1
    assert has(section(result), "GPUs", "1 x h100-sxm-80gb -> 1 x l4")
    result.stdout.fnmatch_lines(["LLM101 short of * GiB per GPU: *"])


def test_an_image_whose_defaults_differ(repo: pytest.Pytester) -> None:
    """0.20 raised the default utilisation to 0.92 and counts CUDA graphs inside of it."""
    edit(CHAT, "v0.19.1", "v0.20.2")
    words = section(compared(repo))
    assert has(words, "version", "0.19.1 -> 0.20.2 (image tag, line 17)")
    assert has(words, "gpu_memory_utilization", "0.9 -> 0.92 (vllm 0.20.2 default)")


def test_an_image_that_reads_yarn_otherwise(repo: pytest.Pytester) -> None:
    """Since 0.30 the factor is not multiplied: 32,768 positions are left of 131,072."""
    edit(LONG, "v0.29.0", "v0.30.0")
    result = compared(repo)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["LLM203 *65,536*32,768*"])


def test_new_and_gone_servers(repo: pytest.Pytester) -> None:
    shutil.copy(CHAT, "deploy/second.yaml")
    edit(Path("deploy/second.yaml"), "name: chat", "name: second")
    git("rm", "--quiet", str(LONG))
    words = section(compared(repo))
    assert any("second" in line for line in words)
    assert any("gone" in line for line in words)


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_reports_carry_the_change(repo: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    edit(CHAT, "12288", "24576")
    result = repo.runpytest_subprocess(
        "--llmserve",
        "--llmserve-compare=main",
        "--llmserve-report=json=out.json",
        "--llmserve-report=markdown=out.md",
        *arguments,
    )
    assert result.ret == 1
    import json

    report = json.loads(Path("out.json").read_text())
    change = {s["name"]: s["change"] for s in report["servers"]}
    assert change["long-context"]["status"] == "same"
    assert change["chat"]["status"] == "changed"
    grown = change["chat"]["head"]["needed_bytes"] - change["chat"]["base"]["needed_bytes"]
    # 2 x 64 layers x 8 heads x 128 x 2 B x 12,288 more tokens
    assert grown == 12288 * 262144
    assert "24,576" in Path("out.md").read_text()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda: None, "--llmserve-compare nowhere: git rev-parse: "),
        (lambda: shutil.rmtree(".git"), "--llmserve-compare nowhere: git rev-parse: "),
    ],
    ids=["no such ref", "no repository"],
)
def test_what_git_does_not_know_is_a_usage_error(
    repo: pytest.Pytester, prepare: Callable[[], None], message: str
) -> None:
    prepare()
    result = repo.runpytest_subprocess("--llmserve", "--llmserve-compare", "nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_the_base_has_its_own_policy_and_variables(repo: pytest.Pytester) -> None:
    """What the base declared counts for the base, not what the head declares."""
    edit(Path("llmserve.toml"), "files =", 'gpu = "h200-sxm-141gb"\nfiles =')
    edit(
        CHAT,
        "      nodeSelector:\n        cloud.google.com/gke-accelerator: nvidia-h100-80gb\n",
        "",
    )
    words = section(compared(repo))
    assert has(words, "GPUs", "1 x h100-sxm-80gb -> 1 x h200-sxm-141gb")
