from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.guard.baseline import (
    UNREASONED,
    BaselineError,
    Finding,
    format_baseline,
    read_baseline,
    updated,
)
from pytest_llmserve.invariants.names import IDS

words = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20)
findings = st.builds(
    Finding,
    file=words,
    server=words,
    invariant=st.sampled_from(sorted(IDS)),
    figure=words,
    reason=words,
)
many = st.lists(findings, max_size=6, unique_by=lambda f: f.key)


@given(many)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, found: list[Finding]
) -> None:
    path = tmp_path_factory.mktemp("baseline") / "b.toml"
    path.write_text(format_baseline(found), encoding="utf-8")
    assert read_baseline(path) == tuple(sorted(found))


@given(many, many, many)
def test_a_partial_run_drops_nothing_that_it_did_not_look_at(
    old: list[Finding], failing: list[Finding], other: list[Finding]
) -> None:
    looked_at = [f.key for f in (*failing, *other)]
    new = updated(old, failing, looked_at)
    keys = {f.key for f in new}
    assert {f.key for f in old} - set(looked_at) <= keys
    assert {f.key for f in failing} <= keys
    assert keys <= {f.key for f in (*old, *failing)}
    passing = set(looked_at) - {f.key for f in failing}
    assert not keys & passing


def test_a_reason_outlives_its_figure() -> None:
    old = Finding(file="a", server="s", invariant="kv-cache-fits", figure="1 GiB", reason="known")
    now = Finding(file="a", server="s", invariant="kv-cache-fits", figure="2 GiB")
    (new,) = updated([old], [now], [now.key])
    assert (new.figure, new.reason) == ("2 GiB", "known")
    (first,) = updated([], [now], [now.key])
    assert first.reason == UNREASONED


def test_no_file_is_no_finding(tmp_path: Path) -> None:
    assert read_baseline(tmp_path / "none.toml") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[finding]\n", "b.toml: cannot be read: "),
        ("x = 1\n", "b.toml: expected [[finding]] tables and nothing else"),
        ("finding = [1]\n", "b.toml: finding 1: expected a table"),
        ('[[finding]]\nfile = "a"\nserver = "b"\n', "b.toml: finding 1: invariant is missing"),
        (
            '[[finding]]\nfile = "a"\nserver = "b"\ninvariant = "x"\n',
            "b.toml: finding 1: invariant = 'x': no invariant is called so",
        ),
        (
            '[[finding]]\nfiles = "a"\n',
            "b.toml: finding 1: unknown key 'files'; valid keys: file, ",
        ),
        ('[[finding]]\nfile = ""\n', "b.toml: finding 1: file = '': expected text"),
        (
            2 * '[[finding]]\nfile = "a"\nserver = "b"\ninvariant = "weights-fit"\n',
            "b.toml: a b weights-fit stands twice",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "b.toml").write_text(text)
    with pytest.raises(BaselineError) as error:
        read_baseline(tmp_path / "b.toml")
    assert str(error.value).startswith(message)
