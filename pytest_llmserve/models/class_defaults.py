"""What the transformers class fills in for a key that a config leaves out.

Runtimes read a config through its class, so an absent key has that class's value. The values are
the field defaults of the config classes of transformers 5.24.0, only those that decide sizes.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE: Final = Path(__file__).with_name("class_defaults.json")


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    table: Mapping[str, Mapping[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


def defaults_of(model_type: str) -> Mapping[str, Any]:
    """The defaults of one model_type, empty where its class is not in transformers."""
    return _table().get(model_type, {})
