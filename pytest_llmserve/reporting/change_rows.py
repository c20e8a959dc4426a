"""From what was gathered about base and head to the rows that a reviewer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_llmserve.reporting.changes import Change
from pytest_llmserve.reporting.summary import grouped_servers
from pytest_llmserve.units import format_gib

if TYPE_CHECKING:
    from collections.abc import Iterable

NOTHING = "-"


def change_rows(facts: Iterable[dict[str, Any]], gone: Iterable[tuple[str, str]]) -> list[Change]:
    """Rows of every server that is new, gone or changed; unchanged servers have none.

    ``gone`` are servers of the base, by file and name, that no file starts any more.
    """
    rows: list[Change] = []
    for server, verdicts in grouped_servers(facts):
        change = server.get("change")
        if change is not None and change["status"] != "same":
            rows += _server_rows(server, change, verdicts)
    rows += [
        Change(server=name, file=file, gpu="", what="server", old="there", new="gone", delta="")
        for file, name in sorted(gone)
    ]
    return rows


def _server_rows(
    server: dict[str, Any], change: dict[str, Any], verdicts: list[dict[str, Any]]
) -> list[Change]:
    broken = sorted(v["id"] for v in verdicts if v["is_failure"] and not v["blocked_by"])
    base, head = change["base"], change["head"]
    file = server["source"]["file"] if server["source"] else ""
    lines: list[tuple[str, str, str, str]] = []
    if base is None:
        lines.append(("server", NOTHING, "new", ""))
    for setting in change["settings"]:
        lines.append((setting["name"], setting["old"], setting["new"], setting["source"]))
    lines += _figure_lines(base or {}, head or {}, is_new=base is None)
    rows = []
    for index, (what, old, new, delta) in enumerate(lines):
        rows.append(
            Change(
                server=server["name"],
                file=file,
                gpu=head["gpus"] if head else "",
                what=what,
                old=old,
                new=new,
                delta=delta,
                outcome=", ".join(broken) if broken and index == len(lines) - 1 else "ok",
            )
        )
    return rows


def _figure_lines(
    base: dict[str, Any], head: dict[str, Any], *, is_new: bool
) -> list[tuple[str, str, str, str]]:
    """The figures that differ; of a new server all of them."""
    lines = []
    for key, what in (
        ("gpus", "GPUs"),
        ("needed_bytes", "needed per GPU"),
        ("budget_bytes", "usable per GPU"),
        ("kv_left_bytes", "left for KV cache"),
        ("longest_context", "longest context that fits"),
        ("requests_at_once", "requests at once"),
    ):
        old, new = base.get(key), head.get(key)
        if old == new and not is_new:
            continue
        lines.append((what, _text(key, old), _text(key, new), _delta(key, old, new)))
    return lines


def _text(key: str, value: Any) -> str:
    if value is None:
        return NOTHING
    if key.endswith("_bytes"):
        return f"{format_gib(value)} GiB"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _delta(key: str, old: Any, new: Any) -> str:
    if not isinstance(old, int) or not isinstance(new, int):
        return ""
    difference = new - old
    text = f"{format_gib(difference)} GiB" if key.endswith("_bytes") else f"{difference:,}"
    return f"+{text}" if difference > 0 else text
