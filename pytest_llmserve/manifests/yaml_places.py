"""Where each character of a YAML scalar stands in the file."""

from __future__ import annotations

from pytest_llmserve.manifests.text import SourceText


def scalar_source(
    text: str,
    style: str | None,
    file: str,
    lines: list[str],
    line: int,
    column: int,
    end_line: int,
) -> SourceText:
    """The scalar's text with its places: exact lines for every style, columns where cheap.

    Args:
        text: the scalar's value.
        style: ``|``, ``>``, a quote or None for a plain scalar.
        file: shown in locations.
        lines: of the whole file.
        line: of the scalar's first character or of its block indicator, 1-based.
        column: of the same.
        end_line: last line that the parser read for it.
    """
    if style == "|":
        return _literal(text, file, lines, line)
    if style == ">" or end_line > line:
        return _aligned(text, style, file, lines, line, column, end_line)
    quote = 1 if style in ("'", '"') else 0
    return SourceText(text, file, (0,), ((line, column + quote),))


def _literal(text: str, file: str, lines: list[str], line: int) -> SourceText:
    starts, places = [], []
    offset = 0
    for number, row in enumerate(text.split("\n"), start=line + 1):
        raw = lines[number - 1] if number <= len(lines) else ""
        indent = max(len(raw) - len(row), 0) if raw.endswith(row) else 0
        starts.append(offset)
        places.append((number, indent + 1))
        offset += len(row) + 1
    return SourceText(text, file, tuple(starts), tuple(places))


def _aligned(
    text: str,
    style: str | None,
    file: str,
    lines: list[str],
    line: int,
    column: int,
    end_line: int,
) -> SourceText:
    """Folded text: each character is looked for in the file, in order."""
    first, skip = (line + 1, 0) if style == ">" else (line, column - 1)
    number, position = first, skip + (1 if style in ("'", '"') else 0)
    last = min(end_line, len(lines))
    starts, places = [0], [(line, column)]
    for offset, char in enumerate(text):
        if char.isspace():
            continue
        found = _find(char, lines, number, position, last)
        if found is None:
            continue
        expected = (places[-1][0], places[-1][1] + offset - starts[-1])
        if (found[0], found[1] + 1) != expected:
            if starts[-1] == offset:
                starts.pop()
                places.pop()
            starts.append(offset)
            places.append((found[0], found[1] + 1))
        number, position = found[0], found[1] + 1
    return SourceText(text, file, tuple(starts), tuple(places))


def _find(
    char: str, lines: list[str], number: int, position: int, last: int
) -> tuple[int, int] | None:
    """The next place of ``char``; a line is left only where blanks and backslashes remain."""
    while number <= last:
        row = lines[number - 1]
        index = row.find(char, position)
        if index >= 0:
            return number, index
        if row[position:].strip(" \t\\"):
            return None  # an escape: this character is not in the file as such
        number, position = number + 1, 0
    return None
