"""Writing report files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write the file, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_json(path: Path, data: object) -> None:
    """Write data as JSON, in the order given."""
    write_text(path, json.dumps(data, indent=2) + "\n")


def repository_prefix(root: Path) -> str:
    """``services/chat/`` for a root directory there in a git checkout; else empty.

    Platforms name files from the top of the checkout, pytest from its root directory.
    """
    for folder in (root, *root.parents):
        if (folder / ".git").exists():
            below = root.relative_to(folder).as_posix()
            return "" if below == "." else f"{below}/"
    return ""
