"""What a pull request changes, server by server: one row a figure, old -> new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmserve.reporting.markdown_text import cell, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEADER = ("server", "GPU", "what", "old", "new", "change", "outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure of one server before and after, in the words that people read.

    ``what`` names the figure with its unit's scope (``needed per GPU``), ``old`` and ``new`` carry
    their unit (``68.9 GiB``; ``-`` where there is none), ``delta`` its sign (``+18.8 GiB``), and
    ``outcome`` is ``ok`` or what broke (``LLM102``).
    """

    server: str
    file: str
    gpu: str
    what: str
    old: str
    new: str
    delta: str
    outcome: str = "ok"


def changes_table(rows: Iterable[Change]) -> list[str]:
    """The rows as a Markdown table, a broken one in bold; nothing for no rows."""
    cells = []
    for row in rows:
        outcome = cell(row.outcome)
        cells.append(
            (
                f"{cell(row.server)}<br>{cell(row.file)}",
                *(cell(text) for text in (row.gpu, row.what, row.old, row.new, row.delta)),
                outcome if row.outcome == "ok" else f"**{outcome}**",
            )
        )
    return table(HEADER, cells) if cells else []


def changes_lines(rows: Sequence[Change]) -> list[str]:
    """The rows for a terminal: a line a server, then a line a figure."""
    lines: list[str] = []
    width = max((len(row.what) for row in rows), default=0)
    before = None
    for row in rows:
        if (row.file, row.server, row.gpu) != before:
            before = (row.file, row.server, row.gpu)
            lines.append(
                f"{row.file} {row.server}, {row.gpu}" if row.gpu else f"{row.file} {row.server}"
            )
        outcome = "" if row.outcome == "ok" else f"   {row.outcome}"
        delta = f" ({row.delta})" if row.delta else ""
        lines.append(f"    {row.what:<{width}}  {row.old} -> {row.new}{delta}{outcome}")
    return lines
