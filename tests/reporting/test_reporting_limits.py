"""Reports stay within what platforms take, worst first, and foreign text stays text."""

import html
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_facts import CLOSE, TOO_LONG, checked, fact, server, verdict

from pytest_llmserve.reporting.annotations import annotation_lines, are_wanted
from pytest_llmserve.reporting.findings import IN_BASELINE, findings
from pytest_llmserve.reporting.markdown import MARKER, comment, markdown
from pytest_llmserve.reporting.markdown_text import cell, code
from pytest_llmserve.reporting.summary import summary_lines


def fleet(count: int, about: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [
        fact(server(f"server-{n:04}", f"deploy/{n:04}.yaml", 5, **more), about)
        for n in range(count)
    ]


LIKELY = {**TOO_LONG, "certainty": "likely"}
FINE = verdict("LLM102", "kv-cache-fits")


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ") and "server-" in line]


def test_markdown_has_at_most_200_rows_the_worst_first() -> None:
    facts = [*fleet(150, LIKELY), *(fact(server("server-bad", "z.yaml", 1), TOO_LONG),)]
    text = markdown(checked(facts + fleet(300, FINE)))
    shown = rows(text)
    assert len(shown) == 200
    assert "server-bad" in shown[0]
    assert sum("likely" in row for row in shown) == 150
    assert re.search(r"^\d+ more servers not shown\.$", text, re.MULTILINE)


def test_markdown_of_many_findings_says_how_many_are_left_out() -> None:
    text = markdown(checked(fleet(1000, TOO_LONG)))
    assert len(rows(text)) == 200
    assert "800 more findings not shown." in text
    assert text.startswith("## pytest-llmserve: 1,000 findings\n")


def test_markdown_is_cut_to_its_size_and_never_torn() -> None:
    long = {**TOO_LONG, "headline": "x" * 5000, "fixes": [{"change": "y" * 3000, "note": ""}] * 4}
    text = markdown(checked(fleet(200, long)))
    assert len(text.encode()) < 1 << 20
    assert text.endswith("\n")
    assert len(rows(text)) >= 40
    assert markdown(checked(fleet(200, long)), max_bytes=10) == ""


UGLY = st.text(st.sampled_from("a |`\\\n<>*_[]#@&~"), max_size=12)


@given(UGLY, UGLY)
def test_every_row_has_the_cells_of_its_header(name: str, headline: str) -> None:
    text = markdown(checked([fact(server(name, "a.yaml", 1), {**TOO_LONG, "headline": headline})]))
    width = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
        assert not line.startswith("|") or cells == (width or cells), line
        width = cells if line.startswith("|") else 0
    assert text.count("\n| **LLM102**") == 1


def test_a_comment_is_within_githubs_limit() -> None:
    text = comment(checked(fleet(300, {**TOO_LONG, "headline": "x" * 5000})))
    assert text.startswith(f"{MARKER}\n")
    assert len(text) < 65_536


@pytest.mark.parametrize(
    "text",
    ["a|b", "<img src=x>", "`rm -rf`", "**bold**", "@team", "[a](b)", "#12", "_it_", "a & b"],
)
def test_foreign_text_is_no_markup(text: str) -> None:
    safe = cell(text)
    assert html.unescape(re.sub(r"\\(.)", r"\1", safe)) == text
    assert not re.search(r"(?<!\\)[|`*\[\]<@]|(?<![\\&])#|^_", safe)


def test_code_with_a_pipe_does_not_end_its_cell() -> None:
    assert code("a|b\nc") == r"`a\|b c`"
    assert code("a`b") == r"a\`b"


def test_ten_annotations_of_each_level_worst_first() -> None:
    facts = [*fleet(15, LIKELY), *fleet(15, CLOSE)]
    facts.append(fact(server("server-bad", "z.yaml", 1), TOO_LONG))
    lines = annotation_lines(checked(facts))
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 10 + ["::warning"] * 10
    assert "server-bad" in lines[0]
    assert all("\n" not in line for line in lines)


def test_annotations_are_escaped_as_workflow_commands() -> None:
    about = {**TOO_LONG, "message": "100%\r\nsure", "location": {"file": "a,b:c.yaml", "line": 7}}
    (line,) = annotation_lines(checked([fact(server("s", "a.yaml", 1), about)]))
    assert line.startswith("::error file=a%2Cb%3Ac.yaml,line=7,title=LLM102 kv-cache-fits%3A s::")
    assert line.endswith("::100%25%0D%0Asure")


def test_annotations_are_ours_only_on_github_and_alone() -> None:
    other = "pytest_github_actions_annotate_failures"
    assert are_wanted({"GITHUB_ACTIONS": "true"}, {"terminal"})
    assert not are_wanted({"GITHUB_ACTIONS": "true"}, {"terminal", other})
    assert not are_wanted({}, {"terminal"})


def test_twenty_servers_are_listed_and_more_only_where_not_fine() -> None:
    def lines(count: int, *bad: dict[str, Any], is_verbose: bool = False) -> str:
        facts = [*fleet(count, FINE), *bad]
        return "\n".join(summary_lines(facts, is_verbose=is_verbose))

    bad = fact(server("bad", "z.yaml", 1), TOO_LONG)
    close = fact(server("near", "y.yaml", 1), CLOSE)
    assert lines(20).count(": ok") == 20
    assert "fine" not in lines(20)
    assert lines(21).count(": ok") == 0
    assert "21 servers are fine (-v shows all)" in lines(21)
    short = lines(21, bad, close)
    assert "z.yaml:1 bad: kv-cache-fits failed" in short
    assert "y.yaml:1 near: concurrency-fits close" in short
    assert "21 more servers are fine (-v shows all)" in short
    whole = lines(21, bad, is_verbose=True)
    assert whole.count(": ok") == 21
    assert whole.count("- weights") == 22
    assert "fine" not in whole


def test_findings_of_an_absolute_path_keep_it() -> None:
    about = {**TOO_LONG, "location": {"file": "/elsewhere/a.yaml", "line": 2}}
    found = findings(checked([fact(server("s", "a.yaml", 1), about)], prefix="sub/"))
    assert found[0].file == "/elsewhere/a.yaml"


def test_what_was_blocked_or_accepted_is_no_finding() -> None:
    blocked = {**TOO_LONG, "outcome": "cannot tell", "blocked_by": "gpu-known"}
    facts = fleet(1, blocked)
    assert findings(checked([{**f, "item": "skipped"} for f in facts])) == []
    assert len(findings(checked([{**f, "item": "failed"} for f in facts]))) == 1


def test_what_is_ignored_is_always_listed_and_the_baseline_is_not() -> None:
    """Of 22 servers, all fine but for what was accepted."""

    def lines(reason: str) -> str:
        accepted = {**TOO_LONG, "is_failure": False, "accepted": reason}
        ignored = fact(server("s", "a.yaml", 1), accepted, item="skipped")
        return "\n".join(summary_lines([ignored, *fleet(21, FINE)], is_verbose=False))

    name = TOO_LONG["name"]
    assert f"{name} is accepted: the sidecar (line 9)" in lines("the sidecar (line 9)")
    assert "is accepted" not in lines(f"{IN_BASELINE}adopted")
