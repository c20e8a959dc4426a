"""Where the script of ``sh -c script`` or ``sh file`` is, and its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_llmserve.manifests.text import SourceText
    from pytest_llmserve.manifests.words import Field


def shell_call(
    fields: Sequence[Field], index: int, find: Callable[[str], SourceText | None]
) -> tuple[SourceText, tuple[Field, ...]] | None:
    """The script and parameters of ``sh -c script $0 $1...`` or ``sh file $1...``.

    Args:
        fields: the command line.
        index: of the first word after the shell's name.
        find: looks up a script by its path: written earlier, mounted or kept beside.

    Returns:
        None where there is no script or its file is not known.
    """
    wants_text = False
    while index < len(fields):
        text = fields[index].text
        if text in ("-o", "+o", "-O"):
            index += 2
            continue
        if not text.startswith(("-", "+")) or text == "-":
            break
        index += 1
        if text == "--":
            break
        wants_text |= not text.startswith("--") and "c" in text[1:]
    if index >= len(fields):
        return None
    if wants_text:
        if fields[index].text == "--" and index + 1 < len(fields):
            index += 1
        return fields[index].source, tuple(fields[index + 2 :])
    script = find(fields[index].text)
    return None if script is None else (script, tuple(fields[index + 1 :]))
