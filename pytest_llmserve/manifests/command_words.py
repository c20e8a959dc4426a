"""A command written as one string, split as compose and Docker split it: quotes, no shell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.shell_lexer import Lexer
from pytest_llmserve.manifests.shell_tokens import Part, Substitution, Token, Verbatim
from pytest_llmserve.manifests.text import SourceText, join
from pytest_llmserve.manifests.words import Field
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.verdict import Location

_PLAIN: Final = re.compile(r"[^\\'\" \t\n;&|<>]+")


class _CommandLexer(Lexer):
    """No expansion, no comments, a line end is a blank, ``;`` and its like end the command."""

    def _skip_blanks(self) -> None:
        text = self.text
        while self.position < len(text):
            if text[self.position] in " \t\n":
                self.position += 1
            elif text.startswith("\\\n", self.position):
                self.traps.append(self.position)
                self.position += 2
            elif text[self.position] != "\\" or not self._skip_escaped_blank():
                return

    def _word(self) -> Token:
        token = Token("word", "", self.position)
        while self.position < len(self.text) and self.text[self.position] not in " \t\n;&|<>":
            char = self.text[self.position]
            if char in "\\'\"":
                self._part(token.parts, quoted=False)
            else:
                self._verbatim(token.parts, _PLAIN, quoted=False)
        return token

    def _dollar(self, *, quoted: bool) -> Part:
        self.position += 1
        return Verbatim("$", self.position - 1, quoted)

    def _backtick(self, *, quoted: bool) -> Substitution:
        raise NotImplementedError

    def _part(self, parts: list[Part], *, quoted: bool) -> None:
        if self.text[self.position] == "`":
            self._verbatim(parts, re.compile("`+"), quoted=quoted)
        else:
            super()._part(parts, quoted=quoted)


def split_command(source: SourceText) -> tuple[list[Field], list[Problem]]:
    """The words of a command string and what is doubtful about it.

    Raises:
        ShellError: a quote is not closed.
    """
    lexer = _CommandLexer(source)
    fields: list[Field] = []
    problems: list[Problem] = []
    while True:
        token = lexer._next()
        if token.kind == "end":
            break
        if token.kind == "op":
            if token.text in "()":
                fields.append(Field(source.part(token.start, token.start + 1)))
                continue
            problems.append(_operator(token.text, source.at(token.start)))
            break
        pieces = [_written(part, source) for part in token.parts]
        fields.append(Field(join(pieces) if pieces else source.part(token.start, token.start)))
    problems.extend(trap_problem(source.at(offset)) for offset in lexer.traps)
    return fields, problems


def _written(part: Part, source: SourceText) -> SourceText:
    text = part.text if isinstance(part, Verbatim) else part.raw
    if source.text[part.offset : part.offset + len(text)] == text:
        return source.part(part.offset, part.offset + len(text))
    return SourceText.at_place(text, source.at(part.offset))


def _operator(text: str, location: Location) -> Problem:
    message = f"{text!r} ends the command: no shell runs it, what follows is dropped"
    return Problem(ProblemKind.WARNING, message, location, expected="['sh', '-c', '...']")


def trap_problem(location: Location) -> Problem:
    """A backslash that does not continue the line as its author meant."""
    message = (
        "a backslash here does not continue the line (blanks follow it, the YAML folds the line,"
        " or no shell reads it): the program gets a stray blank argument"
    )
    return Problem(ProblemKind.WARNING, message, location, value="\\")
