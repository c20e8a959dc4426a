"""ConfigMaps whose files are server definitions themselves: RayLLM models, AIBrix templates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.embedded import embedded
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects

_SIGNS: Final = re.compile(
    r"^\s*(?:engine_config|llm_configs|-?\s*model_source|engine_kwargs):", re.M
)


def read_config_map(root: Mapping, objects: Objects) -> None:
    """Servers that a ConfigMap's files define, where they do."""
    data = root.mapping("data")
    for name, node in data.entries.items() if data is not None else ():
        if isinstance(node, Scalar) and _SIGNS.search(node.text):
            _file(name, node, objects)
    objects.gathering.ignored.append(f"ConfigMap (line {root.line})")


def _file(name: str, node: Scalar, objects: Objects) -> None:
    for document in embedded(node):
        root = document.root
        if isinstance(root, Sequence):
            _templates(root, objects)
        elif isinstance(root, Mapping) and root.mapping("engine_config") is not None:
            from pytest_llmserve.manifests.operators.ray_serve import read_legacy

            read_legacy(root, objects)
        elif isinstance(root, Mapping) and root.items("applications"):
            from pytest_llmserve.manifests.operators.ray_serve import read_serve_config

            read_serve_config(root, objects)


def _templates(root: Sequence, objects: Objects) -> None:
    from pytest_llmserve.manifests.operators.aibrix import read_template

    for item in root.items:
        if isinstance(item, Mapping) and item.mapping("spec", "model_source") is not None:
            read_template(item, objects)
