"""Reads a script the way a shell would run it, without running anything.

Assignments, arrays, conditions over known values, loops over known words, functions, heredocs
that write files. A decision that is not known is followed both ways: each way that starts a
server with other words is an alternative.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.servers import find_start
from pytest_llmserve.manifests.shell_builtins import BUILTINS, as_status
from pytest_llmserve.manifests.shell_call import shell_call
from pytest_llmserve.manifests.shell_expand import expand, expand_pattern, expand_value
from pytest_llmserve.manifests.shell_files import written_file
from pytest_llmserve.manifests.shell_math import test
from pytest_llmserve.manifests.shell_parser import parse
from pytest_llmserve.manifests.shell_state import Invocation, State, Status, merged
from pytest_llmserve.manifests.shell_tokens import ShellError
from pytest_llmserve.manifests.shell_tree import (
    AndOr,
    Assignment,
    Case,
    Condition,
    For,
    Function,
    Group,
    If,
    Pipeline,
    Simple,
    While,
)
from pytest_llmserve.manifests.text import SourceText, is_unknown, unknown
from pytest_llmserve.manifests.words import Field, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_llmserve.manifests.shell_tree import Block, Statement
    from pytest_llmserve.verdict import Location

MAX_WAYS: Final = 16
_MAX_STEPS: Final = 5_000
_MAX_DEPTH: Final = 20
_MAX_LOOP: Final = 64


class Script:
    """One script followed from its first statement.

    ``ways`` are the distinct ends; ``traps`` the places of backslashes followed by a blank.
    """

    def __init__(
        self,
        source: SourceText,
        state: State,
        beside: Callable[[str], SourceText | None] = lambda _: None,
    ) -> None:
        self.beside = beside
        self.steps = 0
        self.depth = 0
        self.traps: list[Location] = []
        self.source = source
        self.ways = self.script(source, state)

    def invocations(self) -> list[Invocation]:
        """Servers and container runs of all ways, without repeats, in order of first sight."""
        found: dict[object, Invocation] = {}
        for way in self.ways:
            for item in way.found:
                found.setdefault(item.key(), item)
        return list(found.values())

    def is_alternative(self, item: Invocation) -> bool:
        """Whether some way through the script starts servers and not this one."""
        key = item.key()
        return any(
            key not in {other.key() for other in way.found} for way in self.ways if way.found
        )

    def script(self, source: SourceText, state: State) -> list[State]:
        """The ways through ``source``, from ``state`` on.

        Raises:
            ShellError: with the place in the file.
        """
        kept, self.source = self.source, source
        self.depth += 1
        try:
            if self.depth > _MAX_DEPTH:
                raise ShellError(f"scripts nested deeper than {_MAX_DEPTH} levels", 0)
            block, traps = parse(source)
            self.traps.extend(source.at(offset) for offset in traps)
            ways = self._block(block, [state])
        except ShellError as error:
            error.location = error.location or source.at(error.offset)
            raise
        self.depth -= 1
        self.source = kept
        return ways

    def _block(self, block: Block, states: Sequence[State]) -> list[State]:
        ways = list(states)
        for statement in block:
            following: list[State] = []
            for state in ways:
                if state.is_done or state.flow:
                    following.append(state)
                else:
                    following.extend(self._statement(statement, state))
            ways = merged(following, MAX_WAYS) if len(following) > 1 else following
        return ways

    def _statement(self, statement: Statement, state: State) -> list[State]:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise ShellError(f"more than {_MAX_STEPS} steps to follow", 0)
        if isinstance(statement, Simple):
            return self._simple(statement, state)
        if isinstance(statement, AndOr):
            return self._and_or(statement, state)
        if isinstance(statement, If):
            return self._if(statement, state)
        if isinstance(statement, Case):
            return self._case(statement, state)
        return self._rarer(statement, state)

    def _rarer(self, statement: Statement, state: State) -> list[State]:
        if isinstance(statement, Pipeline):
            return self._pipeline(statement, state)
        if isinstance(statement, Condition):
            state.status = as_status(test(self._operands(statement, state), globs=True))
            return [state]
        if isinstance(statement, For):
            return self._for(statement, state)
        if isinstance(statement, While):
            return self._while(statement, state)
        if isinstance(statement, Function):
            state.functions[statement.name] = (self.source, statement.body)
            state.status = Status.TRUE
            return [state]
        if isinstance(statement, Group):
            return self._block(statement.body, [state])
        return [state]

    def _pipeline(self, statement: Pipeline, state: State) -> list[State]:
        ways = [state]
        for command in statement.commands:
            ways = self._block((command,), ways)
        flips = {Status.TRUE: Status.FALSE, Status.FALSE: Status.TRUE}
        for way in ways:
            if len(statement.commands) > 1:
                way.status = Status.ASSUMED
                way.is_done = False  # each side runs in a shell of its own
            if statement.is_negated:
                way.status = flips.get(way.status, Status.UNKNOWN)
        return ways

    def _and_or(self, statement: AndOr, state: State) -> list[State]:
        ways: list[State] = []
        goes_on = (Status.TRUE, Status.ASSUMED) if statement.operator == "&&" else (Status.FALSE,)
        for way in self._block((statement.left,), [state]):
            if way.is_done or way.flow:
                ways.append(way)
            elif way.status is Status.UNKNOWN:
                skipped = way.fork(self._line(statement.right))
                skipped.status = Status.UNKNOWN
                ways.append(skipped)
                ways.extend(self._block((statement.right,), [way.fork(skipped.choices[-1])]))
            elif way.status in goes_on:
                ways.extend(self._block((statement.right,), [way]))
            else:
                ways.append(way)
        return ways

    def _line(self, statement: Statement) -> int:
        while isinstance(statement, AndOr | Pipeline | Group):
            if isinstance(statement, AndOr):
                statement = statement.left
            else:
                parts = statement.body if isinstance(statement, Group) else statement.commands
                if not parts:
                    return self.source.at(0).line
                statement = parts[0]
        start = 0 if isinstance(statement, Function) else statement.start
        return self.source.at(start).line

    def _if(self, statement: If, state: State) -> list[State]:
        done: list[State] = []
        undecided = [state]
        line = self.source.at(statement.start).line
        for condition, body in statement.branches:
            following: list[State] = []
            for way in self._block(condition, undecided):
                if way.is_done or way.flow:
                    done.append(way)
                elif way.status is Status.TRUE:
                    done.extend(self._block(body, [way]))
                elif way.status is Status.FALSE:
                    following.append(way)
                else:
                    done.extend(self._block(body, [way.fork(line)]))
                    following.append(way.fork(line))
            undecided = following
        for way in undecided:
            way.status = Status.TRUE
        return done + self._block(statement.orelse, undecided)

    def _case(self, statement: Case, state: State) -> list[State]:
        subject = expand_value(statement.subject, state, self.source, is_test=True).text
        line = self.source.at(statement.start).line
        ways: list[State] = []
        for patterns, body in statement.clauses:
            if is_unknown(subject):
                ways.extend(self._block(body, [state.fork(line)]))
                continue
            if any(
                fnmatchcase(subject, expand_pattern(word, state, self.source)) for word in patterns
            ):
                return self._block(body, [state])
        state.status = Status.TRUE
        return [*ways, state.fork(line) if ways else state]

    def _for(self, statement: For, state: State) -> list[State]:
        items = state.parameters
        if statement.words is not None:
            items = tuple(f for word in statement.words for f in expand(word, state, self.source))
        values = [masked(statement.name, item.text) for item in items[:_MAX_LOOP]]
        if len(items) > _MAX_LOOP:
            values.append(unknown(f"${statement.name}"))
        going: list[State] = [state]
        ended: list[State] = []
        for value in values:
            for way in going:
                way.set(statement.name, value)
            ways = self._block(statement.body, going)
            going = [way for way in ways if not way.is_done and way.flow in ("", "continue")]
            ended.extend(way for way in ways if way.is_done or way.flow in ("break", "return"))
            for way in going:
                way.flow = ""
        for way in ended:
            way.flow = "" if way.flow == "break" else way.flow
        return merged([*going, *ended], MAX_WAYS)

    def _while(self, statement: While, state: State) -> list[State]:
        ways: list[State] = []
        for way in self._block(statement.condition, [state]):
            if way.is_done or way.status is Status.FALSE:
                ways.append(way)
            else:
                ways.extend(self._block(statement.body, [way]))
        for way in ways:
            way.flow = "return" if way.flow == "return" else ""
        return ways

    def _operands(self, statement: Condition, state: State) -> list[str]:
        words: list[str] = []
        for token in statement.tokens:
            if token.kind == "op":
                words.append(token.text)
            elif words and words[-1] in ("==", "=", "!="):
                words.append(expand_pattern(token, state, self.source))
            else:
                words.append(expand_value(token, state, self.source, is_test=True).text)
        return words

    def _simple(self, command: Simple, state: State) -> list[State]:
        is_test = bool(command.words) and command.words[0].keyword in ("[", "test")
        fields = [
            item
            for token in command.words
            for item in expand(token, state, self.source, is_test=is_test)
        ]
        if not fields:
            for item in command.assignments:
                self.assign(item, state)
            state.status = Status.TRUE
            return [state]
        own: dict[str, str] = {}
        for item in command.assignments:
            value = expand_value(item.value, state, self.source).text
            own[item.name] = masked(item.name, value)
        written = written_file(command, fields, state, self.source)
        if written is not None:
            state.files[written[0]] = written[1]
        return self._call(fields, own, command, state)

    def file(self, path: str, state: State) -> SourceText | None:
        """A file written by the script, mounted, or kept beside it."""
        return state.files.get(path) or self.beside(path)

    def assign(self, item: Assignment, state: State) -> None:
        """Carry out ``NAME=value``; values of secret names are masked at once."""
        if item.value.array is not None:
            elements = tuple(f for w in item.value.array for f in expand(w, state, self.source))
            before = state.arrays.get(item.name, ()) if item.appends else ()
            state.variables.pop(item.name, None)
            state.arrays[item.name] = (*before, *elements)
            return
        value = expand_value(item.value, state, self.source).text
        before_text = state.variables.get(item.name, "") if item.appends else ""
        state.set(item.name, masked(item.name, before_text + value))

    def _call(
        self, fields: list[Field], own: dict[str, str], command: Simple, state: State
    ) -> list[State]:
        name = fields[0].text
        if name in state.functions and self.depth < _MAX_DEPTH:
            return self._function(fields, state)
        builtin = BUILTINS.get(name)
        if builtin is not None:
            return builtin(self, fields, command, state)
        words = texts(fields)
        start = find_start(words)
        state.status = Status.ASSUMED
        if start is not None and start.kind == "shell":
            ways = self._shell(fields, start.index, own, state)
            if ways is not None:
                return ways
        elif start is not None:
            self._record(fields, own, state)
        elif name in state.files:
            ways = self._nested(state.files[name], tuple(fields[1:]), own, state)
            return [self._ended(way, name) for way in ways]
        if name == "exec":
            state.is_done = True
        return [state]

    def _record(self, fields: list[Field], own: dict[str, str], state: State) -> None:
        start = find_start(texts(fields))
        if start is None:
            return
        inline = dict(own)
        for item in fields[: start.begin]:  # env A=B vllm serve ...
            name, equals, value = item.text.partition("=")
            if equals and name.isidentifier():
                inline[name] = masked(name, value)
        state.found += (
            Invocation(
                tuple(fields),
                start,
                {**state.variables, **inline},
                state.exported | inline.keys(),
                dict(state.files),
                state.choices,
            ),
        )

    def _function(self, fields: list[Field], state: State) -> list[State]:
        source, body = state.functions[fields[0].text]
        kept_parameters, kept_source = state.parameters, self.source
        state.parameters, self.source = tuple(fields[1:]), source
        self.depth += 1
        ways = self._block(body, [state])
        self.depth -= 1
        self.source = kept_source
        for way in ways:
            way.parameters = kept_parameters
            if way.flow == "return":
                way.flow = ""
        return ways

    def _shell(
        self, fields: list[Field], index: int, own: dict[str, str], state: State
    ) -> list[State] | None:
        """``bash -c script``, ``bash file``: followed in a state of its own."""
        inner = shell_call(fields, index, lambda path: self.file(path, state))
        if inner is None:
            return None
        ways = self._nested(*inner, own, state)
        return [self._ended(way, fields[0].text) for way in ways]

    def _nested(
        self,
        source: SourceText,
        parameters: tuple[Field, ...],
        own: dict[str, str],
        state: State,
    ) -> list[State]:
        """A script in a shell of its own: only what it starts comes back."""
        nested = state.fork()
        nested.variables.update(own)
        nested.exported |= own.keys()
        nested.parameters, nested.zero, nested.arrays = parameters, "", {}
        ways = []
        for way in self.script(source, nested):
            back = state.fork()
            back.found, back.choices, back.status = way.found, way.choices, Status.ASSUMED
            ways.append(back)
        return merged(ways, MAX_WAYS)

    @staticmethod
    def _ended(way: State, name: str) -> State:
        way.is_done = way.is_done or name == "exec"
        return way
