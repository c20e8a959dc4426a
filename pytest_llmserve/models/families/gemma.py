"""Gemma 1, 2 and 3: tied, wide heads, layers that slide by class where the file is silent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.models.families.common import (
    Decoder,
    attention,
    decoder,
    layer_kinds,
    mlp,
    stack,
    uniform,
    with_window,
)
from pytest_llmserve.models.parts import Attention, Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.models.fields import Fields


def gemma(c: Fields) -> Decoder:
    """Gemma 1: Llama with heads of their own width."""
    part = _attention(c)
    return decoder(c, uniform(c, part, mlp(c)), rotary_dim=part.head_dim)


def gemma2(c: Fields) -> Decoder:
    """Gemma 2: four norms; every second layer slides, starting with the first."""
    kinds = layer_kinds(c) or _every(c, 2)
    return _sliding(c, _attention(c), kinds)


def gemma3(c: Fields) -> Decoder:
    """Gemma 3: q and k norms; all but each sixth layer slide, with a rope of their own."""
    period = c.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    kinds = layer_kinds(c) or _every(c, period)
    found = _sliding(c, replace(_attention(c), qk_norm="head"), kinds)
    return replace(found, local_rope_theta=c.number("rope_local_base_freq", default=10000.0))


def _attention(c: Fields) -> Attention:
    bias = c.flag("attention_bias")
    return attention(c, has_qkv_bias=bias, has_o_bias=bias)


def _every(c: Fields, period: int) -> list[str]:
    return [
        "sliding_attention" if (index + 1) % period else "full_attention"
        for index in range(c.num_layers())
    ]


def _sliding(c: Fields, part: Attention, kinds: Sequence[str]) -> Decoder:
    window = c.size("sliding_window")
    dense = mlp(c)

    def block_of(index: int) -> Block:
        slides = kinds[index] == "sliding_attention"
        return Block(parts=(with_window(part, window if slides else None), dense), norms=4)

    return decoder(c, stack(c, block_of), rotary_dim=part.head_dim)
