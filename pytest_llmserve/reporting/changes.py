"""What a pull request changes, server by server: one row a figure, old -> new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_llmserve.reporting.findings import join, outcome_of
from pytest_llmserve.reporting.markdown_text import cell, table
from pytest_llmserve.reporting.summary import grouped_servers
from pytest_llmserve.units import format_hundredths, hundredths_of_gib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

HEADER = ("server", "GPU", "what", "before", "after", "change", "outcome")
NONE = "-"
_BYTES = (("needed_bytes", "needed per GPU"), ("kv_left_bytes", "left for KV cache"))
_COUNTS = (
    ("capacity_tokens", "KV cache, tokens"),
    ("max_model_len", "max_model_len"),
    ("longest_context", "longest context that fits"),
    ("requests_at_once", "requests at once"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure of one server before and after, in the words that people read.

    ``what`` names the figure with its scope (``needed per GPU``), ``old`` and ``new`` carry their
    unit (``68.90 GiB``; ``-`` where there is none), ``delta`` its sign (``+18.80 GiB``), and
    ``outcome`` is ``ok`` or what broke (``LLM102``).
    """

    server: str
    file: str
    gpu: str
    what: str
    old: str
    new: str
    delta: str = ""
    outcome: str = "ok"


def compared_with(facts: Iterable[dict[str, Any]]) -> str:
    """The git ref that servers were held against; empty without one."""
    changes = (fact["server"].get("change") for fact in facts if fact.get("server"))
    return next((str(change["ref"]) for change in changes if change), "")


def changes_of(facts: Iterable[dict[str, Any]], prefix: str = "") -> list[Change]:
    """A row for each figure that differs from the base; none for a server that is the same.

    ``prefix`` is that of :class:`~pytest_llmserve.reporting.findings.Checked`.
    """
    facts = list(facts)
    rows: list[Change] = []
    for server, of_server in grouped_servers(facts):
        change = server.get("change")
        if not change or change["status"] == "same" or change["head"] is None:
            continue
        broken = sorted({f["verdict"]["id"] for f in of_server if outcome_of(f) == "failed"})
        gpu, file = change["head"]["gpus"], join(prefix, of_server[0]["file"])
        for what, old, new, delta in _figures(change):
            rows.append(
                Change(
                    server=server["name"],
                    file=file,
                    gpu=gpu,
                    what=what,
                    old=old,
                    new=new,
                    delta=delta,
                    outcome=", ".join(broken) or "ok",
                )
            )
    return rows + [
        Change(server=name, file=file, gpu="", what="server", old="there", new="gone")
        for file, name in sorted(_gone(facts, prefix))
    ]


def _gone(facts: Iterable[dict[str, Any]], prefix: str) -> Iterator[tuple[str, str]]:
    """Servers of the base that no file starts any more, by file and name."""
    for fact in facts:
        yield from ((join(prefix, fact["file"]), name) for name in fact.get("gone", ()))
        yield from ((file, name) for file, name in fact.get("deleted", ()))


def _figures(change: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    old, new = change["base"], change["head"]
    if old is None:
        yield ("new server", NONE, new["runtime"], "")
    else:
        if old["gpus"] != new["gpus"]:
            yield ("GPUs", old["gpus"], new["gpus"], "")
        for setting in change["settings"]:
            yield (setting["name"], setting["old"], setting["new"], setting["source"])
    old = old or {}
    for key, what in _BYTES:
        if old.get(key) != new[key]:
            budget = new["budget_bytes"] if key == "needed_bytes" else None
            yield _bytes_row(what, old.get(key), new[key], budget)
    for key, what in _COUNTS:
        is_said = any(setting["name"] == key for setting in change["settings"])
        if old.get(key) != new[key] and not is_said:
            before, after = old.get(key), new[key]
            yield (what, _count(before), _count(after), _signed(before, after))


def _bytes_row(
    what: str, old: int | None, new: int | None, budget: int | None
) -> tuple[str, str, str, str]:
    before, after = _gib(old), _gib(new)
    if budget is not None and new is not None:
        after = f"{after} of {_gib(budget)}"
    if old is None or new is None:
        return what, before, after, ""
    difference = hundredths_of_gib(new) - hundredths_of_gib(old)
    sign = "+" if difference >= 0 else ""
    return what, before, after, f"{sign}{format_hundredths(difference)} GiB"


def _gib(value: int | None) -> str:
    return NONE if value is None else f"{format_hundredths(hundredths_of_gib(value))} GiB"


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _signed(old: int | None, new: int | None) -> str:
    return "" if old is None or new is None else f"{new - old:+,}"


def changes_table(rows: Iterable[Change]) -> list[str]:
    """The rows as a Markdown table; a server is named once, and bold where something broke."""
    cells, before = [], None
    for row in rows:
        key = (row.file, row.server, row.gpu)
        outcome = cell(row.outcome) if row.outcome == "ok" else f"**{cell(row.outcome)}**"
        named = (f"{cell(row.server)}<br>{cell(row.file)}", cell(row.gpu), outcome)
        server, gpu, outcome = ("", "", "") if key == before else named
        figures = (cell(text) for text in (row.what, row.old, row.new, row.delta))
        cells.append((server, gpu, *figures, outcome))
        before = key
    return table(HEADER, cells) if cells else []


def changes_lines(rows: Sequence[Change]) -> list[str]:
    """The rows for a terminal: a line a server, then a line a figure."""
    lines: list[str] = []
    width = max((len(row.what) for row in rows), default=0)
    before = None
    for row in rows:
        key = (row.file, row.server, row.gpu)
        if key != before:
            outcome = "" if row.outcome == "ok" else f": {row.outcome} fails"
            lines.append(f"{row.file} {row.server}, {row.gpu}{outcome}")
        before = key
        delta = f" ({row.delta})" if row.delta else ""
        arrow = f"{row.old} -> " if row.old else ""
        lines.append(f"    {row.what:<{width}}  {arrow}{row.new}{delta}")
    return lines


def comparison_lines(facts: Sequence[dict[str, Any]]) -> list[str]:
    """The terminal's part on changes: nothing without a base, one line where nothing differs."""
    ref = compared_with(facts)
    if not ref:
        return []
    rows = changes_of(facts)
    return (
        [f"changes against {ref}:", *changes_lines(rows)] if rows else [f"no change against {ref}"]
    )
