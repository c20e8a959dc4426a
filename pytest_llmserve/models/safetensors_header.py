"""Bytes of a checkpoint from its safetensors headers, without reading a tensor.

A file starts with the length of its JSON header as 8 bytes, little endian; the header names each
tensor's ``data_offsets``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.models.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit
_INDEX: Final = "model.safetensors.index.json"


def read_header(path: Path) -> Mapping[str, Any]:
    """Tensor name to ``dtype``, ``shape`` and ``data_offsets``.

    Raises:
        BadConfig: the file is cut, too large a header is announced, or it is no JSON object.
    """
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or not 2 <= length <= _MAX_HEADER_BYTES:
            expected = f"8 bytes that announce a header of 2 to {_MAX_HEADER_BYTES} bytes"
            raise BadConfig(str(path), "header length", length, expected)
        text = file.read(length)
    if len(text) < length:
        raise BadConfig(str(path), "header", f"{len(text)} bytes", f"{length} bytes")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise BadConfig(str(path), "header", text[:20], "a JSON object")
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def tensor_bytes(path: Path) -> int:
    """Bytes of all tensors of one file."""
    total = 0
    for name, entry in read_header(path).items():
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        match offsets:
            case [int(begin), int(end)] if 0 <= begin <= end:
                total += end - begin
            case _:
                raise BadConfig(str(path), f"{name}.data_offsets", offsets, "[begin, end]")
    return total


def checkpoint_bytes(folder: Path) -> int | None:
    """Stored bytes of a model folder: from the index, else from the headers, else ``None``.

    Headers count only where every shard is there.

    Raises:
        BadConfig: the index or a header is damaged.
    """
    index = folder / _INDEX
    if index.is_file():
        return _index_bytes(index)
    single = folder / "model.safetensors"
    return tensor_bytes(single) if single.is_file() else None


def _index_bytes(path: Path) -> int | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadConfig(str(path), "(whole file)", str(error), "JSON") from None
    metadata = content.get("metadata") if isinstance(content, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if total is None:
        return None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or total < 0:
        raise BadConfig(str(path), "metadata.total_size", total, "a number of bytes")
    return total
