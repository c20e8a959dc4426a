"""Files that a script writes and a later command reads: heredocs and ``echo text > file``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.manifests.shell_expand import expand_value
from pytest_llmserve.manifests.shell_lexer import Lexer
from pytest_llmserve.manifests.shell_tokens import Token
from pytest_llmserve.manifests.text import join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.manifests.shell_state import State
    from pytest_llmserve.manifests.shell_tree import Simple
    from pytest_llmserve.manifests.text import SourceText
    from pytest_llmserve.manifests.words import Field


def written_file(
    command: Simple, fields: Sequence[Field], state: State, source: SourceText
) -> tuple[str, SourceText] | None:
    """Path and text of what ``cat > f <<EOF``, ``tee f <<EOF`` or ``echo text > f`` writes.

    Args:
        command: with its redirects.
        fields: the command's expanded words.
        state: for the variables in an unquoted heredoc.
        source: the script.
    """
    body: SourceText | None = None
    target: str | None = None
    for redirect in command.redirects:
        if redirect.heredoc is not None:
            body = redirect.heredoc if redirect.is_raw else _expanded(redirect.heredoc, state)
        elif redirect.operator in (">", ">|", ">>"):
            target = expand_value(redirect.target, state, source).text
    name = fields[0].text
    if name == "echo" and target is not None and body is None:
        words = [item.source for item in fields[1:]]
        body = join(words, " ") if words else fields[0].source.part(0, 0)
    elif name == "tee":
        target = next((item.text for item in fields[1:] if item.text[:1] != "-"), target)
    elif name != "cat":
        return None
    return None if body is None or target is None else (target, body)


def _expanded(body: SourceText, state: State) -> SourceText:
    return expand_value(Token("word", "", 0, Lexer(body).heredoc_parts()), state, body)
