"""A server that was found: its arguments mended, its ``--config`` file read, its record made."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.gpu_claims import narrowed
from pytest_llmserve.manifests.launch import GpuClaim, Launch
from pytest_llmserve.manifests.secrets import masked_argv
from pytest_llmserve.manifests.shell_tokens import ShellError
from pytest_llmserve.manifests.text import SourceText, is_unknown, shown, unknown_names
from pytest_llmserve.manifests.words import (
    Field,
    argument_words,
    environment_words,
    texts,
    word,
)
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_llmserve.manifests.launch import ConfigEntry, ModelSource

# Entrypoints around vLLM that take flags of their own (wrappers.py).
WRAPPED: Final = frozenset({"dynamo.vllm", "kserve huggingfaceserver"})
_GLUED: Final = re.compile(r"--?[A-Za-z][\w.-]*[ \t]+\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What a form knows of one container.

    ``entrypoint`` None means the image's own; ``files`` are mounted or written ones by path;
    ``beside`` finds a file that the user keeps next to the one being read.
    """

    image: Field | None
    entrypoint: Sequence[Field] | None
    arguments: Sequence[Field]
    environment: Mapping[str, str]
    location: Location
    files: Mapping[str, SourceText] = field(default_factory=dict)
    beside: Callable[[str], SourceText | None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One server: where its arguments are, and what surrounds it."""

    runtime: str
    entrypoint: str
    fields: tuple[Field, ...]
    environment: Mapping[str, str]
    location: Location
    image: Field | None = None
    gpu: GpuClaim | None = None
    name: str | None = None
    config_entries: tuple[ConfigEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    wrapper: tuple[Field, ...] = ()
    is_finished: bool = False


def finished(found: Found, container: Container) -> Found:
    """Glued items split, the ``--config`` file read, the image checked."""
    if found.is_finished:
        return found
    problems = list(found.problems)
    fields: list[Field] = []
    for item in found.fields:
        fields.extend(_unglued(item, problems))
    entries: tuple[ConfigEntry, ...] = ()
    wrapper: tuple[Field, ...] = ()
    if found.entrypoint in WRAPPED:
        from pytest_llmserve.manifests.wrappers import parted

        fields, wrapper = parted(fields, found.entrypoint)
    if found.runtime == "vllm":
        entries, config_problems = _config(fields, container)
        problems.extend(config_problems)
    if found.image is not None and is_unknown(found.image.text):
        names = ", ".join(unknown_names(found.image.text))
        message = (
            f"the image is {shown(found.image.text)}: {names} has no value in this file, so the"
            " runtime's version is not known; give the variable or render the file"
        )
        place = found.image.location
        problems.append(Problem(ProblemKind.UNRESOLVED, message, place, key="image", value=names))
    return replace(
        found,
        fields=tuple(fields),
        config_entries=entries,
        problems=tuple(problems),
        wrapper=wrapper,
        is_finished=True,
    )


def _unglued(item: Field, problems: list[Problem]) -> list[Field]:
    text = item.text
    if not _GLUED.match(text):
        return [item]
    from pytest_llmserve.manifests.command_words import split_command

    try:
        words, _ = split_command(item.source)
    except ShellError:
        return [item]
    flag = words[0].text
    shortened = masked_argv([shown(w.text) for w in words])
    message = (
        f"{' '.join(shortened)!r} is one argument with a blank inside: the server does not take it"
        f" as {flag}; write two items, or {flag}=value"
    )
    problems.append(Problem(ProblemKind.REFUSED, message, item.location, key=flag))
    return words


def _config(
    fields: Sequence[Field], container: Container
) -> tuple[tuple[ConfigEntry, ...], tuple[Problem, ...]]:
    """What the file after ``--config`` says (two words: vLLM takes no ``--config=FILE``)."""
    words = texts(fields)
    index = words.index("--config") + 1 if "--config" in words else len(words)
    if index >= len(words):
        return (), ()
    value = fields[index]
    path = value.text
    source = None if is_unknown(path) else _file(path, container)
    if source is None:
        message = (
            f"--config {shown(path)}: this file is not in reach (looked in the mounted files and"
            " beside this one), so its settings are not known"
        )
        problem = Problem(
            ProblemKind.UNRESOLVED, message, value.location, key="--config", value=shown(path)
        )
        return (), (problem,)
    from pytest_llmserve.manifests.vllm_config import config_entries

    return config_entries(source)


def _file(path: str, container: Container) -> SourceText | None:
    plain = path.removeprefix("./")
    for name, source in container.files.items():
        if name.removeprefix("./") == plain:
            return source
    return container.beside(path)


def launch_of(
    found: Found,
    *,
    name: str,
    form: str,
    gpu: GpuClaim,
    replicas: int | None = None,
    is_deployed: bool = True,
    problems: Sequence[Problem] = (),
    notes: Sequence[str] = (),
    places: Mapping[str, Location] | None = None,
    model_sources: Sequence[ModelSource] = (),
    is_typed: bool = False,
    config_entries: Sequence[ConfigEntry] = (),
) -> Launch:
    """The finished record; the environment narrows the GPUs, secrets are masked."""
    claim = found.gpu if found.gpu is not None else gpu
    place = (places or {}).get("CUDA_VISIBLE_DEVICES", found.location)
    claim = narrowed(claim, dict(found.environment), place)
    return Launch(
        name=name,
        form=form,
        location=found.location,
        runtime=found.runtime,
        entrypoint=found.entrypoint,
        argv=argument_words(found.fields),
        wrapper_argv=argument_words(found.wrapper),
        config_entries=tuple(config_entries) or found.config_entries,
        image=None if found.image is None else word(found.image),
        env=environment_words(found.environment, places or {}, found.location),
        gpu=claim,
        replicas=replicas,
        is_deployed=is_deployed,
        problems=(*problems, *found.problems),
        notes=(*found.notes, *notes),
        model_sources=tuple(model_sources),
        is_typed=is_typed,
    )
