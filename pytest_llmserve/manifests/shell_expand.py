"""Expansion: what a word becomes, given what is known. Unknown values stay marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.shell_math import arithmetic
from pytest_llmserve.manifests.shell_tokens import Arithmetic, Substitution, Variable, Verbatim
from pytest_llmserve.manifests.text import (
    SourceText,
    is_unknown,
    join,
    split_blanks,
    unknown,
)
from pytest_llmserve.manifests.words import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.manifests.shell_state import State
    from pytest_llmserve.manifests.shell_tokens import Part, Token

_SHOWN = 60


def expand(token: Token, state: State, source: SourceText, *, is_test: bool = False) -> list[Field]:
    """The fields of one word: none, one or several, as a shell would split it.

    ``is_test``: the word decides something, so a default does not count where an unknown file
    may have set the variable.
    """
    expansion = _Expansion(state, source, is_test=is_test)
    expansion.parts(token.parts)
    expansion.end_field()
    return expansion.fields


def expand_value(
    token: Token, state: State, source: SourceText, *, is_test: bool = False
) -> SourceText:
    """The word as the one value of an assignment: never split."""
    return parts_value(token.parts, state, source, is_test=is_test)


def expand_pattern(token: Token, state: State, source: SourceText) -> str:
    """The word as a glob pattern: what is quoted in it stands for itself."""
    out: list[str] = []
    for part in token.parts:
        value = parts_value((part,), state, source).text
        escaped = "".join(f"[{char}]" if char in "*?[" else char for char in value)
        out.append(escaped if part.is_quoted else value)
    return "".join(out)


def parts_value(
    parts: Sequence[Part], state: State, source: SourceText, *, is_test: bool = False
) -> SourceText:
    """The parts as one value, never split."""
    expansion = _Expansion(state, source, splits=False, is_test=is_test)
    expansion.parts(parts)
    expansion.end_field()
    if not expansion.fields:
        return SourceText("", source.file, (0,), ((1, 1),))
    return join([item.source for item in expansion.fields], " ")


class _Expansion:
    def __init__(
        self, state: State, source: SourceText, *, splits: bool = True, is_test: bool = False
    ) -> None:
        self.is_open = is_test and state.is_open
        self.state = state
        self.source = source
        self.splits = splits
        self.fields: list[Field] = []
        self.current: list[SourceText] = []

    def parts(self, parts: Sequence[Part], *, quoted: bool = False) -> None:
        for part in parts:
            if isinstance(part, Verbatim):
                self.text(self._written(part), quoted=quoted or part.is_quoted or part.text == "")
            elif isinstance(part, Variable):
                self.variable(part, quoted=quoted or part.is_quoted)
            elif isinstance(part, Substitution):
                self.unknown(part.raw, part.offset)
            else:
                self.arithmetic(part)

    def _written(self, part: Verbatim) -> SourceText:
        end = part.offset + len(part.text)
        if self.source.text[part.offset : end] == part.text:
            return self.source.part(part.offset, end)
        return SourceText.at_place(part.text, self.source.at(part.offset))

    def end_field(self) -> None:
        if self.current:
            whole = self.current[0] if len(self.current) == 1 else join(self.current)
            self.fields.append(Field(whole))
            self.current = []

    def text(self, source: SourceText, *, quoted: bool) -> None:
        """Add a value to the field under construction, splitting it where nothing is quoted."""
        text = source.text
        if quoted or not self.splits:
            self.current.append(source)
            return
        words = split_blanks(text)
        if len(words) == 1 and words[0] == text:
            self.current.append(source)
            return
        if text[:1].isspace():
            self.end_field()
        position = 0
        for index, found in enumerate(words):
            if index:
                self.end_field()
            position = text.index(found, position)
            self.current.append(source.part(position, position + len(found)))
            position += len(found)
        if text[-1:].isspace():
            self.end_field()

    def value(self, text: str, offset: int, *, quoted: bool) -> None:
        self.text(SourceText.at_place(text, self.source.at(offset)), quoted=quoted)

    def unknown(self, raw: str, offset: int) -> None:
        short = " ".join(raw.split())
        short = short if len(short) <= _SHOWN else short[: _SHOWN - 3] + "..."
        self.value(unknown(short), offset, quoted=True)

    def arithmetic(self, part: Arithmetic) -> None:
        expression = parts_value(part.parts, self.state, self.source_of(part)).text
        value = arithmetic(expression, self._number)
        if value is None:
            self.unknown(part.raw, part.offset)
        else:
            self.value(str(value), part.offset, quoted=part.is_quoted)

    def source_of(self, part: Arithmetic) -> SourceText:
        start = part.offset + 3  # the parts of an expression count from after "$(("
        return self.source.part(start, start + len(part.raw) - 5)

    def _number(self, name: str) -> str | None:
        value = self.state.variables.get(name)
        return None if value is None or is_unknown(value) else value

    def variable(self, part: Variable, *, quoted: bool) -> None:
        items = self._list(part)
        if items is not None:
            self._add_list(part, items, quoted=quoted)
            return
        value = self._scalar(part)
        operator = part.operator
        is_missing = value is None or (operator.startswith(":") and value == "")
        if operator.endswith("+"):
            if value is not None and is_unknown(value):
                self.unknown(part.raw, part.offset)
            elif not is_missing:
                self.parts(part.argument, quoted=quoted)
            elif quoted:
                self.value("", part.offset, quoted=True)
        elif value is not None and not (is_missing and operator[-1:] in ("-", "=", "?")):
            self.value(value, part.offset, quoted=quoted)
        elif operator[-1:] in ("-", "=") and not (self.is_open and value is None):
            self._default(part, quoted=quoted)
        else:
            self.unknown(part.raw, part.offset)

    def _default(self, part: Variable, *, quoted: bool) -> None:
        if part.operator.endswith("="):
            default = parts_value(part.argument, self.state, self.source).text
            self.state.set(part.name, masked(part.name, default))
        if quoted and not part.argument:
            self.value("", part.offset, quoted=True)
        self.parts(part.argument, quoted=quoted)

    def _list(self, part: Variable) -> tuple[Field, ...] | None:
        if part.name in ("@", "*"):
            return self.state.parameters
        if part.index in ("@", "*"):
            plain = self.state.variables.get(part.name)
            if part.name not in self.state.arrays and plain is not None:
                return (Field(SourceText.at_place(plain, self.source.at(part.offset))),)
            return self.state.arrays.get(part.name, ())
        return None

    def _add_list(self, part: Variable, items: tuple[Field, ...], *, quoted: bool) -> None:
        operator = part.operator
        if operator.endswith("+"):
            if items:
                self.parts(part.argument, quoted=quoted)
            return
        if not items and operator[-1:] in ("-", "="):
            self.parts(part.argument, quoted=quoted)
            return
        if quoted and (part.name == "*" or part.index == "*") and items:
            self.current.append(join([item.source for item in items], " "))
            return
        for index, item in enumerate(items):
            if index:
                self.end_field()
            self.text(item.source, quoted=quoted)

    def _scalar(self, part: Variable) -> str | None:
        state, name = self.state, part.name
        if name == "#":
            return str(len(state.parameters))
        if name == "0":
            return state.zero
        if name.isdigit():
            index = int(name) - 1
            return state.parameters[index].text if index < len(state.parameters) else None
        array = state.arrays.get(name)
        if array is not None:
            index = int(part.index or 0)
            return array[index].text if index < len(array) else None
        return state.variables.get(name)
