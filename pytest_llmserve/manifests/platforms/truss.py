"""Truss (Baseten): a start command on a named accelerator, or an engine build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.accelerators import accelerator_claim
from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.launch import ConfigEntry, GpuClaim, ModelSource
from pytest_llmserve.manifests.making import Made, add, image_of, model_field, variables
from pytest_llmserve.manifests.model_sources import downloaded, hub_id
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.vllm_config import mapping_entries
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.verdict import Location

_CACHE: Final = "/app/model_cache"


def read_config(root: Mapping, objects: Objects) -> None:
    """The server of a ``config.yaml``."""
    gathering = objects.gathering
    values, places = variables(root.get("environment_variables"))
    name = root.text("model_name") or gathering.path.stem
    claim = _claim(root)
    command = root.get("docker_server", "start_command")
    if isinstance(command, Scalar):
        _docker(root, command, name, claim, (values, places), objects)
        return
    build = root.mapping("trt_llm")
    if build is not None:
        _engine(root, build, name, claim, objects)
        return
    message = (
        "a Truss whose model is code of its own (model/model.py): how it starts an engine stands in"
        " no file; declare the server in a Python test"
    )
    gathering.problem(ProblemKind.UNKNOWN, message, root.location)


def _docker(
    root: Mapping,
    command: Scalar,
    name: str,
    claim: GpuClaim,
    environment: tuple[dict[str, str], dict[str, Location]],
    objects: Objects,
) -> None:
    from pytest_llmserve.manifests.command_words import split_command
    from pytest_llmserve.manifests.shell_tokens import ShellError

    gathering = objects.gathering
    try:
        words, doubts = split_command(command.source())
    except ShellError as error:
        message = f"cannot split start_command: {error}"
        gathering.problem(ProblemKind.UNREADABLE, message, command.location)
        return
    values, places = environment
    reading = read_container(
        Container(
            image=image_of(root.get("base_image", "image")),
            entrypoint=words,
            arguments=[],
            environment=values,
            location=command.location,
            beside=gathering.beside,
        )
    )
    sources = [*_sources(root), *downloaded(command.text, command.location, "start_command")]
    problems = (*doubts, *reading.problems)
    for found in reading.found:
        server = PodServer("", found, claim, problems, places, tuple(sources))
        add_server(server, objects, name=name, form="truss")
    if not reading.found:
        gathering.problems.extend(problems)
        gathering.ignored.append(reading.ignored or "start_command starts no server")


def _engine(root: Mapping, build: Mapping, name: str, claim: GpuClaim, objects: Objects) -> None:
    """TensorRT-LLM built and run by Baseten: settings, no command line."""
    entries: list[ConfigEntry] = []
    for part in ("build", "runtime"):
        mapping = build.mapping(part)
        entries.extend(
            ConfigEntry(f"{part}.{e.key}", e.value, e.location, e.unresolved)
            for e in (mapping_entries(mapping) if mapping is not None else ())
            if e.key != "checkpoint_repository"
        )
    model = model_field(build.get("build", "checkpoint_repository", "repo"))
    problems: list[Problem] = []
    add(
        Made(
            name=name,
            form="truss",
            location=build.location,
            runtime="tensorrt_llm",
            entrypoint="tensorrt_llm",
            fields=[model] if model is not None else [],
            gpu=claim,
            config_entries=entries,
            problems=problems,
            sources=_sources(root),
        ),
        objects.gathering,
    )


def _claim(root: Mapping) -> GpuClaim:
    node = root.get("resources", "accelerator")
    if not isinstance(node, Scalar):
        return GpuClaim()
    return accelerator_claim([node.text], "resources.accelerator", node.location)


def _sources(root: Mapping) -> list[ModelSource]:
    """``weights`` and ``model_cache``: which model a path of the container holds."""
    found: list[ModelSource] = []
    for item in root.mappings("weights"):
        source, mount = item.get("source"), item.text("mount_location")
        if isinstance(source, Scalar) and mount:
            found.append(ModelSource(mount, hub_id(source.text), "weights", source.location))
    for item in root.mappings("model_cache"):
        repo, folder = item.get("repo_id"), item.text("volume_folder")
        if isinstance(repo, Scalar) and folder:
            path = f"{_CACHE}/{folder}"
            found.append(ModelSource(path, repo.text, "model_cache", repo.location))
    return found
