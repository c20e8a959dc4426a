"""What a shell script is made of before anything is expanded: words, their parts, operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pytest_llmserve.manifests.text import SourceText
    from pytest_llmserve.verdict import Location


class ShellError(ValueError):
    """Text that no shell would take; ``offset`` is where, ``location`` the same in the file."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset
        self.location: Location | None = None


@dataclass(slots=True, eq=False, repr=False)
class Verbatim:
    """Characters that stand for themselves, verbatim from ``offset``."""

    text: str
    offset: int
    is_quoted: bool


@dataclass(slots=True, eq=False, repr=False)
class Variable:
    """``$NAME`` or ``${NAME}`` with an optional operator (``:-``, ``+``, ``?``...)."""

    name: str
    offset: int
    is_quoted: bool
    raw: str
    operator: str = ""
    argument: tuple[Part, ...] = ()
    index: str = ""
    """``@``, ``*`` or a number for ``${NAME[index]}``."""


@dataclass(slots=True, eq=False, repr=False)
class Substitution:
    """``$(...)``, a backtick, ``<(...)`` or a ``${...}`` form that is not followed: no value."""

    raw: str
    offset: int
    is_quoted: bool


@dataclass(slots=True, eq=False, repr=False)
class Arithmetic:
    """``$((...))``; ``parts`` are the expression."""

    parts: tuple[Part, ...]
    raw: str
    offset: int
    is_quoted: bool


Part: TypeAlias = Verbatim | Variable | Substitution | Arithmetic


@dataclass(slots=True, eq=False, repr=False)
class Token:
    """A word (with ``parts``), an operator or a line end."""

    kind: Literal["word", "op", "newline", "end"]
    text: str
    start: int
    parts: list[Part] = field(default_factory=list)
    array: list[Token] | None = None
    """Elements of ``NAME=( ... )``; the word's parts are then ``NAME=``."""
    heredoc: SourceText | None = None
    is_heredoc_raw: bool = False

    @property
    def keyword(self) -> str:
        """The text where nothing in it is quoted or expanded, else ``""``."""
        if self.kind != "word" or len(self.parts) != 1 or self.array is not None:
            return ""
        part = self.parts[0]
        return part.text if isinstance(part, Verbatim) and not part.is_quoted else ""
