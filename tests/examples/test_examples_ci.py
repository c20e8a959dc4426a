"""The jobs of examples/ci: their files are well formed, and what they run does what they say."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples" / "ci"
MARKER = "<!-- pytest-llmserve -->"
LEAVE_OUT = ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_BASE_REF", "PYTEST_ADDOPTS")


def load(name: str) -> Any:
    return yaml.safe_load((CI / name).read_text(encoding="utf-8"))


def steps(name: str, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load(name)["jobs"][job]["steps"]
    return found


def commands(name: str) -> list[str]:
    """What a job's shell is given, the installation first."""
    if name == "gitlab-ci.yml":
        job = load(name)["llmserve"]
        return [*job["before_script"], *job["script"]]
    return [step["run"] for step in steps(name, "check") if "run" in step]


def shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """As the runners do: ``bash -e``."""
    environ = {k: v for k, v in os.environ.items() if k not in LEAVE_OUT} | variables
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    ran = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A pull request that makes the context too long, as CI checks it out."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "examples" / "kubernetes-chat", folder)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Serve chat")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    deployment = folder / "deploy" / "chat.yaml"
    text = deployment.read_text()
    assert "--max-model-len=16384" in text, "the example that this test edits"
    deployment.write_text(text.replace("--max-model-len=16384", "--max-model-len=131072"))
    git(folder, "commit", "-q", "-a", "-m", "Serve long documents")
    return folder


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_the_first_command_installs_this_project(name: str) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert commands(name)[0] == f"python -m pip install {project['name']}"


def test_the_github_job(checkout: Path) -> None:
    _, check, number = commands("github-actions.yml")
    summary = checkout.parent / "summary.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    ran = shell(check, checkout, **github, GITHUB_BASE_REF="main")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "::error file=deploy/chat.yaml,line=" in ran.stdout
    text = summary.read_text()
    assert "What changes against `origin/main`" in text
    assert "| max_model_len | 16,384 | 131,072 |" in text
    assert text == (checkout / "llmserve" / "report.md").read_text()
    assert shell(number, checkout, NUMBER="17").returncode == 0
    assert (checkout / "llmserve" / "number").read_text() == "17\n"
    uploaded = [step.get("with", {}) for step in steps("github-actions.yml", "check")]
    files = [w.get("path") or w.get("sarif_file") for w in uploaded]
    for file in filter(None, files):
        assert (checkout / file).exists()


def test_the_github_job_is_quiet_where_nothing_changes(checkout: Path) -> None:
    git(checkout, "reset", "-q", "--hard", "origin/main")
    check = commands("github-actions.yml")[1]
    ran = shell(check, checkout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    comment = (checkout / "llmserve" / "comment.md").read_text()
    assert comment.startswith(MARKER)
    assert "No server changes against `origin/main`." in comment


def test_the_gitlab_job(checkout: Path) -> None:
    base = git(checkout, "rev-parse", "origin/main")
    script = "\n".join(commands("gitlab-ci.yml")[1:])
    ran = shell(script, checkout, CI_MERGE_REQUEST_DIFF_BASE_SHA=base)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    artifacts = load("gitlab-ci.yml")["llmserve"]["artifacts"]
    (finding,) = json.loads((checkout / artifacts["reports"]["codequality"]).read_text())
    assert finding["location"]["path"] == "deploy/chat.yaml"
    assert (checkout / artifacts["reports"]["junit"]).exists()
    assert (checkout / artifacts["paths"][0]).is_dir()


GH = """#!/bin/sh
echo "$@" >> calls
case "$*" in *--paginate*) printf '%s' "$EXISTING" ;; esac
"""


@pytest.mark.parametrize(
    ("existing", "call"),
    [
        ("", "api -X POST repos/acme/deploy/issues/17/comments -F body=@llmserve/comment.md"),
        (
            "99\n100\n",
            "api -X PATCH repos/acme/deploy/issues/comments/99 -F body=@llmserve/comment.md",
        ),
    ],
    ids=["new", "edited"],
)
def test_the_comment_is_written_once(tmp_path: Path, existing: str, call: str) -> None:
    """With a stand-in for GitHub's command line that keeps what it is called with."""
    (script,) = (step["run"] for step in steps("github-comment.yml", "comment") if "run" in step)
    (tmp_path / "llmserve").mkdir()
    (tmp_path / "llmserve" / "number").write_text("17; rm -rf /\n")
    stand_in = tmp_path / "bin" / "gh"
    stand_in.parent.mkdir()
    stand_in.write_text(GH)
    stand_in.chmod(0o755)
    bin_path = f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env={"PATH": bin_path, "REPO": "acme/deploy", "EXISTING": existing},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert f'startswith("{MARKER}")' in calls[0]
    assert calls[1:] == [call]


def hooks() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return {hook["id"]: hook for hook in found}


def test_the_example_uses_a_hook_that_exists() -> None:
    for repo in load("pre-commit-config.yaml")["repos"]:
        assert {hook["id"] for hook in repo["hooks"]} <= set(hooks())


@pytest.mark.parametrize(
    ("hook", "files"), [("llmserve", "deploy/chat.yaml"), ("llmserve-declared", "")]
)
def test_a_hook_needs_nothing_of_the_project(checkout: Path, hook: str, files: str) -> None:
    """Options of plugins that are not in the hook's environment, a conftest that imports them."""
    (checkout / "pytest.ini").write_text("[pytest]\naddopts = --cov=app\nrequired_plugins = x\n")
    (checkout / "conftest.py").write_text("import a_library_of_the_project\n")
    assert hooks()[hook]["pass_filenames"] is bool(files)
    ran = shell(f"{hooks()[hook]['entry']} {files}", checkout)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "FAILED deploy/chat.yaml::chat::kv-cache-fits" in ran.stdout
    assert not (checkout / ".pytest_cache").exists()
    git(checkout, "reset", "-q", "--hard", "origin/main")
    assert shell(f"{hooks()[hook]['entry']} {files}", checkout).returncode == 0


def test_the_readme_names_each_file() -> None:
    readme = (CI / "README.md").read_text()
    for path in CI.iterdir():
        assert path.name == "README.md" or f"| `{path.name}` |" in readme
