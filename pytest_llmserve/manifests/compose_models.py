"""Compose's ``models:``: what Docker Model Runner serves beside the services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.manifests.making import Made, add, marked
from pytest_llmserve.manifests.words import field as field_at
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.compose import Compose
    from pytest_llmserve.manifests.words import Field
    from pytest_llmserve.verdict import Problem


def read_models(compose: Compose) -> None:
    """A server for each model; the runner's engine is llama.cpp unless its own store says else."""
    models = compose.root.mapping("models")
    for name, node in models.entries.items() if models is not None else ():
        if not isinstance(node, Mapping):
            continue
        problems: list[Problem] = []
        fields: list[Field] = []
        model = node.get("model")
        if isinstance(model, Scalar):
            fields.append(compose.field(model, problems))
        size = node.get("context_size")
        if isinstance(size, Scalar):
            place = node.keys["context_size"]
            fields.extend([field_at("--ctx-size", place), compose.field(size, problems)])
        fields.extend(marked(i) for i in node.items("runtime_flags") if isinstance(i, Scalar))
        add(
            Made(
                name=name,
                form="compose models",
                location=node.location,
                runtime="llamacpp",
                entrypoint="docker model runner",
                fields=fields,
                problems=problems,
            ),
            compose.gathering,
        )
