"""Which files may start servers, told by their names alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import PurePath

SUFFIXES: Final = frozenset(
    (".yaml", ".yml", ".sh", ".bash", ".sbatch", ".slurm", ".tpl", ".service", ".container")
)
NAMES: Final = ("dockerfile", "containerfile", "modelfile", "procfile")
"""What is looked into below a named folder; a file that is itself named may be called anything."""


def has_known_name(path: PurePath) -> bool:
    """Whether a file is called as files are that start servers."""
    return path.suffix in SUFFIXES or path.name.lower().startswith(NAMES)
