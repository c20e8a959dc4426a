"""The kinds of ``--llmserve-report KIND=PATH``, each loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_llmserve.reporting.findings import Checked

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "json": ("json_report", "write_json_report"),
    "markdown": ("markdown", "write_markdown"),
    "comment": ("markdown", "write_comment"),
    "gitlab": ("gitlab", "write_gitlab"),
    "sarif": ("sarif", "write_sarif"),
}
"""Kind -> module of this room and its function of the path and of what was checked."""


def write_report(kind: str, path: Path, checked: Checked) -> None:
    """Write one report.

    Raises:
        OSError: the path cannot be written.
    """
    module, function = KINDS[kind]
    writer = getattr(import_module(f"pytest_llmserve.reporting.{module}"), function)
    cast("Callable[[Path, Checked], None]", writer)(path, checked)
