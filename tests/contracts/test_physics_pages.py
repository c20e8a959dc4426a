"""The pages' snippets and figures are so."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import pytest_llmserve
from pytest_llmserve.engine.speed_table import DECODE
from pytest_llmserve.invariants.names import NAMES
from pytest_llmserve.policy_file import parse_policy

DOCS = Path(__file__).parents[2] / "docs"
PHYSICS = (DOCS / "physics.md").read_text(encoding="utf-8")
SPEED = (DOCS / "speed.md").read_text(encoding="utf-8")


def snippets() -> dict[str, Any]:
    """The page's code, run as one module."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PHYSICS, re.DOTALL):
        exec(block, names)
    return {name: found for name, found in names.items() if name.startswith("test_")}


@pytest.mark.parametrize("name", snippets())
def test_a_snippet_holds(name: str) -> None:
    snippets()[name]()


def test_the_policy_of_the_page_fails_as_it_says(pytester: pytest.Pytester) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PHYSICS, re.DOTALL)
    parse_policy(tomllib.loads(block), origin="page", base_dir=pytester.path, text=block)
    (pytester.path / "llmserve.toml").write_text(block)
    (pytester.path / "deploy").mkdir()
    (manifest,) = re.findall(r"```yaml\n(.*?)```", PHYSICS, re.DOTALL)
    (pytester.path / "deploy" / "chat.yaml").write_text(manifest)
    ran = pytester.runpytest_inprocess("--llmserve")
    (said,) = re.findall(r"^LLM304 .*", PHYSICS, re.MULTILINE)
    assert said in ran.stdout.str()


def test_every_assertion_of_the_table_is_there() -> None:
    rows = re.findall(r"^\| `(assert_\w+)` \| (?:(LLM\d+)|-)", PHYSICS, re.MULTILINE)
    assert len(rows) == 12
    for verb, invariant_id in rows:
        assert verb in pytest_llmserve.__all__
        assert not invariant_id or invariant_id in NAMES


def test_the_constants_of_the_page_are_those_of_the_table() -> None:
    """Rows of servers: n, fraction and microseconds a layer."""
    written = re.findall(r"\| (\d+) \| (0\.\d\d) \| (\d+) us \|", SPEED)
    held = [
        (str(row.n), f"{row.bandwidth_fraction:.2f}", f"{row.layer_s * 1e6:.0f}")
        for row in DECODE
        if row.engine != "llama.cpp"
    ]
    assert sorted(written) == sorted(held)
