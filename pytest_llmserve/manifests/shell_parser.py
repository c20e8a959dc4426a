"""Shell tokens into a tree: lists, pipelines, if, case, loops, functions, simple commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.shell_lexer import Lexer
from pytest_llmserve.manifests.shell_tokens import ShellError, Token, Verbatim
from pytest_llmserve.manifests.shell_tree import (
    AndOr,
    Assignment,
    Block,
    Case,
    Condition,
    For,
    Function,
    Group,
    If,
    Pipeline,
    Redirect,
    Simple,
    Statement,
    While,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.manifests.text import SourceText

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_REDIRECT: Final = re.compile(r"[0-9]*(?:<<<|<<-|<<|<&|<>|<|>>|>&|>\||>)|&>>?")
_MAX_NESTING: Final = 60


_CLOSERS: Final = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})


def parse(source: SourceText) -> tuple[Block, list[int]]:
    """The script's statements and the offsets of its backslash traps.

    Raises:
        ShellError: an open quote or parenthesis, or a construct without its end.
    """
    lexer = Lexer(source)
    parser = _Parser(lexer.tokens())
    block = parser.block(frozenset())
    token = parser.peek()
    if token.kind != "end":
        raise ShellError(f"unexpected {token.text!r}", token.start)
    return block, lexer.traps


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.index = 0
        self.depth = 0

    def peek(self) -> Token:
        return self.tokens[self.index]

    def take(self) -> Token:
        token = self.tokens[self.index]
        if token.kind != "end":
            self.index += 1
        return token

    def take_keyword(self, *words: str) -> str:
        """Take one of ``words``; an error names what was expected."""
        token = self.peek()
        if token.keyword not in words:
            found = token.text.strip() or "the end"
            raise ShellError(f"expected {' or '.join(words)} before {found!r}", token.start)
        self.index += 1
        return token.keyword

    def is_op(self, *operators: str) -> bool:
        token = self.peek()
        return token.kind == "op" and token.text in operators

    def skip_lines(self) -> None:
        while self.peek().kind == "newline":
            self.index += 1

    def block(self, closers: frozenset[str]) -> Block:
        """Statements up to a closing keyword, ``)``, ``;;`` or the end; closers are not taken."""
        self.depth += 1
        if self.depth > _MAX_NESTING:
            raise ShellError(f"nested deeper than {_MAX_NESTING} levels", self.peek().start)
        found: list[Statement] = []
        while True:
            while self.peek().kind == "newline" or self.is_op(";", "&"):
                self.index += 1
            token = self.peek()
            if token.kind == "end" or self.is_op(")", ";;", ";&", ";;&"):
                break
            if token.keyword in closers:
                break
            if token.keyword in _CLOSERS:
                raise ShellError(f"unexpected {token.text!r}", token.start)
            found.append(self.and_or())
        self.depth -= 1
        return tuple(found)

    def and_or(self) -> Statement:
        left = self.pipeline()
        while self.is_op("&&", "||"):
            operator = self.take().text
            self.skip_lines()
            left = AndOr(left, operator, self.pipeline())
        return left

    def pipeline(self) -> Statement:
        is_negated = False
        while self.peek().keyword in ("!", "time"):
            is_negated ^= self.take().keyword == "!"
        commands = [self.command()]
        while self.is_op("|", "|&"):
            self.take()
            self.skip_lines()
            commands.append(self.command())
        if len(commands) == 1 and not is_negated:
            return commands[0]
        return Pipeline(tuple(commands), is_negated)

    def command(self) -> Statement:
        readers: dict[str, Callable[[], Statement]] = {
            "if": self.if_,
            "case": self.case,
            "for": self.for_,
            "select": self.for_,
            "while": self.while_,
            "until": self.while_,
            "function": self.function,
            "{": self.braces,
            "[[": self.condition,
        }
        reader = readers.get(self.peek().keyword)
        if reader is not None:
            statement = reader()
            self.redirects(Simple(0))
            return statement
        if self.is_op("("):
            statement = self.parentheses()
            self.redirects(Simple(0))
            return statement
        return self.simple()

    def if_(self) -> If:
        start = self.take().start
        branches: list[tuple[Block, Block]] = []
        orelse: Block = ()
        while True:
            condition = self.block(frozenset({"then"}))
            self.take_keyword("then")
            body = self.block(frozenset({"elif", "else", "fi"}))
            branches.append((condition, body))
            word = self.take_keyword("elif", "else", "fi")
            if word == "else":
                orelse = self.block(frozenset({"fi"}))
                self.take_keyword("fi")
            if word != "elif":
                return If(start, tuple(branches), orelse)

    def case(self) -> Case:
        start = self.take().start
        subject = self.take()
        self.skip_lines()
        self.take_keyword("in")
        clauses: list[tuple[tuple[Token, ...], Block]] = []
        while True:
            self.skip_lines()
            if self.peek().keyword == "esac":
                self.index += 1
                return Case(start, subject, tuple(clauses))
            if self.is_op("("):
                self.index += 1
            patterns: list[Token] = []
            while not self.is_op(")"):
                token = self.take()
                if token.kind == "end":
                    raise ShellError("case has no esac", start)
                if token.kind == "word":
                    patterns.append(token)
            self.index += 1
            clauses.append((tuple(patterns), self.block(frozenset({"esac"}))))
            if self.is_op(";;", ";&", ";;&"):
                self.index += 1
            elif self.peek().keyword != "esac":
                raise ShellError("case has no esac", start)

    def for_(self) -> Statement:
        start = self.take().start
        if self.is_op("("):  # for (( i=0; i<n; i++ ))
            self.parentheses_text()
            name: str = ""
            words: tuple[Token, ...] | None = ()
        else:
            name, words = self.take().text, self.for_words()
        while self.peek().kind == "newline" or self.is_op(";"):
            self.index += 1
        if self.peek().keyword == "{":
            return For(start, name, words, self.braces().body)
        self.take_keyword("do")
        body = self.block(frozenset({"done"}))
        self.take_keyword("done")
        return For(start, name, words, body)

    def for_words(self) -> tuple[Token, ...] | None:
        self.skip_lines()
        if self.peek().keyword != "in":
            return None
        self.index += 1
        words: list[Token] = []
        while self.peek().kind == "word":
            words.append(self.take())
        return tuple(words)

    def while_(self) -> While:
        start = self.take().start
        condition = self.block(frozenset({"do"}))
        self.take_keyword("do")
        body = self.block(frozenset({"done"}))
        self.take_keyword("done")
        return While(start, condition, body)

    def function(self) -> Function:
        self.take()
        return self.function_body(self.take().text)

    def function_body(self, name: str) -> Function:
        if self.is_op("("):
            self.index += 1
            if self.is_op(")"):
                self.index += 1
        self.skip_lines()
        body = self.command()
        return Function(name, body.body if isinstance(body, Group) else (body,))

    def braces(self) -> Group:
        self.take()
        body = self.block(frozenset({"}"}))
        self.take_keyword("}")
        return Group(body)

    def parentheses(self) -> Group:
        following = self.tokens[self.index + 1]
        if following.text == "(" and following.start == self.peek().start + 1:
            self.parentheses_text()  # (( arithmetic )): its status is not known
            return Group((Simple(following.start),))
        opened = self.take()
        body = self.block(frozenset())
        if not self.is_op(")"):
            raise ShellError("a parenthesis is not closed", opened.start)
        self.index += 1
        return Group(body)

    def parentheses_text(self) -> None:
        opened = self.peek().start
        depth = 0
        while True:
            token = self.take()
            if token.kind == "end":
                raise ShellError("a parenthesis is not closed", opened)
            if token.kind == "op":
                depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth == 0:
                return

    def condition(self) -> Condition:
        start = self.take().start
        tokens: list[Token] = []
        while self.peek().keyword != "]]":
            token = self.take()
            if token.kind == "end":
                raise ShellError("'[[' is not closed", start)
            if token.kind != "newline":
                tokens.append(token)
        self.index += 1
        return Condition(start, tuple(tokens))

    def simple(self) -> Statement:
        command = Simple(self.peek().start)
        while True:
            self.redirects(command)
            token = self.peek()
            if token.kind != "word":
                break
            self.index += 1
            found = None if command.words else _assignment(token)
            if found is not None:
                command.assignments.append(found)
            else:
                command.words.append(token)
            if len(command.words) == 1 and self.is_op("(") and not command.assignments:
                return self.function_body(command.words[0].text)
        if not (command.words or command.assignments or command.redirects):
            token = self.peek()
            raise ShellError(f"unexpected {token.text.strip() or 'end'!r}", token.start)
        return command

    def redirects(self, command: Simple) -> None:
        while self.peek().kind == "op" and _REDIRECT.fullmatch(self.peek().text):
            operator = self.take()
            target = self.take()
            if target.kind != "word":
                raise ShellError(f"{operator.text!r} has no target", operator.start)
            command.redirects.append(
                Redirect(
                    operator.text.lstrip("0123456789"),
                    target,
                    operator.heredoc,
                    operator.is_heredoc_raw,
                )
            )


def _assignment(token: Token) -> Assignment | None:
    first = token.parts[0] if token.parts else None
    if not isinstance(first, Verbatim) or first.is_quoted:
        return None
    match = _ASSIGNMENT.match(first.text)
    if match is None:
        return None
    rest = Verbatim(first.text[match.end() :], first.offset + match.end(), False)
    parts = [rest, *token.parts[1:]] if rest.text or len(token.parts) == 1 else token.parts[1:]
    value = Token("word", token.text[match.end() :], token.start + match.end(), parts, token.array)
    return Assignment(match[1], bool(match[2]), value)


def assignment(token: Token) -> Assignment | None:
    """The token as ``NAME=value``, or None: what ``export`` and ``local`` are given."""
    return _assignment(token)
