"""``--llmserve-explain``, the texts behind it and the pages made of them."""

import re
from pathlib import Path

import pytest
from plugin_files import TOO_LONG, write

from pytest_llmserve.invariants import server_invariants
from pytest_llmserve.invariants.explanations import FOLDER, explanation, write_pages
from pytest_llmserve.invariants.names import NAMES
from pytest_llmserve.reporting.text import MOST_LINES

PAGES = Path(__file__).parents[2] / "docs" / "invariants"


@pytest.mark.parametrize("about", ["LLM102", "llm102", "kv-cache-fits", "kv_cache_fits"])
def test_one_is_explained_and_nothing_is_collected(pytester: pytest.Pytester, about: str) -> None:
    pytester.makepyfile("raise SystemError('collected')")
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    result = pytester.runpytest("--llmserve-explain", about)
    assert result.ret == pytest.ExitCode.OK
    assert result.outlines == explanation("LLM102").markdown.splitlines()
    assert result.errlines == []


def test_all_are_explained(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest("--llmserve-explain", "all").stdout.str()
    assert [line[2:] for line in text.splitlines() if re.match("# LLM", line)] == [
        f"{id_} {name}" for id_, name in NAMES.items()
    ]


@pytest.mark.parametrize("about", ["LLM999", "kv-cash", ""])
def test_an_unknown_one_is_a_usage_error(pytester: pytest.Pytester, about: str) -> None:
    result = pytester.runpytest("--llmserve-explain", about)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    error = result.stderr.str()
    assert f"--llmserve-explain {about}: no invariant is called so; valid: all, or" in error
    assert "  LLM102 kv-cache-fits" in error
    assert "Traceback" not in error


def test_a_failure_says_how_to_ask(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=TOO_LONG)
    result = pytester.runpytest("--llmserve", "chat.yaml")
    result.stdout.fnmatch_lines(["  why: pytest --llmserve-explain LLM102"])


@pytest.mark.parametrize("id_", NAMES)
def test_each_text_says_what_why_how_and_when(id_: str) -> None:
    text = explanation(id_)
    headings = re.findall(r"^## (.*)$", text.markdown, re.MULTILINE)
    how = {"Formula", "How it is decided"} & set(headings)
    wanted = ["What it means", "Why it matters", "Example", "How to fix", "When to accept"]
    assert [h for h in headings if h in wanted] == wanted
    assert len(how) == 1
    assert all(len(line) <= 100 for line in text.markdown.splitlines())
    assert text.markdown.isascii(), "a terminal of any encoding shows it"


def test_statements_are_those_of_the_code() -> None:
    for invariant in server_invariants():
        statement = explanation(invariant.id).statement.replace("`", "")
        assert statement.rstrip(".").lower() == invariant.title.lower()


def test_only_what_is_judged_by_server_can_be_ignored_by_line() -> None:
    judged = {invariant.id for invariant in server_invariants()}
    offered = {id_ for id_ in NAMES if "# llmserve: ignore[" + id_ in explanation(id_).markdown}
    assert offered == judged


def test_no_text_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("LLM*.md")} == set(NAMES)


def test_the_pages_are_the_texts(tmp_path: Path) -> None:
    """To write them anew: python -m pytest_llmserve.invariants.explanations docs/invariants."""
    write_pages(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {path.name: path.read_text() for path in PAGES.iterdir()} == made


def test_messages_stay_short() -> None:
    golden = Path(__file__).parents[1] / "invariants" / "golden"
    lengths = {path.stem: len(path.read_text().splitlines()) for path in golden.iterdir()}
    assert max(lengths.values()) <= MOST_LINES, lengths
