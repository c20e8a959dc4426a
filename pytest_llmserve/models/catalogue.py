"""The bundled catalogue: shapes of well-known public models, a file each.

``data/<org>--<name>.json`` (lower case) holds one shape; ``data/aliases.json`` says which other
repositories have the same one. A lookup reads one file.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.models.build import build
from pytest_llmserve.models.catalogue_file import load_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.models.spec import ModelSpec

DATA: Final = Path(__file__).with_name("data")
_ALIASES: Final = "aliases.json"


FROM_MEMORY: Final = "written from memory, not re-read"
"""How the source of an entry ends that no copy of the config was at hand for."""


def file_name(model_id: str) -> str:
    """``Qwen/Qwen3-8B`` is kept in ``qwen--qwen3-8b.json``."""
    return f"{model_id.strip().lower().replace('/', '--')}.json"


@cache
def aliases() -> Mapping[str, str]:
    """Lower-case repository ids and the id whose shape they share."""
    table: Mapping[str, str] = json.loads((DATA / _ALIASES).read_text(encoding="utf-8"))
    return table


def find_in_catalogue(model_id: str) -> ModelSpec | None:
    """The bundled shape of a repository id, whatever its case, or ``None``."""
    path = _path_of(model_id)
    if path is None:
        return None
    entry: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    shape = load_shape(entry)
    source = f"catalogue {entry['id']}"
    if entry["source"].endswith(FROM_MEMORY):
        source += " (from memory)"
    return build(shape, model_id=entry["id"], source=source)


def _path_of(model_id: str) -> Path | None:
    """The file of an id; only plain repository ids can name one."""
    if model_id.count("/") != 1 or "\\" in model_id or ".." in model_id or "\0" in model_id:
        return None
    path = DATA / file_name(model_id)
    if path.is_file():
        return path
    other = aliases().get(model_id.strip().lower())
    return None if other is None else DATA / file_name(other)


def catalogue_ids() -> list[str]:
    """Every id with a file of its own (reads all of them: for tables, not for lookups)."""
    paths = sorted(path for path in DATA.glob("*.json") if path.name != _ALIASES)
    return [json.loads(path.read_text(encoding="utf-8"))["id"] for path in paths]
