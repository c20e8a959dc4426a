"""The shell's own commands, as far as they change what a script starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pytest_llmserve.manifests.shell_math import test
from pytest_llmserve.manifests.shell_parser import assignment
from pytest_llmserve.manifests.shell_state import Status
from pytest_llmserve.manifests.text import SourceText, join, unknown
from pytest_llmserve.manifests.words import Field, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.manifests.shell_state import State
    from pytest_llmserve.manifests.shell_tree import Assignment, Simple


class Follower(Protocol):
    """The part of a script reader that builtins use."""

    depth: int

    def script(self, source: SourceText, state: State) -> list[State]:
        """Follow another script in the same state."""
        ...

    def file(self, path: str, state: State) -> SourceText | None:
        """A file written by the script, mounted, or kept beside it."""
        ...

    def assign(self, item: Assignment, state: State) -> None:
        """Carry out one assignment."""
        ...


def as_status(value: bool | None) -> Status:
    """A test's answer as an exit status."""
    if value is None:
        return Status.UNKNOWN
    return Status.TRUE if value else Status.FALSE


def _declare(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    for token in command.words[1:]:
        item = assignment(token)
        if item is not None:
            run.assign(item, state)
        name = item.name if item is not None else token.keyword
        if fields[0].text == "export" and name:
            state.exported |= {name}
    state.status = Status.TRUE
    return [state]


def _test(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    words = texts(fields[1:])
    if fields[0].text == "[" and words[-1:] == ["]"]:
        words.pop()
    state.status = as_status(test(words, globs=False))
    return [state]


def _set(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    words = texts(fields)
    if "--" in words:
        state.parameters = tuple(fields[words.index("--") + 1 :])
    state.status = Status.TRUE
    return [state]


def _shift(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    count = fields[1].text if len(fields) > 1 else "1"
    state.parameters = state.parameters[int(count) if count.isdecimal() else 1 :]
    return [state]


def _exit(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    if fields[0].text == "return" and run.depth > 1:
        state.flow = "return"
    else:
        state.is_done = True
    return [state]


def _flow(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    state.flow = fields[0].text
    return [state]


def _constant(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    state.status = Status.FALSE if fields[0].text == "false" else Status.TRUE
    return [state]


def _eval(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    if len(fields) == 1:
        return [state]
    return run.script(join([item.source for item in fields[1:]], " "), state)


def _source(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    state.status = Status.ASSUMED
    text = run.file(fields[1].text, state) if len(fields) > 1 else None
    if text is None:
        state.is_open = True
        return [state]
    return run.script(text, state)


def _unset(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    for item in fields[1:]:
        state.unset(item.text)
    state.status = Status.TRUE
    return [state]


def _read(run: Follower, fields: list[Field], command: Simple, state: State) -> list[State]:
    for item in fields[1:]:
        if item.text.isidentifier():
            state.set(item.text, unknown(f"${item.text}"))
    state.status = Status.ASSUMED
    return [state]


BUILTINS: Final[dict[str, Callable[[Follower, list[Field], Simple, State], list[State]]]] = {
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _declare),
    "[": _test,
    "test": _test,
    "set": _set,
    "shift": _shift,
    "exit": _exit,
    "return": _exit,
    "break": _flow,
    "continue": _flow,
    ":": _constant,
    "true": _constant,
    "false": _constant,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "unset": _unset,
    "read": _read,
}
