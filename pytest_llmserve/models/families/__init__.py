"""Families: readers that turn a text config into blocks of parts.

``reader_of`` finds the reader of an architecture without importing the other families.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.models.families.common import Decoder
    from pytest_llmserve.models.fields import Fields

_PACKAGE: Final = "pytest_llmserve.models.families"


def load(path: str) -> Callable[..., Any]:
    """The function behind ``module:name``."""
    module, _, name = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    return found


def read_decoder(path: str, c: Fields) -> Decoder:
    """Run one family reader."""
    decoder: Decoder = load(path)(c)
    return decoder
