"""Reading a file's text without surprises: size, kind and encoding are checked first."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.text import without_marks
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 10_000_000


def read_text(path: Path, display: str) -> str | Problem:
    """The text of ``path`` with Unix line ends, or the one reason why there is none."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            return _unreadable(f"{display} is {what}; name one deployment file", display)
        if status.st_size > MAX_BYTES:
            size = f"{status.st_size / 1e6:.1f} MB"
            return _unreadable(f"{display} has {size}; deployment files end at 10 MB", display)
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return _unreadable(f"cannot read {display}: {reason}", display)
    return _decoded(data, display)


def _decoded(data: bytes, display: str) -> str | Problem:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _unreadable(f"{display} is UTF-16; save it as UTF-8", display)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        return _unreadable(f"{display} is binary (a NUL byte in line {line})", display, line)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        return _unreadable(
            f"{display} is not UTF-8: byte 0x{byte:02x} in line {line}", display, line
        )
    return without_marks(text.replace("\r\n", "\n").replace("\r", "\n"))


def _unreadable(message: str, display: str, line: int = 1) -> Problem:
    return Problem(ProblemKind.UNREADABLE, message, Location(display, line))
