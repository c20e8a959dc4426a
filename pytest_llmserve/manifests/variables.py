"""Substitution before any shell: ``$(VAR)`` by the kubelet, ``${VAR}`` by compose; ``.env``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.text import SourceText, join, mark_unknown, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

_KUBELET: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_PLACEHOLDER: Final = re.compile(
    r"\{\{.*?\}\}|\$\([A-Za-z_][\w.-]*\)|\$\{[A-Za-z_]\w*[^}]*\}|\$[A-Za-z_]\w*"
)
_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}")
_ANGLE: Final = re.compile(r"<[A-Za-z][\w .:/-]*>")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR: Final = re.compile(r":?[-+?]|(?=\})")
_ENV_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=[ \t]*(.*)")
_MAX_NESTING: Final = 30


class InterpolationError(ValueError):
    """Text that compose refuses; ``offset`` is where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def expand_kubelet(source: SourceText, env: Mapping[str, str]) -> SourceText:
    """``$(NAME)`` from the container's own environment; ``$$`` is ``$``; the rest stays."""
    if "$" not in source.text:
        return source
    edits = []
    for match in _KUBELET.finditer(source.text):
        name = match[1]
        if name is None:
            edits.append((match.start(), match.end(), "$"))
        elif name in env:
            edits.append((match.start(), match.end(), env[name]))
    return source.replaced(edits)


def mark_placeholders(source: SourceText) -> SourceText:
    """What nobody will expand made unknown: ``$(VAR)``, ``${VAR}``, ``{{ x }}``, ``<model>``."""
    text = source.text
    if _ANGLE.fullmatch(text):
        return source.replaced([(0, len(text), unknown(text))])
    if "$" not in text and "{{" not in text:
        return source
    return mark_unknown(source, _PLACEHOLDER)


def mark_templates(source: SourceText) -> SourceText:
    """Unrendered ``{{ x }}`` made unknown, the rest left to the shell."""
    if "{{" not in source.text:
        return source
    return mark_unknown(source, _TEMPLATE)


def interpolate(source: SourceText, values: Mapping[str, str], depth: int = 0) -> SourceText:
    """Compose's ``$VAR``, ``${VAR:-default}``, ``${VAR:+x}``, ``${VAR:?m}``; ``$$`` is ``$``.

    Args:
        source: one scalar of the file.
        values: from the ``.env`` file beside it.
        depth: of nested defaults.

    Returns:
        The text; a variable that is not set and has no default stays as an unknown value
        (compose would take the user's shell environment, else nothing).

    Raises:
        InterpolationError: a form that compose refuses.
    """
    text = source.text
    if "$" not in text:
        return source
    if depth > _MAX_NESTING:
        raise InterpolationError("defaults nested too deeply", 0)
    pieces: list[SourceText] = []
    position = 0
    while True:
        dollar = text.find("$", position)
        if dollar < 0 or dollar + 1 >= len(text):
            pieces.append(source.part(position, len(text)))
            return join(pieces)
        pieces.append(source.part(position, dollar))
        piece, position = _variable(source, dollar, values, depth)
        pieces.append(piece)


def _variable(
    source: SourceText, start: int, values: Mapping[str, str], depth: int
) -> tuple[SourceText, int]:
    text = source.text
    if text[start + 1] == "$":
        return source.part(start, start + 1), start + 2
    if text[start + 1] == "{":
        return _braced(source, start, values, depth)
    match = _NAME.match(text, start + 1)
    if match is None:
        return source.part(start, start + 1), start + 1
    value = values.get(match[0], unknown(f"${{{match[0]}}}"))
    return SourceText.at_place(value, source.at(start)), match.end()


def _braced(
    source: SourceText, start: int, values: Mapping[str, str], depth: int
) -> tuple[SourceText, int]:
    text = source.text
    end = _closing(text, start)
    name = _NAME.match(text, start + 2)
    operator = _OPERATOR.match(text, name.end()) if name else None
    if name is None or operator is None:
        shown = " ".join(text[start:end].split())[:40]
        raise InterpolationError(
            f"compose refuses {shown!r}; write '$$' for a '$' of its own", start
        )
    value = values.get(name[0])
    is_missing = value is None or (operator[0].startswith(":") and value == "")
    argument = source.part(operator.end(), end - 1)
    sign = operator[0][-1:]
    if sign == "+":
        empty = source.part(start, start)
        return (empty if is_missing else interpolate(argument, values, depth + 1)), end
    if not is_missing or (value is not None and sign != "-"):
        return SourceText.at_place(value or "", source.at(start)), end
    if sign == "-":
        return interpolate(argument, values, depth + 1), end
    return SourceText.at_place(unknown(f"${{{name[0]}}}"), source.at(start)), end


def _closing(text: str, start: int) -> int:
    depth, position = 0, start
    while position < len(text):
        if text.startswith("${", position):
            depth += 1
            position += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    raise InterpolationError("'${' is not closed", start)


def parse_env_file(text: str) -> dict[str, str]:
    """``NAME=value`` lines of a ``.env`` file; values of secret names are masked.

    Quotes are undone, `` #`` begins a comment outside them, ``${OTHER}`` is expanded except in
    single quotes.
    """
    values: dict[str, str] = {}
    for row in text.split("\n"):
        match = None if row.lstrip().startswith("#") else _ENV_LINE.match(row)
        if match is None:
            continue
        raw = match[2].strip()
        if raw[:1] in ("'", '"') and (end := raw.find(raw[0], 1)) > 0:
            quote, value = raw[0], raw[1:end]
        else:
            quote, value = "", re.split(r"(?:^|\s)#", raw, maxsplit=1)[0].rstrip()
        if quote != "'" and "$" in value:
            whole = SourceText(value, ".env", (0,), ((1, 1),))
            try:
                value = interpolate(whole, values).text
            except InterpolationError:
                value = unknown(value)
        values[match[1]] = masked(match[1], value)
    return values
