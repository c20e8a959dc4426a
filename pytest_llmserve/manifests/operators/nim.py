"""NVIDIA NIM: the container chooses the engine's settings when it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.gpu_claims import node_labels, resource_claim
from pytest_llmserve.manifests.making import Made, add, image_of, number, variables
from pytest_llmserve.manifests.pods import object_name
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Mapping


def read_nim(root: Mapping, objects: Objects) -> None:
    """One ``NIMService``: image and GPUs are stated, the engine's settings are not."""
    spec = root.mapping("spec")
    if spec is None:
        return
    problems: list[Problem] = []
    claim = resource_claim(spec.mapping("resources"), problems)
    message = "a NIM chooses its engine and settings when it starts: they stand in no file"
    problems.append(Problem(ProblemKind.UNKNOWN, message, root.location))
    values, places = variables(spec.get("env"))
    add(
        Made(
            name=object_name(root),
            form="NIMService",
            location=root.location,
            runtime="nim",
            entrypoint="nim",
            image=image_of(spec.get("image")),
            environment=values,
            places=places,
            gpu=replace(claim, labels=node_labels(spec)),
            replicas=number(spec.get("replicas")),
            problems=problems,
        ),
        objects.gathering,
    )
