"""Vision and audio towers: the shape that tower readers return."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmserve.models.spec import Group, Shard, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """The weights of everything but the language model, and what parallelism has to divide."""

    weights: tuple[Weight, ...]
    num_heads: int | None = None
    intermediate_sizes: tuple[int, ...] = ()
    layers_path: str = "model.layers"
    unsupported: tuple[str, ...] = ()
