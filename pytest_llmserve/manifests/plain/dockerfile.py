"""Dockerfiles: ENTRYPOINT and CMD of the last stage, over the base image's own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.text import SourceText, mark_unknown
from pytest_llmserve.manifests.variables import InterpolationError, interpolate
from pytest_llmserve.manifests.words import Field
from pytest_llmserve.verdict import Location, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects

_INSTRUCTION: Final = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_PAIR: Final = re.compile(r"([A-Za-z_]\w*)=(\"(?:\\.|[^\"])*\"|'[^']*'|\S*)")
_LEFT: Final = re.compile(r"\$\{?[A-Za-z_]\w*[^}\s]*\}?")


@dataclass(slots=True)
class _Stage:
    """What the last stage of a Dockerfile leaves in its image."""

    base: SourceText | None = None
    name: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    places: dict[str, Location] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    entrypoint: SourceText | None = None
    command: SourceText | None = None


def read_dockerfile(text: str, objects: Objects) -> None:
    """The server that a container of this image starts."""
    gathering = objects.gathering
    stages: list[_Stage] = []
    outer: dict[str, str] = {}
    for name, source in _instructions(text, gathering.file):
        if name == "FROM":
            stages.append(_from(source, stages, outer))
        elif not stages:
            if name == "ARG":
                _pairs(source, outer, {})
        else:
            _keep(name, source, stages[-1])
    if not stages or stages[-1].base is None:
        gathering.problem(ProblemKind.UNREADABLE, "a Dockerfile without FROM")
        return
    _server(stages[-1], objects)


def _instructions(text: str, file: str) -> Iterator[tuple[str, SourceText]]:
    """Instructions, continued lines joined, comments dropped; each keeps its places."""
    whole = SourceText.of_lines(text, file)
    position, rows = 0, text.split("\n")
    start: int | None = None
    for row in rows:
        end = position + len(row)
        stripped = row.strip()
        is_comment = stripped.startswith("#")
        if start is None and stripped and not is_comment:
            start = position
        if start is not None and not is_comment and not stripped.endswith("\\"):
            part = whole.part(start, end)
            match = _INSTRUCTION.fullmatch(part.text)
            if match:
                yield match[1].upper(), part.part(match.start(2), len(part.text))
            start = None
        position = end + 1
    if start is not None:
        part = whole.part(start, len(text))
        match = _INSTRUCTION.fullmatch(part.text)
        if match:
            yield match[1].upper(), part.part(match.start(2), len(part.text))


def _from(source: SourceText, stages: list[_Stage], outer: dict[str, str]) -> _Stage:
    words = re.sub(r"--\S+\s+", "", source.text).split()
    reference = words[0] if words else ""
    name = words[2] if len(words) > 2 and words[1].upper() == "AS" else ""
    for stage in stages:
        if stage.name and stage.name == reference:
            return _Stage(
                stage.base, name, dict(stage.environment), dict(stage.places), {},
                stage.entrypoint, stage.command,
            )  # fmt: skip
    start = source.text.find(reference)
    base = _filled(source.part(start, start + len(reference)), outer)
    return _Stage(base, name)


def _keep(name: str, source: SourceText, stage: _Stage) -> None:
    if name == "ENTRYPOINT":
        stage.entrypoint, stage.command = source, None  # a new ENTRYPOINT drops the base's CMD
    elif name == "CMD":
        stage.command = source
    elif name == "ARG":
        _pairs(source, stage.arguments, {})
    elif name == "ENV":
        known = {**stage.arguments, **stage.environment}
        if "=" not in source.text.split(None, 1)[0]:  # ENV NAME value
            key, _, value = source.text.partition(" ")
            source = SourceText.at_place(f'{key}="{value.strip()}"', source.at(0))
        values: dict[str, str] = {}
        _pairs(source, values, stage.places, known)
        stage.environment.update(values)


def _pairs(
    source: SourceText,
    values: dict[str, str],
    places: dict[str, Location],
    known: dict[str, str] | None = None,
) -> None:
    for match in _PAIR.finditer(source.text):
        value = source.part(match.start(2), match.end(2))
        text = value.text
        if text[:1] in "\"'" and len(text) > 1:
            value = value.part(1, len(text) - 1)
        filled = _filled(value, known or {}).text
        values[match[1]] = masked(match[1], filled)
        places[match[1]] = source.at(match.start())


def _filled(source: SourceText, values: dict[str, str]) -> SourceText:
    """``${NAME}`` of ARG and ENV put in; what has no value stays, and is unknown."""
    try:
        return interpolate(source, values)
    except InterpolationError:
        return mark_unknown(source, _LEFT)


def _words(source: SourceText, stage: _Stage) -> list[Field] | None:
    """Exec form as a list, shell form as ``sh -c``."""
    text = source.text.strip()
    if text.startswith("["):
        from pytest_llmserve.manifests.embedded import embedded_text
        from pytest_llmserve.manifests.yaml_nodes import Scalar, Sequence

        flat = source.replaced(
            (m.start(), m.end(), " " * (m.end() - m.start()))
            for m in re.finditer(r"\\\n", source.text)
        )
        for document in embedded_text(flat):
            if isinstance(document.root, Sequence):
                items = [i for i in document.root.items if isinstance(i, Scalar)]
                return [Field(_placed(item, source)) for item in items]
    place = source.at(0)
    from pytest_llmserve.manifests.words import field as field_at

    return [field_at("/bin/sh", place), field_at("-c", place), Field(source)]


def _placed(item: object, source: SourceText) -> SourceText:
    from pytest_llmserve.manifests.yaml_nodes import Scalar

    assert isinstance(item, Scalar)
    quoted = source.text.find(f'"{item.text}"')
    if quoted >= 0:
        return source.part(quoted + 1, quoted + 1 + len(item.text))
    return SourceText.at_place(item.text, source.at(0))


def _server(stage: _Stage, objects: Objects) -> None:
    gathering = objects.gathering
    entrypoint = _words(stage.entrypoint, stage) if stage.entrypoint is not None else None
    command = _words(stage.command, stage) if stage.command is not None else []
    if stage.entrypoint is not None and not stage.entrypoint.text.strip().startswith("["):
        command = []  # shell form ignores CMD
    location = (stage.entrypoint or stage.command or stage.base or _NOWHERE).at(0)
    image = Field(stage.base) if stage.base is not None else None
    reading = read_container(
        Container(
            image=image,
            entrypoint=entrypoint,
            arguments=command or [],
            environment=stage.environment,
            location=location,
            beside=gathering.beside,
        )
    )
    gathering.problems.extend(reading.problems)
    for found in reading.found:
        server = PodServer("", found, GpuClaim(), (), stage.places)
        name = (
            gathering.path.name.removeprefix("Dockerfile").strip(".") or gathering.path.parent.name
        )
        add_server(server, objects, name=name or "server", form="dockerfile")
    if not reading.found:
        gathering.ignored.append(reading.ignored or "this image starts no server")


_NOWHERE: Final = SourceText("", "", (0,), ((1, 1),))
