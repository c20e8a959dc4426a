"""Text that remembers where it was written, through unquoting, folding and substitution."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A value that nobody can know here travels inside text between these two private-use characters,
# so that it survives splitting, joining and a second shell. Input never contains them.
OPEN: Final = "\ue000"
CLOSE: Final = "\ue001"
_UNKNOWN: Final = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
_NAME: Final = re.compile(
    r"\$\(([A-Za-z_][\w.-]*)\)|\$\{?([A-Za-z_]\w*)(?:\[.*?\])?(?:\}|:?[-+?=].*)?", re.DOTALL
)
_BLANK_SPLIT: Final = re.compile(f"(?:{OPEN}[^{CLOSE}]*{CLOSE}|\\S)+")


def without_marks(text: str) -> str:
    """Foreign text made safe: our two marks replaced."""
    if OPEN in text or CLOSE in text:
        return text.replace(OPEN, "\ufffd").replace(CLOSE, "\ufffd")
    return text


def unknown(display: str) -> str:
    """``display`` as a value nobody knows: ``${TOKEN}``, ``$(nproc)``, ``{{ .Values.x }}``."""
    return f"{OPEN}{shown(display)}{CLOSE}"


def mark_unknown(source: SourceText, pattern: re.Pattern[str]) -> SourceText:
    """Every match of ``pattern`` made unknown, except inside parts that are unknown already."""
    spans = [match.span() for match in _UNKNOWN.finditer(source.text)]
    edits = [
        (match.start(), match.end(), unknown(match[0]))
        for match in pattern.finditer(source.text)
        if not any(start <= match.start() < end for start, end in spans)
    ]
    return source.replaced(edits)


def is_unknown(text: str) -> bool:
    """Whether any part of ``text`` is unknown."""
    return OPEN in text


def shown(text: str) -> str:
    """``text`` as a person reads it, marks removed."""
    return text.replace(OPEN, "").replace(CLOSE, "") if OPEN in text else text


def unknown_names(text: str) -> tuple[str, ...]:
    """Names of the unknown parts, first seen first: ``TOKEN`` for ``${TOKEN}``."""
    if OPEN not in text:
        return ()
    names: dict[str, None] = {}
    for display in _UNKNOWN.findall(text):
        match = _NAME.fullmatch(display)
        names[(match[1] or match[2]) if match else display] = None
    return tuple(names)


def split_blanks(text: str) -> list[str]:
    """``text`` cut at blanks as a shell cuts an unquoted value; unknown parts stay whole."""
    return _BLANK_SPLIT.findall(text)


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and, for pieces of it, the line and column of the file that they came from.

    ``starts`` are ascending offsets into ``text`` (the first is 0), ``places`` their 1-based
    (line, column).
    """

    text: str
    file: str
    starts: tuple[int, ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of_lines(cls, text: str, file: str, *, line: int = 1, column: int = 1) -> SourceText:
        """Text that stands in the file line by line, its first line at ``line``."""
        starts = [0]
        starts.extend(match.end() for match in re.finditer("\n", text))
        places = [(line, column), *((line + i, 1) for i in range(1, len(starts)))]
        return cls(text, file, tuple(starts), tuple(places))

    @classmethod
    def at_place(cls, text: str, location: Location) -> SourceText:
        """Text that all comes from one place."""
        return cls(text, location.file, (0,), ((location.line, location.column or 1),))

    def at(self, offset: int) -> Location:
        """Where the character at ``offset`` was written."""
        index = max(bisect_right(self.starts, offset) - 1, 0)
        line, column = self.places[index]
        return Location(self.file, line, column + max(offset - self.starts[index], 0))

    def part(self, start: int, end: int) -> SourceText:
        """The slice ``text[start:end]``."""
        first = max(bisect_right(self.starts, start) - 1, 0)
        here = self.at(start)
        starts, places = [0], [(here.line, here.column or 1)]
        for offset, place in zip(self.starts[first + 1 :], self.places[first + 1 :], strict=True):
            if offset >= end:
                break
            starts.append(offset - start)
            places.append(place)
        return SourceText(self.text[start:end], self.file, tuple(starts), tuple(places))

    def replaced(self, edits: Iterable[tuple[int, int, str]]) -> SourceText:
        """The text with each ``text[start:end]`` replaced, what stays keeping its place."""
        pieces: list[SourceText] = []
        position = 0
        for start, end, new in edits:
            pieces.append(self.part(position, start))
            pieces.append(SourceText.at_place(new, self.at(start)))
            position = end
        if not pieces:
            return self
        pieces.append(self.part(position, len(self.text)))
        return join(pieces)


def join(pieces: Sequence[SourceText], separator: str = "") -> SourceText:
    """One text out of several, each keeping its places."""
    starts: list[int] = []
    places: list[tuple[int, int]] = []
    length = 0
    for piece in pieces:
        starts.extend(length + start for start in piece.starts)
        places.extend(piece.places)
        length += len(piece.text) + len(separator)
    text = separator.join(piece.text for piece in pieces)
    return SourceText(text, pieces[0].file, tuple(starts), tuple(places))
