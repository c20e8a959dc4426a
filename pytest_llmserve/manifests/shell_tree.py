"""The tree of a shell script. Nodes are made once and compared never: no generated methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pytest_llmserve.manifests.shell_tokens import Token
    from pytest_llmserve.manifests.text import SourceText


@dataclass(slots=True, eq=False, repr=False)
class Assignment:
    """``NAME=value``, ``NAME+=value`` or ``NAME=(elements)``; ``value`` starts after ``=``."""

    name: str
    appends: bool
    value: Token


@dataclass(slots=True, eq=False, repr=False)
class Redirect:
    """``> file``, ``<<EOF`` and the like."""

    operator: str
    target: Token
    heredoc: SourceText | None = None
    is_raw: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Simple:
    """One command with its assignments and redirects."""

    start: int
    words: list[Token] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)


@dataclass(slots=True, eq=False, repr=False)
class Condition:
    """``[[ ... ]]``: words and operators between the brackets."""

    start: int
    tokens: tuple[Token, ...]


@dataclass(slots=True, eq=False, repr=False)
class Pipeline:
    """Commands joined by ``|``; ``!`` in front turns the status round."""

    commands: tuple[Statement, ...]
    is_negated: bool = False


@dataclass(slots=True, eq=False, repr=False)
class AndOr:
    """``left && right`` or ``left || right``."""

    left: Statement
    operator: str
    right: Statement


@dataclass(slots=True, eq=False, repr=False)
class If:
    """``if``/``elif`` branches in order, then ``else``."""

    start: int
    branches: tuple[tuple[Block, Block], ...]
    orelse: Block


@dataclass(slots=True, eq=False, repr=False)
class Case:
    """``case word in patterns) body ;; esac``."""

    start: int
    subject: Token
    clauses: tuple[tuple[tuple[Token, ...], Block], ...]


@dataclass(slots=True, eq=False, repr=False)
class For:
    """``for name in words``; ``words`` None means ``"$@"``."""

    start: int
    name: str
    words: tuple[Token, ...] | None
    body: Block


@dataclass(slots=True, eq=False, repr=False)
class While:
    """``while`` or ``until``."""

    start: int
    condition: Block
    body: Block


@dataclass(slots=True, eq=False, repr=False)
class Function:
    """``name() { body }``."""

    name: str
    body: Block


@dataclass(slots=True, eq=False, repr=False)
class Group:
    """``{ ...; }`` or ``( ... )``."""

    body: Block


Statement: TypeAlias = (
    Simple | Condition | Pipeline | AndOr | If | Case | For | While | Function | Group
)
Block: TypeAlias = tuple[Statement, ...]
