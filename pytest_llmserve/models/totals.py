"""Sums over a ``ModelSpec``: parameters by group, active parameters, cache elements."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from pytest_llmserve.models.spec import (
    Group,
    IndexerCache,
    KvCache,
    LatentCache,
    StateCache,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.models.spec import Cache, Layer, ModelSpec, Weight


def parameter_count(spec: ModelSpec) -> dict[Group, int]:
    """Parameters of the whole model by group, towers included; buffers are not counted."""
    totals = dict.fromkeys(Group, 0)
    for weight, copies in _weights(spec):
        if weight.is_parameter:
            totals[weight.group] += weight.num_elements * copies
    return totals


def total_parameters(spec: ModelSpec) -> int:
    """All parameters, logical: unpadded, unsharded, without draft layers."""
    return sum(parameter_count(spec).values())


def text_parameters(spec: ModelSpec) -> int:
    """All parameters but those of vision and audio parts."""
    totals = parameter_count(spec)
    return sum(totals.values()) - totals[Group.VISION]


def active_parameters(spec: ModelSpec) -> int:
    """Parameters that one token visits: all of them, but of the routed experts only its own."""
    active = total_parameters(spec)
    for group in spec.layer_groups:
        experts = group.layer.experts
        if experts is None:
            continue
        idle = experts.num_experts - experts.num_experts_per_tok
        active -= len(group.indices) * sum(
            weight.num_elements // weight.copies * idle
            for weight in group.layer.weights
            if weight.group is Group.EXPERTS and weight.copies == experts.num_experts
        )
    return active


def cache_elements_per_token(layer: Layer) -> int:
    """Elements that a layer adds to the cache for each token while every window still grows.

    The DSA indexer's keys count as elements; a layer that shares another's cache adds nothing.
    """
    return sum(_elements(cache) for cache in layer.caches)


def _elements(cache: Cache) -> int:
    match cache:
        case KvCache():
            return cache.num_kv_heads * (cache.head_dim + cache.v_head_dim)
        case LatentCache():
            return cache.kv_lora_rank + cache.qk_rope_head_dim
        case IndexerCache():
            return cache.index_head_dim
        case _:
            return 0


def kv_elements_per_token(spec: ModelSpec) -> int:
    """Cache elements of one token over all layers."""
    return sum(
        len(group.indices) * cache_elements_per_token(group.layer) for group in spec.layer_groups
    )


def state_elements(spec: ModelSpec) -> int:
    """Elements of the recurrent state of one sequence over all layers."""
    return sum(
        len(group.indices) * sum(prod(tensor.shape) for tensor in cache.tensors)
        for group in spec.layer_groups
        for cache in group.layer.caches
        if isinstance(cache, StateCache)
    )


def _weights(spec: ModelSpec) -> Iterator[tuple[Weight, int]]:
    for weight in (*spec.outside, *spec.vision):
        yield weight, 1
    for group in spec.layer_groups:
        for weight in group.layer.weights:
            yield weight, len(group.indices)
