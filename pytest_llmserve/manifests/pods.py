"""The servers of a pod specification: the core that every form with containers shares."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container, Found, launch_of
from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim
from pytest_llmserve.manifests.kubernetes_parts import (
    container_words,
    environment,
    image_field,
    mounted_files,
)
from pytest_llmserve.manifests.text import shown
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel, ModelSource
    from pytest_llmserve.manifests.yaml_nodes import Mapping

_DOWNLOADS: Final = re.compile(r"download|git clone|\bcp\b|\bsync\b|rsync")


@dataclass(frozen=True, slots=True)
class PodServer:
    """One server of a pod, with what the pod says about its GPUs."""

    container: str
    found: Found
    gpu: GpuClaim
    problems: tuple[Problem, ...] = ()
    places: dict[str, Location] | None = None
    sources: tuple[ModelSource, ...] = ()


def object_name(root: Mapping) -> str:
    """``metadata.name``, else the kind."""
    name = root.text("metadata", "name") or root.text("metadata", "generateName")
    return shown(name).rstrip("-") if name else (root.text("kind") or "object").lower()


def add_server(
    server: PodServer,
    objects: Objects,
    *,
    name: str,
    form: str,
    gpu: GpuClaim | None = None,
    replicas: int | None = None,
    is_deployed: bool = True,
) -> None:
    """The server as a launch of the file."""
    gathering = objects.gathering
    gathering.launches.append(
        launch_of(
            server.found,
            name=gathering.names.unique(name),
            form=form,
            gpu=server.gpu if gpu is None else gpu,
            replicas=replicas,
            is_deployed=is_deployed and replicas != 0,
            problems=server.problems,
            notes=gathering.notes,
            places=server.places,
            model_sources=server.sources,
        )
    )


def pod_servers(
    pod: Mapping,
    objects: Objects,
    label: str,
    injected: dict[str, str] | None = None,
    *,
    containers: tuple[Mapping, ...] | None = None,
) -> Iterator[PodServer]:
    """Servers of a pod specification; what is none is named among the ignored.

    Args:
        pod: the ``spec`` of a pod template.
        objects: of the whole file.
        label: for messages, ``Deployment/chat``.
        injected: variables that a controller adds to each container.
        containers: in place of ``pod.containers``.
    """
    labels = node_labels(pod)
    if not labels and ("ComputeClass" in (kind for kind, _ in objects.named)):
        from pytest_llmserve.manifests.compute_class import class_labels

        labels = class_labels(pod, objects)
    sources: list[ModelSource] = []
    for container in pod.mappings("initContainers"):
        objects.gathering.ignored.append(f"{label} init container {container.text('name') or '?'}")
        sources.extend(downloads(container))
    listed = list(pod.mappings("containers")) if containers is None else list(containers)
    if not listed:
        message = f"{label} has no containers"
        objects.gathering.problems.append(Problem(ProblemKind.UNREADABLE, message, pod.location))
    for container in listed:
        for server in _container(container, pod, injected or {}, objects, label, labels):
            yield replace(server, sources=(*sources, *server.sources))


def downloads(container: Mapping) -> tuple[ModelSource, ...]:
    """What a container downloads, and where to."""
    from pytest_llmserve.manifests.yaml_nodes import Scalar

    words = [i for key in ("command", "args") for i in container.items(key)]
    texts = [item for item in words if isinstance(item, Scalar)]
    whole = " ".join(item.text for item in texts)
    if not _DOWNLOADS.search(whole):
        return ()
    from pytest_llmserve.manifests.model_sources import downloaded

    return downloaded(whole, texts[-1].location, "init container")


def _container(
    node: Mapping,
    pod: Mapping,
    injected: dict[str, str],
    objects: Objects,
    label: str,
    labels: tuple[GpuLabel, ...],
) -> Iterator[PodServer]:
    name = node.text("name") or ""
    problems: list[Problem] = []
    variables, places = environment(node, injected, objects, problems)
    claim = resource_claim(node.mapping("resources"), problems)
    if claim.count_per_pod is None and (
        pod.get("resourceClaims") or node.get("resources", "claims")
    ):
        from pytest_llmserve.manifests.device_claims import device_claim

        claim = device_claim(node, pod, objects, problems, claim)
    command = container_words(node, "command", variables, problems)
    arguments = container_words(node, "args", variables, problems)
    image = node.get("image")
    reading = read_container(
        Container(
            image=image_field(image),
            entrypoint=command,
            arguments=arguments or [],
            environment=variables,
            location=node.location,
            files=mounted_files(node, pod, objects),
            beside=objects.gathering.beside,
        )
    )
    problems.extend(reading.problems)
    if not reading.found:
        _not_a_server(reading.ignored, node, label, bool(image), problems, objects)
    elif image is None:
        problems.append(_no_image(node))
    sources = downloads(node) if reading.found else ()
    for index, found in enumerate(reading.found):
        gpu = replace(claim, labels=(*claim.labels, *labels)) if labels else claim
        suffix = f"{name}-{index + 1}" if index and name else name
        yield PodServer(suffix, found, gpu, tuple(problems), places, sources)


def _not_a_server(
    reason: str | None,
    node: Mapping,
    label: str,
    has_image: bool,
    problems: list[Problem],
    objects: Objects,
) -> None:
    name = node.text("name") or "?"
    objects.gathering.ignored.append(f"{label} container {name}: {reason or 'no server'}")
    objects.gathering.problems.extend(
        p for p in problems if p.kind in (ProblemKind.UNRESOLVED, ProblemKind.UNREADABLE)
    )
    if not has_image:
        problem = replace(_no_image(node), kind=ProblemKind.UNKNOWN)
        objects.gathering.problems.append(problem)


def _no_image(node: Mapping) -> Problem:
    """A container without an image: the patch of one that stands in another file."""
    message = (
        f"container {node.text('name') or '?'!r} has no image: a patch? What its base says is not"
        " known; give the rendered manifest (kustomize build, helm template)"
    )
    return Problem(ProblemKind.UNRESOLVED, message, node.location, key="image")
