"""Ollama Modelfiles: ``FROM`` and ``PARAMETER``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.launch import ConfigEntry
from pytest_llmserve.manifests.making import Made, add
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.verdict import Location, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects

_LINE: Final = re.compile(r"\s*(FROM|PARAMETER|ADAPTER)\s+(.*?)\s*", re.IGNORECASE)
_LONG: Final = '"""'


def read_modelfile(text: str, objects: Objects) -> None:
    """The model that Ollama is told to make."""
    gathering = objects.gathering
    model, entries, is_inside = None, [], False
    for number, row in enumerate(text.split("\n"), start=1):
        is_open = is_inside
        if row.count(_LONG) % 2:
            is_inside = not is_inside
        match = None if is_open else _LINE.fullmatch(row)
        if match is None:
            continue
        place = Location(gathering.file, number, match.start(2) + 1)
        if match[1].upper() == "FROM":
            model = field_at(match[2], place)
        elif match[1].upper() == "PARAMETER":
            key, _, value = match[2].partition(" ")
            entries.append(ConfigEntry(f"PARAMETER {key}", value.strip(), place))
    if model is None:
        gathering.problem(ProblemKind.UNREADABLE, "a Modelfile without FROM: no model")
        return
    add(
        Made(
            name=gathering.path.name.removeprefix("Modelfile").strip(".") or "model",
            form="ollama modelfile",
            location=model.location,
            runtime="ollama",
            entrypoint="ollama serve",
            fields=[model],
            config_entries=entries,
        ),
        gathering,
    )
