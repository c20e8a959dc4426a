"""llama-swap: one command line a model, started on demand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.command_words import split_command
from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import variables
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.shell_tokens import ShellError
from pytest_llmserve.manifests.text import unknown
from pytest_llmserve.manifests.variables import mark_placeholders
from pytest_llmserve.manifests.words import Field
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.text import SourceText

_MACRO: Final = re.compile(r"\$\{([\w-]+)\}")
_COMMENT: Final = re.compile(r"(?m)^\s*#.*$")
_DEPTH: Final = 5


def read_models(root: Mapping, objects: Objects) -> None:
    """Servers of ``models``; commands that serve no LLM are left out."""
    models = root.mapping("models")
    macros = root.mapping("macros")
    for name, model in models.entries.items() if models is not None else ():
        command = model.get("cmd") if isinstance(model, Mapping) else None
        if isinstance(model, Mapping) and isinstance(command, Scalar):
            _model(name, model, command, macros, objects)


def _model(
    name: str, model: Mapping, command: Scalar, macros: Mapping | None, objects: Objects
) -> None:
    gathering = objects.gathering
    own = model.mapping("macros")
    source = _without_comments(command.source())
    for _ in range(_DEPTH):
        source = _expanded(source, own, macros)
    try:
        words, _ = split_command(source)
    except ShellError as error:
        gathering.problem(
            ProblemKind.UNREADABLE, f"cannot split cmd of {name}: {error}", command.location
        )
        return
    fields = [Field(mark_placeholders(word.source)) for word in words]
    values, places = variables(model.get("env"))
    reading = read_container(
        Container(
            image=None,
            entrypoint=fields,
            arguments=[],
            environment=values,
            location=command.location,
            beside=gathering.beside,
        )
    )
    for found in reading.found:
        server = PodServer("", found, GpuClaim(), tuple[Problem, ...](reading.problems), places)
        add_server(server, objects, name=name, form="llama-swap")
    if not reading.found:
        gathering.ignored.append(f"model {name}: {reading.ignored}")


def _without_comments(source: SourceText) -> SourceText:
    return source.replaced((m.start(), m.end(), " ") for m in _COMMENT.finditer(source.text))


def _expanded(source: SourceText, own: Mapping | None, macros: Mapping | None) -> SourceText:
    """``${name}`` of the model's macros, else of the file's; ``${PORT}`` is chosen at start."""

    def value(name: str) -> str | None:
        for mapping in (own, macros):
            text = mapping.text(name) if mapping is not None else None
            if text is not None:
                return text
        return unknown(f"${{{name}}}") if name in ("PORT", "MODEL_ID", "PID") else None

    edits = [
        (match.start(), match.end(), text)
        for match in _MACRO.finditer(source.text)
        if (text := value(match[1])) is not None
        and source.text[max(match.start() - 1, 0)] != "\ue000"
    ]
    return source.replaced(edits) if edits else source
