"""From image, entrypoint, arguments and environment to the server that really starts.

The command decides, the image only where it leaves the question open, a container's name never.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.found import Container, Found, finished
from pytest_llmserve.manifests.gpu_claims import docker_claim, narrowed
from pytest_llmserve.manifests.secrets import masked_argv
from pytest_llmserve.manifests.servers import (
    find_start,
    image_start,
    is_official,
    names_engine,
)
from pytest_llmserve.manifests.shell_tokens import ShellError
from pytest_llmserve.manifests.text import SourceText, shown
from pytest_llmserve.manifests.words import Field, texts
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_llmserve.manifests.servers import Start
    from pytest_llmserve.manifests.shell_state import Invocation, State

_MAX_NESTING: Final = 4


@dataclass(slots=True)
class ContainerReading:
    """Servers of one container, or why there is none."""

    found: list[Found] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: str | None = None


def read_container(container: Container, depth: int = 0) -> ContainerReading:
    """The servers that a container starts."""
    reading = ContainerReading()
    if container.entrypoint:
        _command([*container.entrypoint, *container.arguments], container, reading, depth)
    else:
        _image_command(container, reading, depth)
    reading.found = [finished(found, container) for found in reading.found]
    return reading


def _image_command(container: Container, reading: ContainerReading, depth: int) -> None:
    arguments = list(container.arguments)
    image = shown(container.image.text) if container.image else ""
    start = image_start(image, texts(arguments))
    given = find_start(texts(arguments))
    takes_over = start is None or start.runtime is None or start.is_guess or start.runtime != "vllm"
    if start is None or start.runtime is None or (given is not None and takes_over):
        if arguments:
            _command(arguments, container, reading, depth)
        else:
            reading.ignored = f"image {image or '(none)'} starts no server that we know"
        return
    problems: list[Problem] = []
    if start.is_guess:
        message = (
            f"image {image or '(none)'} is not known: taken as {start.runtime} because of its"
            f" arguments; a command ({start.entrypoint} ...) would settle it"
        )
        problems.append(Problem(ProblemKind.WARNING, message, container.location, key="image"))
    if given is not None and given.kind == "server":
        message = (
            f"the image already starts {start.entrypoint!r}, so {given.entrypoint!r} here reaches"
            " it as arguments; put it into the entrypoint (command: in Kubernetes) or leave it out"
        )
        place = arguments[given.begin].location
        kind = ProblemKind.REFUSED if is_official(image) else ProblemKind.WARNING
        problems.append(Problem(kind, message, place, value=given.entrypoint))
        arguments = arguments[given.index :]
    elif given is not None and given.kind != "server":
        _command(arguments, container, reading, depth)
        return
    reading.found.append(
        Found(
            runtime=start.runtime,
            entrypoint=start.entrypoint,
            fields=tuple(arguments),
            environment=container.environment,
            location=arguments[0].location if arguments else container.location,
            image=container.image,
            problems=tuple(problems),
        )
    )


def _command(
    fields: list[Field], container: Container, reading: ContainerReading, depth: int
) -> None:
    start = find_start(texts(fields))
    script = container.files.get(fields[0].text) if start is None else None
    if script is not None:
        state = _state(container, tuple(fields[1:]))
        read_script(script, state, container, reading, depth)
        return
    if start is None:
        fields, start = _one_item(fields, reading)
    if start is None:
        _no_server(fields, container, reading)
    elif start.kind == "server":
        reading.found.append(_server(fields, start, container))
    elif start.kind == "router":
        reading.ignored = f"{start.entrypoint}: a router, no server"
    elif start.kind == "shell":
        _shell(fields, start, container, reading, depth)
    else:
        reading.ignored = "docker run inside a container"


def _one_item(fields: list[Field], reading: ContainerReading) -> tuple[list[Field], Start | None]:
    """A whole command line typed as one item: refused by the kernel, read as meant."""
    if not fields or " " not in fields[0].text.strip():
        return fields, None
    from pytest_llmserve.manifests.command_words import split_command

    try:
        words, _ = split_command(fields[0].source)
    except ShellError:
        return fields, None
    start = find_start(texts(words))
    if start is not None:
        message = (
            "a whole command line in one item: it is taken as the name of one program and does"
            " not start; write one item a word, or ['sh', '-c', '...']"
        )
        reading.problems.append(Problem(ProblemKind.REFUSED, message, fields[0].location))
        return [*words, *fields[1:]], start
    return fields, None


def _no_server(fields: list[Field], container: Container, reading: ContainerReading) -> None:
    image = shown(container.image.text) if container.image else ""
    command = " ".join(masked_argv([shown(item.text) for item in fields]))
    short = command if len(command) <= 60 else command[:57] + "..."
    reading.ignored = f"command {short!r} starts no server that we know"
    own = image_start(image, [])
    is_hidden = own is not None and fields[0].text.endswith((".sh", ".py", ".bash"))
    if is_hidden and own is not None and own.runtime is not None:
        _hidden(fields[0], reading)


def _hidden(script: Field, reading: ContainerReading) -> None:
    message = (
        f"the launch is inside {shown(script.text)}, which is not among the files given: name that"
        " script too, or write the command here"
    )
    reading.problems.append(
        Problem(ProblemKind.UNRESOLVED, message, script.location, value=shown(script.text))
    )


def _server(fields: list[Field], start: Start, container: Container) -> Found:
    return Found(
        runtime=start.runtime,
        entrypoint=start.entrypoint,
        fields=tuple(fields[start.index :]),
        environment=container.environment,
        location=fields[start.begin].location,
        image=container.image,
    )


def _shell(
    fields: list[Field],
    start: Start,
    container: Container,
    reading: ContainerReading,
    depth: int,
) -> None:
    from pytest_llmserve.manifests.shell_call import shell_call

    call = shell_call(
        fields, start.index, lambda path: container.files.get(path) or container.beside(path)
    )
    if call is None:
        names = [f for f in fields[start.index :] if not f.text.startswith("-")]
        image = shown(container.image.text) if container.image else ""
        if names and (names_engine(image) or names_engine(names[0].text)):
            _hidden(names[0], reading)
        reading.ignored = "a shell without a script that we can see"
        return
    source, parameters = call
    read_script(source, _state(container, parameters), container, reading, depth)


def _state(container: Container, parameters: tuple[Field, ...]) -> State:
    from pytest_llmserve.manifests.shell_state import State

    return State(
        variables=dict(container.environment),
        exported=frozenset(container.environment),
        parameters=parameters,
        files=dict(container.files),
    )


def read_script(
    source: SourceText,
    state: State,
    container: Container,
    reading: ContainerReading,
    depth: int = 0,
) -> None:
    """The servers that a script starts, appended to ``reading``."""
    from pytest_llmserve.manifests.shell_run import Script

    try:
        script = Script(source, state, container.beside)
    except ShellError as error:
        place = error.location or source.at(error.offset)
        message = f"cannot follow the script: {error}"
        reading.problems.append(Problem(ProblemKind.UNREADABLE, message, place))
        return
    for item in script.invocations():
        if item.start.kind == "docker":
            _docker(item, container, reading, depth)
        elif item.start.kind == "server":
            found = _invoked(item, container)
            reading.found.append(_noted(found, item) if script.is_alternative(item) else found)
        elif item.start.kind == "router":
            reading.ignored = f"{item.start.entrypoint}: a router, no server"
    if reading.found:
        from pytest_llmserve.manifests.command_words import trap_problem

        reading.problems.extend(trap_problem(place) for place in script.traps)
    elif reading.ignored is None:
        reading.ignored = "a script that starts no server that we know"


def _environment(item: Invocation) -> dict[str, str]:
    return {name: item.variables[name] for name in item.exported if name in item.variables}


def _invoked(item: Invocation, container: Container) -> Found:
    environment = _environment(item)
    known = replace(container, files={**container.files, **item.files}, environment=environment)
    found = _server(list(item.fields), item.start, known)
    return finished(found, known)


def _noted(found: Found, item: Invocation) -> Found:
    lines = ", ".join(str(line) for line in dict.fromkeys(item.choices))
    note = f"one of several ways through the script: line {lines} decides at run time"
    return replace(found, notes=(note,))


def _docker(item: Invocation, container: Container, reading: ContainerReading, depth: int) -> None:
    from pytest_llmserve.manifests.docker_run import parse_docker_run

    run = parse_docker_run(item.fields[item.start.index :], item.variables)
    if run.image is None or depth >= _MAX_NESTING:
        return
    inner = replace(
        container,
        image=run.image,
        entrypoint=None if run.entrypoint is None else [run.entrypoint],
        arguments=run.arguments,
        environment=run.environment,
        location=item.fields[item.start.begin].location,
        files=_mounted(run.volumes, item.files),
        beside=_through_volumes(run.volumes, container.beside),
    )
    nested = read_container(inner, depth + 1)
    claim = docker_claim(run.gpus, run.runtime, run.devices, run.environment)
    if run.gpus is None and run.runtime == "nvidia":
        claim = narrowed(claim, run.environment, inner.location, container=True)
    reading.problems.extend(nested.problems)
    reading.found.extend(
        replace(found, gpu=claim, image=run.image, name=run.name or found.name)
        for found in nested.found
    )
    if not nested.found:
        reading.ignored = nested.ignored


def _mounted(volumes: Sequence[Field], files: Mapping[str, SourceText]) -> dict[str, SourceText]:
    """Files written by the script, under the paths where ``-v`` puts them in the container."""
    result = {}
    for volume in volumes:
        host, _, rest = shown(volume.text).partition(":")
        inside = rest.partition(":")[0]
        for path, source in files.items():
            if path == host or path.removeprefix("./") == host.removeprefix("$PWD/"):
                result[inside] = source
    return result


def _through_volumes(
    volumes: Sequence[Field], beside: Callable[[str], SourceText | None]
) -> Callable[[str], SourceText | None]:
    pairs = [shown(volume.text).split(":")[:2] for volume in volumes if ":" in volume.text]

    def find(path: str) -> SourceText | None:
        for host, inside in pairs:
            if path == inside or path.startswith(inside.rstrip("/") + "/"):
                return beside(host + path[len(inside.rstrip("/")) :])
        return beside(path)

    return find
