"""YAML inside a string of YAML (``serveConfigV2: |``, a ConfigMap's files), with its own lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.manifests.variables import mark_templates
from pytest_llmserve.manifests.yaml_nodes import Document, Scalar, documents

if TYPE_CHECKING:
    from pytest_llmserve.manifests.text import SourceText


def embedded(node: Scalar) -> list[Document]:
    """The documents of a string; each knows its line in the file."""
    return embedded_text(node.source())


def embedded_text(source: SourceText) -> list[Document]:
    """The documents of a text that stands somewhere in a file."""
    place = source.at(0)
    text = mark_templates(source).text
    return documents(text, source.file, line=place.line, indent=(place.column or 1) - 1)
