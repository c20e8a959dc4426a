"""Helm: values of charts that are known, of charts beside them, and what Flux and Argo CD carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.manifests.embedded import embedded
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects

_INLINE = (
    ("spec", "values"),
    ("spec", "source", "helm", "valuesObject"),
    ("spec", "source", "helm", "values"),
)


def read_values(root: Mapping, objects: Objects) -> None:
    """Values of any chart: rendered where that is allowed, else read as they stand."""
    gathering = objects.gathering
    if "helm" in gathering.options.render:
        from pytest_llmserve.manifests.charts.rendering import chart_folder, helm_output
        from pytest_llmserve.manifests.reader import read_rendered

        chart = chart_folder(gathering.path)
        if chart is not None:
            text = helm_output(gathering, chart, root.location)
            if text is not None:
                read_rendered(text, gathering, "helm template", root.location)
            return
    from pytest_llmserve.manifests.charts.values import read_values as read_any

    read_any(root, objects)


def read_release(root: Mapping, objects: Objects) -> None:
    """A HelmRelease or an Application with values written into it."""
    from pytest_llmserve.manifests.dispatch import read_mapping

    for path in _INLINE:
        node = root.get(*path)
        if isinstance(node, Mapping):
            read_mapping(node, objects, is_values=True)
            return
        if isinstance(node, Scalar):
            for document in embedded(node):
                if isinstance(document.root, Mapping):
                    read_mapping(document.root, objects, is_values=True)
            return
    kind = root.text("kind")
    message = f"a {kind} without values in it: give the output of `helm template`"
    objects.gathering.problem(ProblemKind.UNKNOWN, message, root.location)
