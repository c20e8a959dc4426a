"""systemd units and Podman quadlets: ``ExecStart=``, ``Environment=``, ``Image=``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.gpu_claims import docker_claim
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import split_fields
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.text import SourceText
from pytest_llmserve.manifests.variables import mark_placeholders
from pytest_llmserve.manifests.words import Field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.verdict import Location

_KEY: Final = re.compile(r"\s*([A-Za-z]\w*)\s*=\s*(.*)", re.DOTALL)
_PAIR: Final = re.compile(
    r"\"([A-Za-z_]\w*)=([^\"]*)\"|'([A-Za-z_]\w*)=([^']*)'|([A-Za-z_]\w*)=(\S*)"
)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")


def read_unit(text: str, objects: Objects) -> None:
    """The server that a unit starts."""
    gathering = objects.gathering
    values: dict[str, str] = {}
    places: dict[str, Location] = {}
    keys: dict[str, list[SourceText]] = {}
    for key, source in _settings(text, gathering.file):
        if key == "Environment":
            _environment(source, values, places)
        elif key == "EnvironmentFile":
            _environment_file(source.text, gathering, values)
        else:
            keys.setdefault(key, []).append(source)
    image = keys.get("Image")
    start = keys.get("ExecStart" if image is None else "Exec", [])
    # An empty assignment clears the ones before it.
    blank = max((i for i, s in enumerate(start) if not s.text.strip()), default=-1)
    for source in start[blank + 1 :] or ([SourceText("", "", (0,), ((1, 1),))] if image else []):
        words = _expanded(source, values, has_prefix=image is None) if source.text else []
        container = Container(
            image=Field(mark_placeholders(image[0])) if image else None,
            entrypoint=None if image else words,
            arguments=words if image else [],
            environment=values,
            location=(image[0] if image else source).at(0),
            beside=gathering.beside,
        )
        reading = read_container(container)
        gathering.problems.extend(reading.problems)
        devices = [Field(device) for device in keys.get("AddDevice", [])]
        claim = docker_claim(None, None, devices, values) if devices else GpuClaim()
        for found in reading.found:
            server = PodServer("", found, claim, (), places)
            form = "systemd" if image is None else "quadlet"
            add_server(server, objects, name=gathering.path.stem, form=form)
        if not reading.found:
            gathering.ignored.append(reading.ignored or "ExecStart starts no server")
    if not start and image is None:
        gathering.ignored.append("no ExecStart")


def _settings(text: str, file: str) -> Iterator[tuple[str, SourceText]]:
    """``Key=value`` with continued lines joined by a blank."""
    whole = SourceText.of_lines(text, file)
    position, start = 0, -1
    for row in text.split("\n"):
        end = position + len(row)
        is_comment = row.lstrip().startswith(("#", ";"))
        if start < 0 and row.strip() and not is_comment and not row.lstrip().startswith("["):
            start = position
        if start >= 0 and not is_comment and not row.endswith("\\"):
            yield from _setting(whole.part(start, end))
            start = -1
        position = end + 1
    if start >= 0:
        yield from _setting(whole.part(start, len(text)))


def _setting(source: SourceText) -> Iterator[tuple[str, SourceText]]:
    match = _KEY.fullmatch(source.text)
    if match is None:
        return
    value = source.part(match.start(2), match.end(2))
    edits = [(m.start(), m.end(), "  ") for m in re.finditer(r"\\\n", value.text)]
    yield match[1], value.replaced(edits)


def _environment(source: SourceText, values: dict[str, str], places: dict[str, Location]) -> None:
    for match in _PAIR.finditer(source.text):
        name = match[1] or match[3] or match[5]
        value = match[2] if match[1] else match[4] if match[3] else match[6]
        values[name] = masked(
            name, mark_placeholders(SourceText.at_place(value, source.at(0))).text
        )
        places[name] = source.at(match.start())


def _environment_file(text: str, gathering: object, values: dict[str, str]) -> None:
    from pytest_llmserve.manifests.gathering import Gathering
    from pytest_llmserve.manifests.variables import parse_env_file

    assert isinstance(gathering, Gathering)
    beside = gathering.text_beside(text.strip().lstrip("-"))
    if beside is not None:
        values.update(parse_env_file(beside))


def _expanded(source: SourceText, values: dict[str, str], *, has_prefix: bool) -> list[Field]:
    """Words of a command; ``${NAME}`` from Environment, ``$NAME`` split at blanks too."""
    text = source.text.lstrip()
    offset = len(source.text) - len(text)
    while has_prefix and text[:1] in "-@:+!":  # prefixes of ExecStart
        text, offset = text[1:], offset + 1
    source = source.part(offset, len(source.text))
    edits = [
        (m.start(), m.end(), values[m[1] or m[2]])
        for m in _VARIABLE.finditer(source.text)
        if (m[1] or m[2]) in values
    ]
    return split_fields(source.replaced(edits))
