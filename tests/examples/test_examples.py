"""Each example is a repo a user could have; it comes out as its README says."""

import json
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

OUTCOMES = {
    "kubernetes-chat": {"chat": set()},
    "long-context-pr": {"chat-70b": {"kv-cache-fits"}},
    "compose-consumer-gpu": {"coder": set(), "chat": {"weights-fit", "kv-cache-fits"}},
    "shell-launch": {"assistant": set()},
    "python-tests": {"reasoner": set()},
    "pr-guard": {"chat": set(), "long-context": set()},
}


def test_every_example_is_listed() -> None:
    folders = {p.name for p in EXAMPLES.iterdir() if p.is_dir()}
    assert folders - {"ci"} == set(OUTCOMES), "examples/ci has tests of its own"


@pytest.mark.parametrize("name", OUTCOMES)
def test_example(name: str, pytester: pytest.Pytester) -> None:
    shutil.copytree(EXAMPLES / name, pytester.path, dirs_exist_ok=True)
    result = pytester.runpytest_subprocess("--llmserve", "--llmserve-report", "json=report.json")
    report = json.loads((pytester.path / "report.json").read_text())
    failed = {
        server["name"]: {v["name"] for v in server["verdicts"] if v["is_failure"]}
        for server in report["servers"]
    }
    assert failed == OUTCOMES[name], result.stdout.str()
    assert result.ret == int(any(failed.values())), result.stdout.str()


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_readme_states_its_command(name: str) -> None:
    readme = (EXAMPLES / name / "README.md").read_text()
    assert f"pytest --llmserve examples/{name}" in readme
