"""``read``: write a file (and what lies beside it) and read it as a user would name it."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from pytest_llmserve.manifests.reader import read_file

if TYPE_CHECKING:
    from pathlib import Path

    from manifest_files import Read

    from pytest_llmserve.manifests.launch import Reading


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def _read(name: str, text: str, **beside: str) -> Reading:
        for other, content in beside.items():
            (tmp_path / other.replace("__", ".")).write_text(dedent(content))
        (tmp_path / name).write_text(dedent(text))
        return read_file(tmp_path / name, display=name)

    return _read
