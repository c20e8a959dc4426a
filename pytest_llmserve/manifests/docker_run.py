"""``docker run [options] IMAGE [args]``: which options take a value, where the image stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.secrets import masked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.manifests.words import Field

# Every other long option takes a value, joined by "=" or as the next word.
_SWITCHES: Final = frozenset(
    {"detach", "rm", "interactive", "tty", "privileged", "init", "read-only", "publish-all"}
    | {"no-healthcheck", "oom-kill-disable", "sig-proxy", "quiet", "disable-content-trust", "help"}
    | {"replace", "tls-verify", "no-hosts", "rmi", "env-host", "no-hostname", "use-api-socket"}
)
_SHORT_SWITCHES: Final = frozenset("ditPq")


@dataclass(slots=True)
class DockerRun:
    """One ``docker run``, options sorted by what matters here."""

    image: Field | None = None
    entrypoint: Field | None = None
    arguments: list[Field] = field(default_factory=list)
    name: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    gpus: Field | None = None
    runtime: str | None = None
    devices: list[Field] = field(default_factory=list)
    volumes: list[Field] = field(default_factory=list)


def parse_docker_run(fields: Sequence[Field], variables: dict[str, str]) -> DockerRun:
    """The words after ``docker run``.

    Args:
        fields: expanded words.
        variables: of the calling shell, for ``-e NAME`` without a value.
    """
    run = DockerRun()
    index = 0
    while index < len(fields):
        text = fields[index].text
        if not text.startswith("-") or text == "-":
            break
        index += 1
        if text == "--":
            break
        name, value, takes_next = _option(text, fields[index - 1])
        if takes_next:
            if index >= len(fields):
                return run
            value = fields[index]
            index += 1
        if value is not None:
            _keep(run, name, value, variables)
    if index < len(fields):
        run.image = fields[index]
        run.arguments = list(fields[index + 1 :])
    return run


def _option(text: str, item: Field) -> tuple[str, Field | None, bool]:
    """Name, joined value, and whether the next word is the value."""
    if text.startswith("--"):
        name, equals, _ = text[2:].partition("=")
        if equals:
            return name, _rest(item, len(name) + 3), False
        return name, None, name not in _SWITCHES
    letters = text[1:]
    for index, letter in enumerate(letters):
        if letter not in _SHORT_SWITCHES:
            if index + 1 == len(letters):
                return letter, None, True
            skip = index + 2 + letters.startswith("=", index + 1)
            return letter, _rest(item, skip), False
    return letters, None, False


def _rest(item: Field, start: int) -> Field:
    from pytest_llmserve.manifests.words import Field

    return Field(item.source.part(start, len(item.text)))


def _keep(run: DockerRun, name: str, value: Field, variables: dict[str, str]) -> None:
    if name in ("e", "env"):
        key, equals, text = value.text.partition("=")
        if equals:
            run.environment[key] = masked(key, text)
        elif key in variables:
            run.environment[key] = variables[key]
    elif name == "entrypoint":
        run.entrypoint = value
    elif name == "name":
        run.name = value.text
    elif name == "gpus":
        run.gpus = value
    elif name == "runtime":
        run.runtime = value.text
    elif name == "device":
        run.devices.append(value)
    elif name in ("v", "volume"):
        run.volumes.append(value)
