"""The door of the room: one file in, one ``Reading`` out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmserve.manifests.launch import Reading


def read_file(path: Path, *, display: str | None = None) -> Reading:
    """All servers that one deployment file starts.

    Args:
        path: the file; others that it names are looked for beside it.
        display: the path as the user named it, used in locations; default: ``str(path)``.

    Returns:
        Launches, problems or both; never neither. Bad input is a problem, not an exception.
    """
    raise NotImplementedError
