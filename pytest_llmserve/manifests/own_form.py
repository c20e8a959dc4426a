"""A team's own form: the policy says where the argument list, GPUs, image and model stand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.accelerators import accelerator_claim
from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container, Found, finished
from pytest_llmserve.manifests.gpu_claims import whole_number
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import argument_fields, image_of, model_field, variables
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.servers import VLLM_SERVE
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.options import OwnForm
    from pytest_llmserve.manifests.words import Field
    from pytest_llmserve.manifests.yaml_nodes import Node


def read_own(form: OwnForm, root: Mapping, objects: Objects) -> None:
    """Every server that the form's ``servers`` path names, or the document itself."""
    path = form.servers.split(".") if form.servers else []
    found = list(_at(root, path)) if path else [("", root)]
    for name, node in found:
        if isinstance(node, Mapping):
            _server(form, name, node, objects)
    if not found:
        message = f"the form {form.origin or 'of the policy'} looks for {form.servers}: not here"
        place = root.location
        objects.gathering.problems.append(Problem(ProblemKind.UNKNOWN, message, place))


def _server(form: OwnForm, name: str, node: Mapping, objects: Objects) -> None:
    problems: list[Problem] = []
    argv = _one(node, form.argv)
    if argv is None:
        message = f"no {form.argv!r} here, where the policy's form says the arguments stand"
        objects.gathering.problem(ProblemKind.UNKNOWN, message, node.location)
        return
    values, places = variables(_one(node, form.env)) if form.env else ({}, {})
    words = argument_fields(argv)
    image = image_of(_one(node, form.image)) if form.image else None
    model = model_field(_one(node, form.model)) if form.model else None
    container = Container(
        image=image,
        entrypoint=None,
        arguments=words,
        environment=values,
        location=argv.location,
        beside=objects.gathering.beside,
    )
    reading = read_container(container)
    problems.extend(p for p in reading.problems if p.kind is not ProblemKind.WARNING)
    named = _one(node, form.name) if form.name else None
    title = named.text if isinstance(named, Scalar) else node.text("name") or name
    founds = reading.found or [_vllm(container)]
    for found in founds:
        fields = _with_model(list(found.fields), model)
        server = PodServer(
            "", replace(found, fields=tuple(fields)), GpuClaim(), tuple(problems), places
        )
        add_server(
            server,
            objects,
            name=title or objects.gathering.path.stem,
            form="own form",
            gpu=_claim(form, node, problems),
        )


def _vllm(container: Container) -> Found:
    """What no image or command tells is vLLM: the form is the team's own."""
    found = Found(
        runtime="vllm",
        entrypoint=VLLM_SERVE,
        fields=tuple(container.arguments),
        environment=container.environment,
        location=container.location,
        image=container.image,
    )
    return finished(found, container)


def _with_model(fields: list[Field], model: Field | None) -> list[Field]:
    has_one = bool(fields) and not fields[0].text.startswith("-")
    if model is None or has_one or any(f.text.split("=")[0] == "--model" for f in fields):
        return fields
    return [model, *fields]


def _claim(form: OwnForm, node: Mapping, problems: list[Problem]) -> GpuClaim:
    claim = GpuClaim()
    kind = _one(node, form.gpu) if form.gpu else None
    if isinstance(kind, Scalar):
        claim = accelerator_claim([kind.text], form.gpu, kind.location, default_count=None)
    count = _one(node, form.gpu_count) if form.gpu_count else None
    if isinstance(count, Scalar):
        return GpuClaim(
            count_per_pod=whole_number(count, form.gpu_count, problems),
            count_source=form.gpu_count,
            count_location=count.location,
            resource=claim.resource or "nvidia.com/gpu",
            labels=claim.labels,
        )
    return claim


def _one(node: Mapping, path: str) -> Node | None:
    return next((found for _, found in _at(node, path.split("."))), None)


def _at(node: Node, path: list[str]) -> Iterator[tuple[str, Node]]:
    """Nodes at a path; ``*`` stands for every entry of a mapping or list."""
    if not path:
        yield "", node
        return
    head, rest = path[0], path[1:]
    if head == "*":
        if isinstance(node, Mapping):
            inner = list(node.entries.items())
        else:
            inner = [("", item) for item in node.items] if isinstance(node, Sequence) else []
    elif isinstance(node, Mapping) and head in node.entries:
        inner = [("", node.entries[head])]
    elif isinstance(node, Sequence) and head.isdecimal() and int(head) < len(node.items):
        inner = [("", node.items[int(head)])]
    else:
        inner = []
    for name, item in inner:
        for below, found in _at(item, rest):
            yield below or name, found
