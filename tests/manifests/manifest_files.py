"""What the fixture ``read`` of this folder is: a file written and read as a user would name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pytest_llmserve.manifests.launch import Reading


class Read(Protocol):
    def __call__(self, name: str, text: str, **beside: str) -> Reading: ...
