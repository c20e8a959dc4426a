"""Integer arithmetic and tests of the shell, three-valued: what is not known stays unknown."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.text import is_unknown

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN: Final = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(\*\*|[-+*/%()]))")
_LEVELS: Final = ({"+", "-"}, {"*", "/", "%"})
_MAX_DIGITS: Final = 30
_NUMBER: Final = re.compile(r"\s*-?\d{1,18}\s*")
_MAX_DEPTH: Final = 50


class _UnknownValueError(Exception):
    pass


def arithmetic(expression: str, lookup: Callable[[str], str | None]) -> int | None:
    """The value of ``a * (B + 2)``; None where a name is not known or the form is not plain.

    Args:
        expression: the text between ``$((`` and ``))``, ``$`` forms already expanded.
        lookup: value of a name; None where it is unset (0 to a shell, unknown to us).
    """
    if is_unknown(expression) or len(expression) > 1000:
        return None
    tokens: list[str] = []
    position = 0
    expression = expression.rstrip()
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            return None
        tokens.append(match[0].strip())
        position = match.end()
    parser = _Arithmetic(tokens, lookup)
    try:
        value = parser.level(0, 0)
    except (_UnknownValueError, ZeroDivisionError):
        return None
    return value if parser.index == len(tokens) else None


class _Arithmetic:
    def __init__(self, tokens: list[str], lookup: Callable[[str], str | None]) -> None:
        self.tokens = tokens
        self.lookup = lookup
        self.index = 0

    def take(self) -> str:
        if self.index >= len(self.tokens):
            raise _UnknownValueError
        self.index += 1
        return self.tokens[self.index - 1]

    def level(self, number: int, depth: int) -> int:
        if number == len(_LEVELS):
            return self.atom(depth)
        value = self.level(number + 1, depth)
        while self.index < len(self.tokens) and self.tokens[self.index] in _LEVELS[number]:
            operator = self.take()
            value = _apply(operator, value, self.level(number + 1, depth))
        return value

    def atom(self, depth: int) -> int:
        if depth > _MAX_DEPTH:
            raise _UnknownValueError
        token = self.take()
        if token in ("-", "+"):
            value = self.atom(depth + 1)
            return -value if token == "-" else value
        if token == "(":
            value = self.level(0, depth + 1)
            if self.take() != ")":
                raise _UnknownValueError
            return value
        text = token if token.isdigit() else self.lookup(token) or ""
        if not _NUMBER.fullmatch(text):
            raise _UnknownValueError
        return int(text)


def _apply(operator: str, left: int, right: int) -> int:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        value = left * right
        if len(str(abs(value))) > _MAX_DIGITS:
            raise _UnknownValueError
        return value
    quotient = abs(left) // abs(right)  # the shell cuts towards zero
    quotient = quotient if (left < 0) == (right < 0) else -quotient
    return quotient if operator == "/" else left - quotient * right


_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}
_BINARY: Final = frozenset({"=", "==", "!=", "=~", "<", ">", *_COMPARE})


def test(words: list[str], *, globs: bool) -> bool | None:
    """What ``[ words ]`` answers; None where it cannot be told (files, unknown values).

    Args:
        words: expanded operands and operators; ``&&``, ``||``, ``(``, ``)`` for ``[[``.
        globs: whether the right side of ``==`` is a pattern (``[[``).
    """
    tester = _Test(words, globs=globs)
    value = tester.either()
    return value if tester.index >= len(words) else None


class _Test:
    def __init__(self, words: list[str], *, globs: bool) -> None:
        self.words = words
        self.globs = globs
        self.index = 0

    def peek(self, ahead: int = 0) -> str | None:
        index = self.index + ahead
        return self.words[index] if index < len(self.words) else None

    def either(self) -> bool | None:
        value = self.both()
        while self.peek() in ("||", "-o"):
            self.index += 1
            right = self.both()
            value = True if True in (value, right) else None if None in (value, right) else False
        return value

    def both(self) -> bool | None:
        value = self.single()
        while self.peek() in ("&&", "-a"):
            self.index += 1
            right = self.single()
            value = False if False in (value, right) else None if None in (value, right) else True
        return value

    def single(self) -> bool | None:
        negations = 0
        while self.peek() == "!" and self.peek(1) is not None:
            self.index += 1
            negations += 1
        value = self.primary()
        return value if value is None or negations % 2 == 0 else not value

    def primary(self) -> bool | None:
        first = self.peek()
        if first is None:
            return False
        operator = self.peek(1)
        if operator in _BINARY and self.peek(2) is not None:
            right = self.peek(2) or ""
            self.index += 3
            return _binary(first, operator or "", right, globs=self.globs)
        if len(first) == 2 and first[0] == "-" and operator not in (None, "&&", "||", ")"):
            self.index += 2
            return _unary(first, operator or "")
        self.index += 1
        return None if is_unknown(first) else first != ""


def _binary(left: str, operator: str, right: str, *, globs: bool) -> bool | None:
    if is_unknown(left) or is_unknown(right) or operator in ("=~", "<", ">"):
        return None
    if operator in _COMPARE:
        if not (_NUMBER.fullmatch(left) and _NUMBER.fullmatch(right)):
            return None
        return _COMPARE[operator](int(left), int(right))
    is_equal = fnmatchcase(left, right) if globs else left == right
    return is_equal if operator != "!=" else not is_equal


def _unary(operator: str, operand: str) -> bool | None:
    if operator in ("-n", "-z") and not is_unknown(operand):
        return (operand != "") == (operator == "-n")
    return None
