"""vLLM recipes: one model, its variants, arguments of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.making import (
    Made,
    add,
    argument_fields,
    flag,
    image_of,
    model_field,
    number,
    variables,
)
from pytest_llmserve.manifests.yaml_nodes import Mapping

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects


def read_recipe(root: Mapping, objects: Objects) -> None:
    """Every variant as a server: the recipe's base arguments, then its own."""
    base = root.mapping("model")
    variants = root.mapping("variants")
    if base is None or variants is None:
        return
    for name, variant in variants.entries.items():
        if isinstance(variant, Mapping):
            _variant(name, variant, base, objects)


def _variant(name: str, variant: Mapping, base: Mapping, objects: Objects) -> None:
    model = model_field(variant.get("model_id") or base.get("model_id"))
    fields = [*([model] if model else []), *argument_fields(base.get("base_args"))]
    fields.extend(argument_fields(variant.get("extra_args")))
    claim = GpuClaim()
    node = variant.get("tp")
    if node is not None:
        fields.extend(flag("--tensor-parallel-size", node, variant.keys["tp"]))
        claim = GpuClaim(
            count_per_pod=number(node), count_source="tp", count_location=node.location
        )
    values, places = variables(base.get("base_env"))
    own, own_places = variables(variant.get("extra_env"))
    image = base.get("docker_image")
    if isinstance(image, Mapping):
        image = image.get("nvidia")
    add(
        Made(
            name=f"variant:{name}",
            form="vllm recipe",
            location=variant.location,
            fields=fields,
            image=image_of(variant.get("docker_image") or image),
            environment={**values, **own},
            places={**places, **own_places},
            gpu=claim,
        ),
        objects.gathering,
    )
