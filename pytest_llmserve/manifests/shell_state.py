"""What is known at one point of a script: variables, arrays, written files, launches seen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.text import unknown
from pytest_llmserve.manifests.words import Field
from pytest_llmserve.manifests.words import field as field_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.manifests.servers import Start
    from pytest_llmserve.manifests.shell_tree import Block
    from pytest_llmserve.manifests.text import SourceText


class Status(Enum):
    """How a command ended, as far as reading can tell."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"  # a test whose operands are not known
    ASSUMED = "assumed"  # an outside command: success in lists, undecided in conditions


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command worth keeping: a server or a ``docker run``, with what it was started with."""

    fields: tuple[Field, ...]
    start: Start
    variables: dict[str, str]
    """All shell variables, the environment among them."""
    exported: frozenset[str]
    files: dict[str, SourceText]
    choices: tuple[int, ...] = ()
    """Lines of the undecided ``if``/``case`` on the way here."""

    def key(self) -> tuple[object, ...]:
        """Equal for two starts of the same words in the same environment."""
        own = sorted((name, self.variables.get(name)) for name in self.exported)
        return (tuple(item.text for item in self.fields), tuple(map(repr, own)))


@dataclass(slots=True)
class State:
    """One way through the script."""

    variables: dict[str, str] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    arrays: dict[str, tuple[Field, ...]] = field(default_factory=dict)
    parameters: tuple[Field, ...] = ()
    zero: str = ""
    files: dict[str, SourceText] = field(default_factory=dict)
    functions: dict[str, tuple[SourceText, Block]] = field(default_factory=dict)
    found: tuple[Invocation, ...] = ()
    choices: tuple[int, ...] = ()
    status: Status = Status.TRUE
    is_done: bool = False
    is_open: bool = False
    """A file that is not known was sourced: it may have set any variable."""
    flow: str = ""
    """``break`` or ``continue`` while it looks for its loop."""

    def fork(self, line: int | None = None) -> State:
        """An independent copy; ``line`` is that of the decision that was not known."""
        return replace(
            self,
            variables=dict(self.variables),
            arrays=dict(self.arrays),
            files=dict(self.files),
            functions=dict(self.functions),
            choices=self.choices if line is None else (*self.choices, line),
        )

    def set(self, name: str, value: str) -> None:
        """Assign a plain variable."""
        self.variables[name] = value
        self.arrays.pop(name, None)

    def unset(self, name: str) -> None:
        """Forget a variable."""
        self.variables.pop(name, None)
        self.arrays.pop(name, None)

    def key(self) -> tuple[object, ...]:
        """Equal for states between which the rest of the script cannot tell."""
        return (
            tuple(sorted(self.variables.items())),
            tuple(sorted((k, tuple(f.text for f in v)) for k, v in self.arrays.items())),
            tuple(f.text for f in self.parameters),
            tuple(sorted((name, text.text) for name, text in self.files.items())),
            tuple(item.key() for item in self.found),
            self.is_done,
            self.is_open,
            self.flow,
            self.status,
        )


def merged(states: Sequence[State], limit: int) -> list[State]:
    """The states without repeats; more than ``limit`` become one with unknown differences."""
    unique: dict[tuple[object, ...], State] = {}
    for state in states:
        unique.setdefault(state.key(), state)
    distinct = list(unique.values())
    if len(distinct) <= limit:
        return distinct
    ended = [state for state in distinct if state.is_done and state.found]
    going = [state for state in distinct if not state.is_done]
    return ended[:limit] + ([_blurred(going)] if going else [])


def _blurred(states: Sequence[State]) -> State:
    first = states[0].fork()
    for other in states[1:]:
        for name in first.variables.keys() | other.variables.keys():
            if first.variables.get(name) != other.variables.get(name):
                first.variables[name] = unknown(f"${name}")
        for name in first.arrays.keys() | other.arrays.keys():
            ours, theirs = first.arrays.get(name, ()), other.arrays.get(name, ())
            if [f.text for f in ours] != [f.text for f in theirs]:
                place = (ours or theirs)[0].location
                first.arrays[name] = (field_at(unknown(f"${{{name}[@]}}"), place),)
        known = {item.key() for item in first.found}
        first.found += tuple(item for item in other.found if item.key() not in known)
    return first
