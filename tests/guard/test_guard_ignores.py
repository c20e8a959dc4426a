import datetime

import pytest

from pytest_llmserve.guard.ignores import accepting_rule, read_ignores
from pytest_llmserve.guard_rules import GuardRules, IgnoreRule
from pytest_llmserve.verdict import Location, Outcome, Verdict


def verdict(name: str = "kv-cache-fits", line: int = 3) -> Verdict:
    return Verdict(
        id="LLM102",
        name=name,
        outcome=Outcome.FAILED,
        headline="",
        location=Location("a.yaml", line),
    )


def test_a_comment_behind_a_value_is_about_its_line() -> None:
    (comment,) = read_ignores("a: 1\n- --x=1  # llmserve: ignore[LLM102] known, ticket 7\nb: 2\n")
    assert (comment.line, comment.about_line) == (2, 2)
    assert comment.invariants == ("kv-cache-fits",)
    assert comment.reason == "known, ticket 7"
    assert not comment.fault
    assert comment.accepts(verdict(line=2), None)
    assert not comment.accepts(verdict(line=3), None)
    assert not comment.accepts(verdict("weights-fit", line=2), None)
    assert comment.accepts(verdict(line=9), Location("a.yaml", 2))


def test_a_comment_of_its_own_is_about_the_next_line_with_text() -> None:
    text = "a: 1\n  # llmserve: ignore[weights-fit, kv_cache_fits] both known\n\n# note\nb: 2\n"
    (comment,) = read_ignores(text)
    assert comment.about_line == 5
    assert comment.invariants == ("weights-fit", "kv-cache-fits")
    (last,) = read_ignores("a: 1\n# llmserve: ignore[LLM102] nothing follows")
    assert last.about_line == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# llmserve: ignore[LLM102]", "it gives no reason"),
        ("# llmserve: ignore[LLM102]   ", "it gives no reason"),
        ("# llmserve: ignore all of it", "it names no invariant"),
        ("# llmserve: ignore[] because", "it names no invariant"),
        ("# llmserve: ignore[LLM999] because", "'LLM999' is no invariant; valid: LLM001"),
    ],
)
def test_a_comment_that_cannot_be_honoured_says_why(text: str, fault: str) -> None:
    (comment,) = read_ignores(text)
    assert comment.fault.startswith(fault)
    assert not comment.accepts(verdict(line=1), None)


def test_other_comments_are_none() -> None:
    assert read_ignores("# llmserve is used here\n# ignore[LLM102] x\n#llmserve:ignored[a] b") == ()


def test_rules_end_on_their_date() -> None:
    today = datetime.date(2026, 11, 29)
    rule = IgnoreRule(invariant="kv-cache-fits", reason="r", file="deploy/*", until=today)
    rules = GuardRules(ignores=(rule,))
    assert accepting_rule(rules, "deploy/a.yaml", "chat", verdict(), today) is rule
    assert accepting_rule(rules, "other/a.yaml", "chat", verdict(), today) is None
    assert accepting_rule(rules, "deploy/a.yaml", "chat", verdict("weights-fit"), today) is None
    tomorrow = today + datetime.timedelta(days=1)
    assert accepting_rule(rules, "deploy/a.yaml", "chat", verdict(), tomorrow) is None
