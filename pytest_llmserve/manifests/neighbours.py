"""Objects in other files of the same folder: what a file refers to by kind and name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.files import read_text
from pytest_llmserve.manifests.yaml_nodes import Mapping, documents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_llmserve.manifests.gathering import Gathering

_SUFFIXES: Final = (".yaml", ".yml")
_MAX_FILES: Final = 200
_MAX_BYTES: Final = 1_000_000


def object_beside(gathering: Gathering, kinds: tuple[str, ...], name: str) -> Mapping | None:
    """The object of one of these kinds and this name in another file of the folder, or None."""
    for path in _files(gathering.path):
        shown = gathering.shown_beside(path.name)
        text = read_text(path, shown)
        if not isinstance(text, str) or name not in text or not any(k in text for k in kinds):
            continue
        for document in documents(text, shown):
            root = document.root
            if not isinstance(root, Mapping) or root.text("kind") not in kinds:
                continue
            if root.text("metadata", "name") == name:
                return root
    return None


def _files(path: Path) -> Iterator[Path]:
    try:
        entries = sorted(path.parent.iterdir())[:_MAX_FILES]
        for entry in entries:
            is_near = entry.suffix in _SUFFIXES and entry.name != path.name
            if is_near and entry.is_file() and entry.stat().st_size <= _MAX_BYTES:
                yield entry
    except OSError:
        return
