"""Servers out of fields: what forms share that hold no container but model, flags and a GPU."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.found import Container, Found, finished, launch_of
from pytest_llmserve.manifests.kubernetes_parts import image_field
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.model_sources import hub_id
from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.servers import VLLM_SERVE
from pytest_llmserve.manifests.shell_tokens import ShellError
from pytest_llmserve.manifests.text import SourceText, shown
from pytest_llmserve.manifests.variables import mark_placeholders
from pytest_llmserve.manifests.vllm_config import node_value, python_value
from pytest_llmserve.manifests.words import Field
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Mapping as AnyMapping
    from collections.abc import Sequence as AnySequence

    from pytest_llmserve.manifests.gathering import Gathering
    from pytest_llmserve.manifests.launch import ConfigEntry, ModelSource
    from pytest_llmserve.manifests.yaml_nodes import Node
    from pytest_llmserve.verdict import Location, Problem


@dataclass(slots=True, kw_only=True)
class Made:
    """A server as a form states it; ``fields`` are its arguments, the model among them."""

    name: str
    form: str
    location: Location
    runtime: str = "vllm"
    entrypoint: str = VLLM_SERVE
    fields: list[Field] = field(default_factory=list)
    image: Field | None = None
    environment: dict[str, str] = field(default_factory=dict)
    places: dict[str, Location] = field(default_factory=dict)
    gpu: GpuClaim = field(default_factory=GpuClaim)
    replicas: int | None = None
    is_deployed: bool = True
    is_typed: bool = False
    config_entries: AnySequence[ConfigEntry] = ()
    problems: list[Problem] = field(default_factory=list)
    sources: list[ModelSource] = field(default_factory=list)
    files: AnyMapping[str, SourceText] = field(default_factory=dict)


def add(made: Made, gathering: Gathering) -> None:
    """The server as a launch of the file."""
    container = Container(
        image=made.image,
        entrypoint=None,
        arguments=made.fields,
        environment=made.environment,
        location=made.location,
        files=made.files,
        beside=gathering.beside,
    )
    found = Found(
        runtime=made.runtime,
        entrypoint=made.entrypoint,
        fields=tuple(made.fields),
        environment=made.environment,
        location=made.location,
        image=made.image,
        config_entries=tuple(made.config_entries),
    )
    entries = found.config_entries
    found = finished(found, container)
    gathering.launches.append(
        launch_of(
            found,
            name=gathering.names.unique(shown(made.name)),
            form=made.form,
            gpu=made.gpu,
            replicas=made.replicas,
            is_deployed=made.is_deployed and made.replicas != 0,
            problems=made.problems,
            notes=gathering.notes,
            places=made.places,
            model_sources=made.sources,
            is_typed=made.is_typed,
            config_entries=entries or found.config_entries,
        )
    )


def marked(node: Scalar) -> Field:
    """A scalar as one argument, placeholders made unknown."""
    return Field(mark_placeholders(node.source()))


def argument_fields(node: Node | None) -> list[Field]:
    """Arguments of a list, of a string (split at blanks, quotes undone), or of a mapping."""
    if isinstance(node, Sequence):
        return [marked(item) for item in node.items if isinstance(item, Scalar)]
    if isinstance(node, Mapping):
        return flag_fields(node)
    return split_fields(node.source()) if isinstance(node, Scalar) else []


def split_fields(source: SourceText) -> list[Field]:
    """The words of a command string; one word where its quotes do not close."""
    from pytest_llmserve.manifests.command_words import split_command

    try:
        words, _ = split_command(source)
    except ShellError:
        return [Field(mark_placeholders(source))]
    return [Field(mark_placeholders(word.source)) for word in words]


def flag_fields(mapping: Mapping, *, skip: AnySequence[str] = ()) -> list[Field]:
    """``key: value`` pairs as flags: ``--key=value``, ``--key`` if true, ``--no-key`` if false."""
    fields: list[Field] = []
    for key, node in mapping.entries.items():
        if key not in skip:
            fields.extend(flag(key, node, mapping.keys[key]))
    return fields


def flag(key: str, node: Node | None, place: Location) -> list[Field]:
    """One typed value as a flag at its key's place; nothing for null."""
    name = key if key.startswith("-") else f"--{key}"
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return []
    if isinstance(node, Sequence) and all(isinstance(item, Scalar) for item in node.items):
        values = [marked(item) for item in node.items if isinstance(item, Scalar)]
        return [field_at(name, place), *values] if values else []
    if not isinstance(node, Scalar):
        text = json.dumps(node_value(node, key, {}), ensure_ascii=False)
        return [field_at(f"{name}={text}", place)]
    value = python_value(node)
    if value is True:
        return [field_at(name, place)]
    if value is False:
        return [field_at(f"--no-{name.lstrip('-')}", place)]
    text = masked(key, mark_placeholders(node.source()).text)
    return [field_at(f"{name}={text}", place)]


def model_field(node: Node | None) -> Field | None:
    """A model reference as an argument: ``hf://org/name@rev`` is ``org/name``."""
    if not isinstance(node, Scalar) or node.is_null or not node.text.strip():
        return None
    source = mark_placeholders(node.source())
    plain = hub_id(source.text)
    if plain == source.text:
        return Field(source)
    return field_at(plain, node.location)


def variables(node: Node | None) -> tuple[dict[str, str], dict[str, Location]]:
    """Environment of a mapping, of ``{name, value}`` items or of ``NAME=value`` items."""
    values: dict[str, str] = {}
    places: dict[str, Location] = {}
    if isinstance(node, Mapping):
        pairs = [(name, item) for name, item in node.entries.items()]
    elif isinstance(node, Sequence):
        pairs = [pair for item in node.items for pair in _pair(item)]
    else:
        pairs = []
    for name, item in pairs:
        if isinstance(item, Scalar):
            text = "" if item.is_null else mark_placeholders(item.source()).text
            values[name] = masked(name, text)
            places[name] = item.location
    return values, places


def _pair(item: Node) -> list[tuple[str, Node]]:
    if isinstance(item, Mapping):
        name, value = item.text("name"), item.get("value")
        return [(name, value)] if name and value is not None else []
    if isinstance(item, Scalar) and "=" in item.text:
        name, _, text = item.text.partition("=")
        quoted = Scalar(item.file, item.line, item.column, text, "'", None, item.line, [])
        return [(name, quoted)]
    return []


def image_of(node: Node | None) -> Field | None:
    """``repo/name:tag``, or ``{registry, repository|name|image, tag}``."""
    if isinstance(node, Scalar):
        return None if node.is_null else image_field(node)
    if not isinstance(node, Mapping):
        return None
    for key in ("repository", "name", "image"):
        base = node.get(key)
        if isinstance(base, Scalar) and base.text:
            break
    else:
        return None
    text = mark_placeholders(base.source()).text
    registry, tag = node.text("registry"), node.text("tag")
    if registry and not text.startswith(registry):
        text = f"{registry.rstrip('/')}/{text}"
    if tag and ":" not in text.rsplit("/", 1)[-1]:
        text = f"{text}:{tag}"
    return field_at(text, base.location)


def number(node: Node | None) -> int | None:
    """A whole number, or None where there is none (other forms make no problem of it)."""
    text = node.text.strip() if isinstance(node, Scalar) else ""
    return int(text) if text.isdecimal() and len(text) < 7 else None


def is_off(node: Node | None) -> bool:
    """Whether a switch is written and off: ``enabled: false``."""
    return isinstance(node, Scalar) and python_value(node) is False
