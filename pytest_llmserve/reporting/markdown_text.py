"""Text made safe for Markdown, and tables of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_CELL = 300
_SPECIAL = re.compile(r"([\\`*\[\]|~#]|(?<!\w)_|_(?!\w))")


def cell(text: str) -> str:
    """Foreign text in one cell: one line, nothing of it is markup."""
    flat = " ".join(text.split())
    if len(flat) > MAX_CELL:
        flat = flat[: MAX_CELL - 3] + "..."
    flat = _SPECIAL.sub(r"\\\1", flat)
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")


def code(text: str) -> str:
    """Foreign text as code in a cell; a pipe would end the cell even there."""
    flat = " ".join(text.split())
    if "`" in flat:
        return cell(flat)
    return f"`{flat.replace('|', chr(92) + '|')}`"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table of cells that are safe already."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
