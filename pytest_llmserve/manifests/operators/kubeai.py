"""KubeAI ``Model``, and its chart's catalogue: arguments, a URL, and ``profile:count``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.accelerators import accelerator_claim
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import (
    Made,
    add,
    argument_fields,
    image_of,
    is_off,
    model_field,
    number,
    variables,
)
from pytest_llmserve.manifests.servers import VLLM_SERVE
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Node

_VENDOR: Final = re.compile(r"^(?:nvidia-gpu-|nvidia-|amd-gpu-|gpu-)")


def read_model(root: Mapping, objects: Objects) -> None:
    """One ``kubeai.org/v1 Model``."""
    spec = root.mapping("spec")
    if spec is not None:
        name = root.text("metadata", "name") or "model"
        _add(name, spec, root, objects, form="kubeai Model", is_deployed=True)


def read_catalog(root: Mapping, objects: Objects) -> None:
    """``catalog:`` of KubeAI's models chart; entries are off unless enabled."""
    catalog = root.mapping("catalog")
    is_all = root.text("all", "enabled") == "true"
    for name, entry in catalog.entries.items() if catalog is not None else ():
        if isinstance(entry, Mapping) and entry.get("url") is not None:
            is_on = is_all or entry.text("enabled") == "true"
            _add(name, entry, entry, objects, form="kubeai catalog", is_deployed=is_on)


def _add(
    name: str, spec: Mapping, node: Mapping, objects: Objects, *, form: str, is_deployed: bool
) -> None:
    runtime = (spec.text("engine") or "VLLM").lower()  # "OLlama" is how KubeAI spells it
    model = model_field(spec.get("url"))
    values, places = variables(spec.get("env"))
    add(
        Made(
            name=name,
            form=form,
            location=node.location,
            runtime=runtime,
            entrypoint=VLLM_SERVE if runtime == "vllm" else runtime,
            fields=[*([model] if model else []), *argument_fields(spec.get("args"))],
            image=image_of(spec.get("image")),
            environment=values,
            places=places,
            gpu=profile_claim(spec.get("resourceProfile")),
            replicas=number(spec.get("replicas")) or number(spec.get("minReplicas")) or None,
            is_deployed=is_deployed and not is_off(spec.get("enabled")),
        ),
        objects.gathering,
    )


def profile_claim(node: Node | None) -> GpuClaim:
    """``nvidia-gpu-l4:2``: the chart's profiles carry the kind in their name."""
    if not isinstance(node, Scalar):
        return GpuClaim()
    profile, _, count = node.text.partition(":")
    if profile == "cpu":
        return GpuClaim(
            count_source="resourceProfile", count_location=node.location, resource="cpu"
        )
    kind = _VENDOR.sub("", profile)
    text = f"{kind}:{count}" if count else kind
    claim = accelerator_claim([text], "resourceProfile", node.location)
    if claim.resource is not None and profile.startswith("amd"):
        return replace(claim, resource="amd.com/gpu")
    return claim
