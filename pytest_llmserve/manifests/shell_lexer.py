"""Cuts shell text into words and operators, quotes honoured, every part with its offset."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.shell_tokens import (
    Arithmetic,
    Part,
    ShellError,
    Substitution,
    Token,
    Variable,
    Verbatim,
)
from pytest_llmserve.manifests.text import CLOSE, OPEN

if TYPE_CHECKING:
    from pytest_llmserve.manifests.text import SourceText

_OPERATOR: Final = re.compile(
    r"[0-9]*(?:<<<|<<-|<<|<&|<>|>>|>&|>\||<(?!\()|>(?!\())"
    r"|&>>|&>|;;&|;;|;&|;|&&|&|\|\||\|&|\||\(|\)"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_INDEX: Final = re.compile(r"\[([@*]|[0-9]+)\]")
_EXPANSION: Final = re.compile(r":?[-=?+]|(?=\})")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ANSI: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "e": "\x1b"}
_MAX_NESTING: Final = 40
_MARKED: Final = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}")
_IN_QUOTES: Final = re.compile(rf'[^\\$`"{OPEN}]+')
_PLAIN: Final = re.compile(rf"[^\\$`'\" \t\n;&|<>(){OPEN}]+")
BLANKS: Final = " \t"


class Lexer:
    """Tokens of one script.

    ``traps`` are offsets of backslashes followed by a blank where a line was meant to go on.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.text = source.text
        self.position = 0
        self.traps: list[int] = []
        self._heredocs: list[tuple[Token, str, bool]] = []
        self._depth = 0

    def tokens(self) -> list[Token]:
        """All tokens, the last of kind ``end``."""
        found: list[Token] = []
        waiting: Token | None = None
        while True:
            token = self._next()
            found.append(token)
            if waiting is not None and token.kind == "word":
                self._expect_heredoc(waiting, token)
                waiting = None
            if token.kind == "op" and token.text.lstrip("0123456789") in ("<<", "<<-"):
                waiting = token
            if token.kind == "newline" and self._heredocs:
                self._read_heredocs()
            if token.kind == "end":
                return found

    def heredoc_parts(self) -> list[Part]:
        """The whole text as one heredoc body: ``$`` forms expand, quotes stand for themselves."""
        parts: list[Part] = []
        while self.position < len(self.text):
            if self.text[self.position] == '"':
                self._verbatim(parts, re.compile('"+'), quoted=True)
            else:
                self._part(parts, quoted=True)
        return parts

    def _next(self) -> Token:
        self._skip_blanks()
        start = self.position
        if start >= len(self.text):
            return Token("end", "", start)
        if self.text[start] == "\n":
            self.position += 1
            return Token("newline", "\n", start)
        match = _OPERATOR.match(self.text, start)
        if match:
            self.position = match.end()
            return Token("op", match[0], start)
        return self._word()

    def _skip_blanks(self) -> None:
        text = self.text
        while self.position < len(text):
            char = text[self.position]
            if char in BLANKS:
                self.position += 1
            elif char == "#":
                end = text.find("\n", self.position)
                self.position = len(text) if end < 0 else end
            elif char == "\\" and self._skip_escaped_blank():
                continue
            else:
                return

    def _skip_escaped_blank(self) -> bool:
        """Skip a backslash at a line end; before a blank it is a trap where a word begins."""
        text, position = self.text, self.position
        after = text[position + 1 : position + 2]
        if after == "\n":
            self.position += 2
            return True
        if after and after in BLANKS:
            self.traps.append(position)
            match = re.compile(r"\\[ \t]+\n?").match(text, position)
            self.position = match.end() if match else position + 2
            return True
        if not after:
            self.position += 1
            return True
        return False

    def _expect_heredoc(self, operator: Token, delimiter: Token) -> None:
        words = [part.text for part in delimiter.parts if isinstance(part, Verbatim)]
        is_raw = any(part.is_quoted for part in delimiter.parts) or "\\" in delimiter.text
        self._heredocs.append((operator, "".join(words), is_raw))

    def _read_heredocs(self) -> None:
        for operator, delimiter, is_raw in self._heredocs:
            strips = operator.text.endswith("-")
            start = end = self.position
            while True:
                if end >= len(self.text):
                    message = f"the heredoc has no closing {delimiter!r}"
                    raise ShellError(message, operator.start)
                stop = self.text.find("\n", end)
                stop = len(self.text) if stop < 0 else stop
                row = self.text[end:stop]
                if (row.lstrip("\t") if strips else row) == delimiter:
                    break
                end = stop + 1
            body = self.source.part(start, min(end, len(self.text)))
            if strips:
                tabs = [(m.start(), m.end(), "") for m in re.finditer(r"(?m)^\t+", body.text)]
                body = body.replaced(tabs)
            operator.heredoc, operator.is_heredoc_raw = body, is_raw
            self.position = min(stop + 1, len(self.text))
        self._heredocs = []

    def _word(self) -> Token:
        start = self.position
        token = Token("word", "", start)
        while self.position < len(self.text):
            char = self.text[self.position]
            if char in " \t\n;&|":
                break
            if char in "<>" and not self.text.startswith("(", self.position + 1):
                break
            if char in "()":
                if char == "(" and self._is_array(token):
                    token.array = self._array()
                break
            self._part(token.parts, quoted=False)
        token.text = self.text[start : self.position]
        return token

    def _is_array(self, token: Token) -> bool:
        raw = self.text[token.start : self.position]
        return _ASSIGNMENT.fullmatch(raw) is not None

    def _array(self) -> list[Token]:
        opened = self.position
        self.position += 1
        elements: list[Token] = []
        while True:
            token = self._next()
            if token.kind == "end":
                raise ShellError("the array has no closing ')'", opened)
            if token.kind == "op" and token.text == ")":
                return elements
            if token.kind == "word":
                elements.append(token)

    def _part(self, parts: list[Part], *, quoted: bool) -> None:
        """Read one part of a word at the position, inside double quotes or not."""
        char = self.text[self.position]
        if char == OPEN:
            self._verbatim(parts, _MARKED, quoted=True)
        elif char == "\\":
            self._escape(parts, quoted=quoted)
        elif char == "$":
            parts.append(self._dollar(quoted=quoted))
        elif char == "`":
            parts.append(self._backtick(quoted=quoted))
        elif quoted:
            self._verbatim(parts, _IN_QUOTES, quoted=True)
        elif char == "'":
            end = self._find("'", self.position + 1, "'")
            parts.append(Verbatim(self.text[self.position + 1 : end], self.position + 1, True))
            self.position = end + 1
        elif char == '"':
            self._double_quoted(parts)
        elif char in "<>":
            end = self._closing(self.position + 1)
            parts.append(Substitution(self.text[self.position : end], self.position, True))
            self.position = end
        else:
            self._verbatim(parts, _PLAIN, quoted=False)

    def _verbatim(self, parts: list[Part], pattern: re.Pattern[str], *, quoted: bool) -> None:
        match = pattern.match(self.text, self.position)
        end = match.end() if match else self.position + 1
        parts.append(Verbatim(self.text[self.position : end], self.position, quoted))
        self.position = end

    def _find(self, char: str, start: int, what: str) -> int:
        end = self.text.find(char, start)
        if end < 0:
            raise ShellError(f"a quote {what} is not closed", start - 1)
        return end

    def _escape(self, parts: list[Part], *, quoted: bool) -> None:
        after = self.text[self.position + 1 : self.position + 2]
        if after == "\n":
            self.position += 2
        elif quoted and after not in ("$", "`", '"', "\\"):
            parts.append(Verbatim("\\", self.position, True))
            self.position += 1
        else:
            if after:
                parts.append(Verbatim(after, self.position + 1, True))
            self.position += 2

    def _double_quoted(self, parts: list[Part]) -> None:
        opened = self.position
        self.position += 1
        count = len(parts)
        while True:
            if self.position >= len(self.text):
                raise ShellError('a quote " is not closed', opened)
            if self.text[self.position] == '"':
                break
            self._part(parts, quoted=True)
        if len(parts) == count:
            parts.append(Verbatim("", opened, True))
        self.position += 1

    def _backtick(self, *, quoted: bool) -> Substitution:
        start = self.position
        end = start + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise ShellError("a backtick is not closed", start)
        self.position = end + 1
        return Substitution(self.text[start : end + 1], start, quoted)

    def _dollar(self, *, quoted: bool) -> Part:
        text, start = self.text, self.position
        if text.startswith("$((", start):
            end = self._closing(start + 1)
            if text.startswith("))", end - 2):
                self.position = end
                inner = self._subparts(start + 3, end - 2)
                return Arithmetic(inner, text[start:end], start, quoted)
        if text.startswith("$(", start):
            self.position = self._closing(start + 1)
            return Substitution(text[start : self.position], start, quoted)
        if text.startswith("${", start):
            return self._braced(quoted=quoted)
        if text.startswith("$'", start) and not quoted:
            return self._ansi()
        match = _NAME.match(text, start + 1)
        if match is None or text.startswith('$"', start):
            self.position += 1
            return Verbatim(
                "" if text.startswith('$"', start) and not quoted else "$", start, quoted
            )
        name = match[0] if not match[0].isdigit() else match[0][0]
        self.position = start + 1 + len(name)
        return Variable(name, start, quoted, text[start : self.position])

    def _ansi(self) -> Verbatim:
        start = self.position
        end = start + 2
        out: list[str] = []
        while end < len(self.text) and self.text[end] != "'":
            if self.text[end] == "\\" and end + 1 < len(self.text):
                out.append(_ANSI.get(self.text[end + 1], "\\" + self.text[end + 1]))
                end += 2
            else:
                out.append(self.text[end])
                end += 1
        if end >= len(self.text):
            raise ShellError("a quote $' is not closed", start)
        self.position = end + 1
        return Verbatim("".join(out), start + 2, True)

    def _subparts(self, start: int, end: int) -> tuple[Part, ...]:
        """Parts of ``text[start:end]`` read as if in double quotes; the position is kept."""
        inner = Lexer(self.source.part(start, end))
        inner._depth = self._depth + 1
        if inner._depth > _MAX_NESTING:
            raise ShellError(f"expansions nested deeper than {_MAX_NESTING} levels", start)
        parts: list[Part] = []
        while inner.position < len(inner.text):
            if inner.text[inner.position] == '"':
                inner.position += 1
                continue
            inner._part(parts, quoted=True)
        return tuple(parts)

    def _braced(self, *, quoted: bool) -> Part:
        text, start = self.text, self.position
        end = self._closing_brace(start)
        self.position = end
        raw = text[start:end]
        name = _NAME.match(text, start + 2)
        if name is None:
            return Substitution(raw, start, quoted)
        index = _INDEX.match(text, name.end())
        after = index.end() if index else name.end()
        operator = _EXPANSION.match(text, after)
        if operator is None:
            return Substitution(raw, start, quoted)
        argument = self._argument(operator.end(), end - 1, quoted=quoted)
        slot = index[1] if index else ""
        return Variable(name[0], start, quoted, raw, operator[0], argument, slot)

    def _argument(self, start: int, end: int, *, quoted: bool) -> tuple[Part, ...]:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise ShellError(f"expansions nested deeper than {_MAX_NESTING} levels", start)
        kept, self.position = self.position, start
        whole, self.text = self.text, self.text[:end]
        parts: list[Part] = []
        while self.position < end:
            if self.text[self.position] in " \t\n;&|<>()" and not quoted:
                parts.append(Verbatim(self.text[self.position], self.position, False))
                self.position += 1
            elif quoted and self.text[self.position] == '"':
                self.position += 1
            else:
                self._part(parts, quoted=quoted)
        self.position, self.text = kept, whole
        self._depth -= 1
        return tuple(parts)

    def _closing_brace(self, start: int) -> int:
        depth, position = 0, start
        while position < len(self.text):
            char = self.text[position]
            if char == "\\":
                position += 1
            elif self.text.startswith("${", position):
                depth += 1
                position += 1
            elif char == "}":
                depth -= 1
                if depth == 0:
                    return position + 1
            position += 1
        raise ShellError("'${' is not closed", start)

    def _closing(self, start: int) -> int:
        """One past the parenthesis that closes the one at ``start``."""
        depth, position = 0, start
        text = self.text
        while position < len(text):
            char = text[position]
            if char == "\\":
                position += 1
            elif char == "'":
                position = self._find("'", position + 1, "'")
            elif char == '"':
                position = self._closing_quote(position)
            elif char == "(":
                depth += 1
            elif char == ")":
                depth -= 1
                if depth == 0:
                    return position + 1
            position += 1
        raise ShellError("a parenthesis is not closed", start)

    def _closing_quote(self, start: int) -> int:
        position = start + 1
        while position < len(self.text) and self.text[position] != '"':
            position += 2 if self.text[position] == "\\" else 1
        if position >= len(self.text):
            raise ShellError('a quote " is not closed', start)
        return position
