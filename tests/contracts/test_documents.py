"""What README and the other documents say is so."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest

import pytest_llmserve
from pytest_llmserve.invariants import server_invariants
from pytest_llmserve.invariants.names import NAMES
from pytest_llmserve.policy_file import parse_policy

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_invariants_is_complete() -> None:
    rows = dict(re.findall(r"^\| (LLM\d{3}) \| ([a-z-]+) \|", README, re.MULTILINE))
    assert rows == NAMES


def test_titles_of_the_table_are_those_of_the_code() -> None:
    for invariant in server_invariants():
        row = next(line for line in README.splitlines() if f"| {invariant.id} |" in line)
        assert invariant.title.replace("max_model_len", "`max_model_len`") in row


def test_the_policy_of_the_readme_is_valid() -> None:
    block = next(b for b in re.findall(r"```toml\n(.*?)```", README, re.DOTALL))
    policy = parse_policy(tomllib.loads(block), origin="README.md", base_dir=ROOT, text=block)
    assert policy.facts.slo is not None
    assert policy.servers[0].name == "chat-*"


def test_every_public_name_is_there_and_documented() -> None:
    for name in pytest_llmserve.__all__:
        assert getattr(pytest_llmserve, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        pytest_llmserve.nope  # noqa: B018
    assert set(pytest_llmserve.__all__) <= set(dir(pytest_llmserve))


def test_the_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 60


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == pytest_llmserve.__version__


def test_the_message_of_the_readme_is_the_one_that_is_printed(pytester: pytest.Pytester) -> None:
    shutil.copytree(ROOT / "examples" / "long-context-pr", pytester.path, dirs_exist_ok=True)
    printed = pytester.runpytest_subprocess("--llmserve", ".").stdout.str()
    message = re.search(r"```\n(LLM102 .*?)\n```", README, re.DOTALL)
    assert message is not None
    assert message[1] in printed
