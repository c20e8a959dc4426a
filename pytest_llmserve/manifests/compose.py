"""docker compose: services with their variables, entrypoint, command, devices and profiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.command_words import split_command
from pytest_llmserve.manifests.compose_parts import (
    environment,
    gpu_claim,
    mounted_files,
    through_volumes,
)
from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container, launch_of
from pytest_llmserve.manifests.gpu_claims import narrowed, whole_number
from pytest_llmserve.manifests.shell_tokens import ShellError
from pytest_llmserve.manifests.text import unknown_names
from pytest_llmserve.manifests.variables import (
    InterpolationError,
    interpolate,
    mark_templates,
    parse_env_file,
)
from pytest_llmserve.manifests.words import Field
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.gathering import Gathering
    from pytest_llmserve.manifests.launch import ModelSource
    from pytest_llmserve.manifests.text import SourceText
    from pytest_llmserve.manifests.yaml_nodes import Node

_OVERRIDES: Final = tuple(
    f"{stem}.override.{suffix}"
    for stem in ("compose", "docker-compose")
    for suffix in ("yaml", "yml")
)
_MAX_EXTENDS: Final = 10


class Compose:
    """One compose file: interpolation with the ``.env`` beside it, services one by one."""

    def __init__(self, root: Mapping, gathering: Gathering) -> None:
        self.root = root
        self.gathering = gathering
        self.values = parse_env_file(gathering.text_beside(".env") or "")
        self.profiles = set(self.values.get("COMPOSE_PROFILES", "").split(","))

    def read(self) -> None:
        """Launches and problems of all services, added to the gathering."""
        self._neighbours()
        services = self.root.mapping("services")
        for name, node in services.entries.items() if services is not None else ():
            if isinstance(node, Mapping):
                self._service(name, self._extended(node, 0))
        if any(launch.runtime == "ollama" for launch in self.gathering.launches):
            self._pulled()

    def _pulled(self) -> None:
        """What other services tell an Ollama server to fetch."""
        from pytest_llmserve.manifests.model_sources import pulled

        services = self.root.mapping("services")
        sources: list[ModelSource] = []
        for name, node in services.entries.items() if services is not None else ():
            if isinstance(node, Mapping):
                for key in ("entrypoint", "command"):
                    words = self.command(node, key, []) or []
                    text = " ".join(word.text for word in words)
                    place = words[0].location if words else node.location
                    sources.extend(pulled(text, place, f"service {name}"))
        self.gathering.launches = [
            replace(launch, model_sources=(*launch.model_sources, *sources))
            if launch.runtime == "ollama"
            else launch
            for launch in self.gathering.launches
        ]

    def _neighbours(self) -> None:
        gathering = self.gathering
        if gathering.path.name in ("compose.yaml", "docker-compose.yml", "docker-compose.yaml"):
            for name in _OVERRIDES:
                if (gathering.path.parent / name).is_file():
                    message = (
                        f"{name} stands beside this file and compose merges it; it is not merged"
                        " here: give the output of `docker compose config`"
                    )
                    gathering.problem(ProblemKind.WARNING, message)
        node = self.root.get("include")
        if node is not None:
            message = (
                "form not read yet: compose `include:`; give the output of"
                " `docker compose config`, or name its servers' own files"
            )
            gathering.problem(ProblemKind.UNKNOWN, message, node.location)
        if self.root.mapping("models") is not None:
            from pytest_llmserve.manifests.compose_models import read_models

            read_models(self)

    def _extended(self, service: Mapping, depth: int) -> Mapping:
        """The service over the one it ``extends`` in the same file."""
        extends = service.get("extends")
        if extends is None:
            return service
        name = extends.text if isinstance(extends, Scalar) else service.text("extends", "service")
        base = self.root.mapping("services", name or "")
        if base is None or service.text("extends", "file") or depth >= _MAX_EXTENDS:
            message = (
                f"extends {name!r}: not in this file; give the output of `docker compose config`"
            )
            self.gathering.problem(ProblemKind.UNRESOLVED, message, extends.location)
            return service
        base = self._extended(base, depth + 1)
        result = Mapping(service.file, service.line, service.column)
        result.entries = {**base.entries, **service.entries}
        result.keys = {**base.keys, **service.keys}
        return result

    def _service(self, name: str, service: Mapping) -> None:
        problems: list[Problem] = []
        variables, places = environment(service, self, problems)
        entrypoint = self.command(service, "entrypoint", problems)
        command = self.command(service, "command", problems)
        image = service.get("image")
        location = self.root.mapping("services").keys[name]  # type: ignore[union-attr]
        volumes = self._volumes(service, problems)
        reading = read_container(
            Container(
                image=self.field(image, problems) if isinstance(image, Scalar) else None,
                entrypoint=entrypoint,
                arguments=command or [],
                environment=variables,
                location=location,
                files=mounted_files(service, self, problems),
                beside=through_volumes(volumes, self.gathering.beside),
            )
        )
        problems.extend(reading.problems)
        if not reading.found:
            self.gathering.ignored.append(f"service {name}: {reading.ignored or 'no server'}")
            kinds = (ProblemKind.UNRESOLVED, ProblemKind.UNREADABLE)
            self.gathering.problems.extend(p for p in problems if p.kind in kinds)
            return
        claim = gpu_claim(service, self, problems)
        if claim.resource is not None:
            claim = narrowed(claim, variables, location, container=True)
        replicas = self._replicas(service, problems)
        for found in reading.found:
            self.gathering.launches.append(
                launch_of(
                    found,
                    name=self.gathering.names.unique(name),
                    form="compose",
                    gpu=claim,
                    replicas=replicas,
                    is_deployed=replicas != 0 and self._is_on(service),
                    problems=problems,
                    notes=self.gathering.notes,
                    places=places,
                )
            )

    def _is_on(self, service: Mapping) -> bool:
        profiles = [p.text for p in service.items("profiles") if isinstance(p, Scalar)]
        return not profiles or not self.profiles.isdisjoint({*profiles, "*"} - {""})

    def _replicas(self, service: Mapping, problems: list[Problem]) -> int | None:
        for path in (("scale",), ("deploy", "replicas")):
            node = service.get(*path)
            if isinstance(node, Scalar):
                return self.number(node, ".".join(path), problems)
        return None

    def _volumes(self, service: Mapping, problems: list[Problem]) -> list[tuple[str, str]]:
        pairs: list[tuple[str, str]] = []
        for item in service.items("volumes"):
            if isinstance(item, Scalar):
                host, _, rest = self.text(item, problems).partition(":")
                pairs.append((host, rest.partition(":")[0]))
            elif isinstance(item, Mapping):
                pairs.append((item.text("source") or "", item.text("target") or ""))
        return pairs

    def interpolated(self, node: Scalar, problems: list[Problem]) -> SourceText:
        """A scalar with its variables replaced; what compose refuses becomes a problem."""
        source = node.source()
        try:
            source = interpolate(source, self.values)
        except InterpolationError as error:
            place = source.at(error.offset)
            problems.append(Problem(ProblemKind.REFUSED, str(error), place))
        return mark_templates(source)

    def text(self, node: Scalar, problems: list[Problem]) -> str:
        """A scalar's text with its variables replaced."""
        return self.interpolated(node, problems).text

    def field(self, node: Scalar, problems: list[Problem]) -> Field:
        """A scalar as one field."""
        return Field(self.interpolated(node, problems))

    def number(self, node: Scalar, key: str, problems: list[Problem]) -> int | None:
        """A scalar as a count."""
        text = self.text(node, problems)
        plain = Scalar(node.file, node.line, node.column, text, "'", None, node.line, node.lines)
        count = whole_number(plain, key, problems)
        if count is None and unknown_names(text):
            problems[-1] = _with_env_hint(problems[-1])
        return count

    def command(self, service: Mapping, key: str, problems: list[Problem]) -> list[Field] | None:
        """``entrypoint`` or ``command`` as fields: a list as it stands, a string split."""
        node: Node | None = service.get(key)
        if isinstance(node, Sequence):
            scalars = [item for item in node.items if isinstance(item, Scalar)]
            return [self.field(item, problems) for item in scalars] or None
        if not isinstance(node, Scalar):
            return None
        source = self.interpolated(node, problems)
        try:
            fields, doubts = split_command(source)
        except ShellError as error:
            message = f"cannot split {key}: {error}"
            place = source.at(error.offset)
            problems.append(Problem(ProblemKind.UNREADABLE, message, place, key=key))
            return None
        problems.extend(doubts)
        return fields or None


def _with_env_hint(problem: Problem) -> Problem:
    message = f"{problem.message.partition(';')[0]}; set it in the .env file beside, or a default"
    return Problem(problem.kind, message, problem.location, problem.key, problem.value)


def read_compose(root: Mapping, gathering: Gathering) -> None:
    """Launches of all services, added to ``gathering``."""
    Compose(root, gathering).read()
