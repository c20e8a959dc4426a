"""Before and after, as rows."""

from typing import Any

import pytest
from report_facts import CHAT, FACTS, TOO_LONG, checked, fact, server, verdict

from pytest_llmserve.reporting.changes import (
    Change,
    changes_lines,
    changes_of,
    changes_table,
    comparison_lines,
)
from pytest_llmserve.reporting.markdown import markdown

FINE = verdict("LLM102", "kv-cache-fits")


def changed(**change: Any) -> dict[str, Any]:
    return fact(server("chat", "a.yaml", 1, change={**CHAT["change"], **change}), FINE)


def test_only_figures_that_differ_have_a_row() -> None:
    rows = {row.what: row for row in changes_of(FACTS)}
    assert set(rows) == {"max_model_len", "needed per GPU", "requests at once"}
    assert rows["max_model_len"].delta == "line 31"
    needed = rows["needed per GPU"]
    assert (needed.old, needed.new) == ("69.00 GiB", "87.75 GiB of 71.25 GiB")
    assert (needed.delta, needed.outcome) == ("+18.75 GiB", "LLM102")
    assert rows["requests at once"].delta == "-5"


def test_a_server_that_is_the_same_is_not_mentioned() -> None:
    facts = [changed(status="same", settings=[])]
    assert changes_of(facts) == []
    assert comparison_lines(facts) == ["no change against origin/main"]
    assert "No server changes against `origin/main`." in markdown(checked(facts))


def test_without_a_base_nothing_is_said_of_changes() -> None:
    facts = [fact(server("chat", "a.yaml", 1), TOO_LONG)]
    assert comparison_lines(facts) == []
    assert "change" not in markdown(checked(facts)).lower().replace("changed", "")


def test_a_new_server_has_no_before() -> None:
    rows = changes_of([changed(status="new", base=None, settings=[])])
    assert rows[0].what == "new server"
    assert {row.old for row in rows} == {"-"}
    assert {row.delta for row in rows} == {""}
    assert {row.outcome for row in rows} == {"ok"}


def test_a_figure_that_became_unknown_has_no_difference() -> None:
    head = {**CHAT["change"]["head"], "needed_bytes": None}
    row = next(r for r in changes_of([changed(head=head)]) if r.what == "needed per GPU")
    assert (row.old, row.new, row.delta) == ("69.00 GiB", "-", "")


@pytest.mark.parametrize("render", [changes_table, changes_lines])
def test_no_rows_no_table(render: Any) -> None:
    assert render([]) == []


def test_a_server_is_named_once() -> None:
    row = Change(server="a|b", file="a.yaml", gpu="l4", what="x", old="1", new="2", delta="+1")
    table = changes_table([row, row])
    assert table[2] == r"| a\|b<br>a.yaml | l4 | x | 1 | 2 | +1 | ok |"
    assert table[3] == "|  |  | x | 1 | 2 | +1 |  |"
    assert changes_lines([row, row]) == ["a.yaml a|b, l4", *["    x  1 -> 2 (+1)"] * 2]


def test_servers_that_are_gone_are_named_as_the_repository_names_them() -> None:
    facts = [
        {**changed(status="same", settings=[]), "gone": ["b"], "deleted": [("sub/z.yaml", "z")]}
    ]
    rows = changes_of(facts, "sub/")
    assert [(row.file, row.server, row.new) for row in rows] == [
        ("sub/a.yaml", "b", "gone"),
        ("sub/z.yaml", "z", "gone"),
    ]
