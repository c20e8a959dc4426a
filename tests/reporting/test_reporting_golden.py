"""Whole reports, byte for byte. To accept new ones: LLMSERVE_UPDATE_GOLDEN=1 pytest THIS_FILE."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from report_facts import FACTS, checked

from pytest_llmserve import __version__
from pytest_llmserve.reporting.annotations import annotation_lines
from pytest_llmserve.reporting.changes import comparison_lines
from pytest_llmserve.reporting.findings import Checked
from pytest_llmserve.reporting.gitlab import code_quality
from pytest_llmserve.reporting.markdown import comment, markdown
from pytest_llmserve.reporting.sarif import sarif
from pytest_llmserve.reporting.summary import summary_lines

GOLDEN = Path(__file__).parent / "golden"


def _sarif(found: Checked) -> str:
    """Without what other tests hold: the version, the help texts."""
    log = sarif(found)
    driver = log["runs"][0]["tool"]["driver"]
    for rule in driver["rules"]:
        rule["help"] = dict.fromkeys(rule["help"], "...")
    return json.dumps(log, indent=2).replace(__version__, "VERSION") + "\n"


REPORTS: dict[str, Callable[[Checked], str]] = {
    "report.md": markdown,
    "comment.md": comment,
    "code-quality.json": lambda found: json.dumps(code_quality(found), indent=2) + "\n",
    "report.sarif": _sarif,
    "annotations.txt": lambda found: "\n".join(annotation_lines(found)) + "\n",
    "summary.txt": lambda found: "\n".join(summary_lines(found.facts, is_verbose=False)) + "\n",
    "summary-verbose.txt": lambda found: (
        "\n".join(summary_lines(found.facts, is_verbose=True)) + "\n"
    ),
    "changes.txt": lambda found: "\n".join(comparison_lines(found.facts)) + "\n",
}


def given() -> Checked:
    return checked(prefix="services/", not_run=3)


@pytest.mark.parametrize("name", REPORTS)
def test_report(name: str) -> None:
    text = REPORTS[name](given())
    path = GOLDEN / name
    if os.environ.get("LLMSERVE_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REPORTS)
def test_the_order_of_items_does_not_matter(name: str) -> None:
    """Under xdist they come in any order."""
    backwards = checked(FACTS[::-1], prefix="services/", not_run=3)
    assert REPORTS[name](backwards) == REPORTS[name](given())


@pytest.mark.parametrize("name", REPORTS)
def test_nothing_was_checked(name: str) -> None:
    text = REPORTS[name](checked([]))
    if name in ("report.md", "comment.md", "summary.txt", "summary-verbose.txt"):
        assert "nothing was checked" in text
    else:
        assert text.strip() in ("", "[]") or '"results": []' in text


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(REPORTS)
