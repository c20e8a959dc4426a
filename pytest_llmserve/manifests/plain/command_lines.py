"""Procfiles, Makefiles and justfiles: each line, or each recipe, as a script of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import ContainerReading, read_script
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.servers import launch_line
from pytest_llmserve.manifests.shell_state import State
from pytest_llmserve.manifests.text import SourceText, unknown
from pytest_llmserve.verdict import Location, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects

_PROCESS: Final = re.compile(r"(?m)^([\w-]+):[ \t]*(.+)$")
_TARGET: Final = re.compile(r"^@?([\w./%$()-]+(?:[ \t]+[\w./$()-]+)*)[^:=\n]*:(?![=:])")
_SETTING: Final = re.compile(r"^(?:export\s+)?([A-Za-z_]\w*)\s*(\?|:{0,2}|\+)=[ \t]*(.*)$")
# A mark stands before a command, not before the rest of a continued one.
_MAKE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)|\$\{([A-Za-z_]\w*)\}|\{\{\s*([A-Za-z_]\w*)\s*\}\}")

_PIECE: Final = re.compile(r"\$\$|(?m:(?<!\\\n)^[ \t]*[@-]+)|" + _MAKE.pattern)


def read_procfile(text: str, objects: Objects) -> None:
    """``name: command`` lines."""
    whole = SourceText.of_lines(text, objects.gathering.file)
    for match in _PROCESS.finditer(text):
        _script(match[1], whole.part(match.start(2), match.end(2)), objects, "procfile")
    _nothing(text, objects)


def read_makefile(text: str, objects: Objects) -> None:
    """Recipes of a Makefile or justfile that start a server."""
    whole = SourceText.of_lines(text, objects.gathering.file)
    values: dict[str, str] = {}
    for row in text.split("\n"):
        match = _SETTING.match(row)
        if match and not (match[2] == "?" and match[1] in values):
            values[match[1]] = match[3].split(" #")[0].strip().strip("\"'")
    for name, start, end in _recipes(text):
        recipe = _expanded(whole.part(start, end), values)
        if launch_line(recipe.text) is not None:
            _script(name, recipe, objects, "makefile")
    _nothing(text, objects)


def _nothing(text: str, objects: Objects) -> None:
    gathering = objects.gathering
    if not gathering.launches and not gathering.problems:
        line = launch_line(text)
        if line is not None:
            message = "this line looks like a launch and could not be followed to one"
            gathering.problem(ProblemKind.UNKNOWN, message, line)


def _recipes(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, start and end of each target's indented lines."""
    name, start, position = "", -1, 0
    for row in [*text.split("\n"), "end:"]:
        is_inner = row[:1] in ("\t", " ") or not row.strip()
        if not is_inner:
            if name and start >= 0:
                yield name, start, position
            match = _TARGET.match(row)
            name, start = (match[1].split()[0] if match else ""), -1
        elif name and start < 0 and row.strip():
            start = position
        position = min(position + len(row) + 1, len(text))


def _expanded(recipe: SourceText, values: dict[str, str]) -> SourceText:
    """``$(NAME)`` put in, ``$$`` undone, the marks ``@`` and ``-`` before a line dropped."""
    edits: list[tuple[int, int, str]] = []
    for match in re.finditer(_PIECE, recipe.text):
        name = match[1] or match[2] or match[3]
        if match[0] == "$$":
            edits.append((match.start(), match.end(), "$"))
        elif name is None:
            edits.append((match.start(), match.end(), ""))
        else:
            edits.append((match.start(), match.end(), _value(name, values, 0, match[0])))
    return recipe.replaced(edits)


def _value(name: str, values: dict[str, str], depth: int, shown: str) -> str:
    if name not in values or depth > 10:
        return unknown(shown)
    return _MAKE.sub(lambda m: _value(m[1] or m[2] or m[3], values, depth + 1, m[0]), values[name])


def _script(name: str, source: SourceText, objects: Objects, form: str) -> None:
    gathering = objects.gathering
    container = Container(
        image=None,
        entrypoint=None,
        arguments=[],
        environment={},
        location=Location(gathering.file, source.at(0).line),
        beside=gathering.beside,
    )
    reading = ContainerReading()
    read_script(source, State(), container, reading)
    gathering.problems.extend(reading.problems)
    for found in reading.found:
        server = PodServer("", found, found.gpu or GpuClaim())
        add_server(server, objects, name=found.name or name, form=form)
    if not reading.found:
        gathering.ignored.append(f"{name}: {reading.ignored or 'no server'}")
