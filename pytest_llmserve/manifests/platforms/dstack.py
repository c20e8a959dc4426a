"""dstack configurations: ``commands`` and ``resources.gpu``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.accelerators import accelerator_claim
from pytest_llmserve.manifests.containers import ContainerReading, read_script
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import image_of, number, variables
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.shell_state import State
from pytest_llmserve.manifests.text import join, unknown
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects

_SIZE: Final = re.compile(r"[\d.]+\s?[GT]B(?:\.\.[\d.]*(?:[GT]B)?)?|\.\..*", re.IGNORECASE)


def read_configuration(root: Mapping, objects: Objects) -> None:
    """The servers that a service's or task's commands start."""
    gathering = objects.gathering
    scalars = [item for item in root.items("commands") if isinstance(item, Scalar)]
    values, places = variables(root.get("env"))
    nodes = number(root.get("nodes")) or 1
    claim = _claim(root.get("resources", "gpu"))
    each = claim.count_per_pod
    injected = {
        "DSTACK_GPUS_NUM": unknown("$DSTACK_GPUS_NUM") if each is None else str(each * nodes),
        "DSTACK_GPUS_PER_NODE": unknown("$DSTACK_GPUS_PER_NODE") if each is None else str(each),
        "DSTACK_NODES_NUM": str(nodes),
    }
    environment = {**injected, **values}
    container = Container(
        image=image_of(root.get("image")),
        entrypoint=None,
        arguments=[],
        environment=environment,
        location=root.location,
        beside=gathering.beside,
    )
    reading = ContainerReading()
    if scalars:
        script = join([item.source() for item in scalars], "\n")
        state = State(variables=dict(environment), exported=frozenset(environment))
        read_script(script, state, container, reading)
    else:
        from pytest_llmserve.manifests.containers import read_container

        reading = read_container(container)
    gathering.problems.extend(reading.problems)
    for found in reading.found:
        add_server(
            PodServer("", found, claim, (), places),
            objects,
            name=root.text("name") or gathering.path.name.split(".")[0],
            form="dstack",
            gpu=_with_nodes(claim, nodes),
            replicas=number(root.get("replicas")),
        )
    if not reading.found:
        gathering.ignored.append(reading.ignored or "commands start no server")


def _with_nodes(claim: GpuClaim, nodes: int) -> GpuClaim:
    from dataclasses import replace

    return replace(claim, pods_per_instance=nodes)


def _claim(node: object) -> GpuClaim:
    """``MI300X:8``, ``H100:80GB:2``, ``24GB``, ``{name: H100, count: 8}``."""
    if isinstance(node, Mapping):
        name = node.get("name")
        names = name.items if isinstance(name, Sequence) else [name]
        texts = [item.text for item in names if isinstance(item, Scalar)]
        count = number(node.get("count")) or 1
        return accelerator_claim([f"{t}:{count}" for t in texts], "resources.gpu", node.location)
    if not isinstance(node, Scalar):
        return GpuClaim()
    parts = [part.strip() for part in node.text.split(":")]
    count = next((int(p) for p in parts if p.isdecimal()), 1)
    size = next((p for p in parts if re.fullmatch(r"\d+GB", p, re.IGNORECASE)), None)
    kinds = [p for p in parts if not p.isdecimal() and not _SIZE.fullmatch(p)]
    if not kinds:
        return GpuClaim(
            count_per_pod=count, count_source="resources.gpu", count_location=node.location
        )
    texts = [f"{k.strip()}-{size}" if size else k.strip() for k in kinds[0].split(",")]
    return accelerator_claim([f"{t}:{count}" for t in texts], "resources.gpu", node.location)
