"""Kustomizations: rendered by the user's own binary where the policy allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.verdict import ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Mapping


def read_kustomization(root: Mapping, objects: Objects) -> None:
    """The servers of the built overlay."""
    gathering = objects.gathering
    if "kustomize" not in gathering.options.render:
        message = (
            "a kustomize overlay: what it yields is known only when it is built; give the output of"
            ' `kustomize build`, or allow it in the policy (render = ["kustomize"])'
        )
        gathering.problem(ProblemKind.UNKNOWN, message, root.location)
        return
    from pytest_llmserve.manifests.charts.rendering import kustomize_output
    from pytest_llmserve.manifests.reader import read_rendered

    text = kustomize_output(gathering, root.location)
    if text is not None:
        read_rendered(text, gathering, "kustomize build", root.location)
