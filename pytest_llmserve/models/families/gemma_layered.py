"""Gemma 3n and 4: two kinds of heads, shared caches, an embedding for every layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.models.families.common import (
    Decoder,
    attention,
    decoder,
    hidden_size,
    layer_kinds,
    mlp,
    moe,
    num_experts,
    num_heads,
    stack,
    with_window,
)
from pytest_llmserve.models.parts import Attention, Block, Extra, Mlp, Part
from pytest_llmserve.models.spec import Group, Shard, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.models.fields import Fields


def gemma4(c: Fields) -> Decoder:
    """Gemma 4: full layers have wider heads, and fewer KV heads where keys are values."""
    layers = c.num_layers()
    kinds = _kinds(c, 6)
    sliding = with_window(_attention(c), c.size("sliding_window"))
    full = _global_attention(c)
    first_shared = layers - c.count("num_kv_shared_layers", default=0)
    dense = mlp(c)
    wide = Mlp(intermediate_size=dense.intermediate_size * 2)
    is_double = c.flag("use_double_wide_mlp")
    extra = _layer_embedding(c)
    routed: tuple[Part, ...] = ()
    if c.flag("enable_moe_block") and num_experts(c):
        routed = (moe(c, intermediate_size=c.size("moe_intermediate_size"), has_expert_scale=True),)

    def block_of(index: int) -> Block:
        part = full if kinds[index] == "full_attention" else sliding
        is_shared = index >= first_shared
        if is_shared:
            part = replace(part, reads_shared_cache=True)
        body = wide if is_shared and is_double else dense
        norms = 4 + len(extra) + 3 * len(routed)
        return Block(parts=(part, body, *routed, *extra), norms=norms)

    return decoder(
        c,
        stack(c, block_of),
        names="gemma4",
        extra=_outside(c),
        rotary_dim=sliding.head_dim,
        rotary_dims=(("full_attention", full.head_dim),),
    )


def gemma3n(c: Fields) -> Decoder:
    """Gemma 3n: Gemma 4's layers with AltUp and Laurel beside them."""
    layers = c.num_layers()
    kinds = _kinds(c, 5)
    part = _attention(c)
    window = c.size("sliding_window")
    first_shared = layers - c.count("num_kv_shared_layers", default=0)
    widths = _widths(c)
    altup = _altup(c)
    inputs = [shape for part in _layer_embedding(c) for shape in part.shapes]
    extra = replace(altup, shapes=(*altup.shapes, *inputs))

    def block_of(index: int) -> Block:
        slides = kinds[index] == "sliding_attention"
        mixer = with_window(part, window if slides else None)
        if index >= first_shared:
            mixer = replace(mixer, reads_shared_cache=True)
        return Block(parts=(mixer, Mlp(intermediate_size=widths[index]), extra), norms=5)

    hidden = hidden_size(c)
    copies = 2 * (c.size("altup_num_inputs") - 1)
    projections = Weight(
        name="model.language_model.altup_projections",
        group=Group.OTHER,
        rows=hidden,
        cols=hidden,
        copies=copies,
        shard=Shard.COLUMN,
    )
    return decoder(
        c,
        stack(c, block_of),
        names="gemma4",
        extra=(*_outside(c), projections, _buffer("model.language_model.scales", 4)),
        rotary_dim=part.head_dim,
        local_rope_theta=c.number("rope_local_base_freq", default=10000.0),
    )


def _widths(c: Fields) -> list[int]:
    """One MLP width for all layers, or one for each."""
    layers = c.num_layers()
    if not isinstance(c.value("intermediate_size"), list):
        return [c.size("intermediate_size")] * layers
    found = c.integers("intermediate_size") or []
    if len(found) < layers:
        raise c.bad("intermediate_size", found, f"a number or a list of {layers}")
    return found


def _attention(c: Fields) -> Attention:
    bias = c.flag("attention_bias")
    return attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm="head")


def _global_attention(c: Fields) -> Attention:
    is_key_value = c.flag("attention_k_eq_v")
    kv_heads = c.optional_size("num_global_key_value_heads") if is_key_value else None
    return replace(
        _attention(c),
        head_dim=c.size("global_head_dim", default=512),
        num_kv_heads=kv_heads or c.size("num_key_value_heads", default=num_heads(c)),
        has_unstored_v=is_key_value,
    )


def _kinds(c: Fields, period: int) -> Sequence[str]:
    layers = c.num_layers()
    found = layer_kinds(c)
    if found is None:
        found = [
            "sliding_attention" if (index + 1) % period else "full_attention"
            for index in range(layers)
        ]
    return [*found[:-1], "full_attention"]


def _layer_embedding(c: Fields) -> tuple[Extra, ...]:
    """What each layer does with its own embedding: a gate in, a projection out."""
    width = c.count("hidden_size_per_layer_input", default=0)
    if not width:
        return ()
    hidden = hidden_size(c)
    shapes = (("per_layer_input_gate", width, hidden), ("per_layer_projection", hidden, width))
    return (Extra(shapes=shapes),)


def _outside(c: Fields) -> tuple[Weight, ...]:
    width = c.count("hidden_size_per_layer_input", default=0)
    if not width:
        return ()
    rows = c.num_layers() * width
    path = "model.language_model"
    return (
        Weight(
            name=f"{path}.embed_tokens_per_layer",
            group=Group.EMBEDDING,
            rows=c.size("vocab_size_per_layer_input"),
            cols=rows,
            shard=Shard.VOCAB,
            is_matmul=False,
        ),
        Weight(
            name=f"{path}.per_layer_model_projection",
            group=Group.OTHER,
            rows=rows,
            cols=hidden_size(c),
            shard=Shard.COLUMN,
        ),
        Weight(
            name=f"{path}.per_layer_projection_norm",
            group=Group.NORM,
            rows=width,
            is_matmul=False,
        ),
    )


def _altup(c: Fields) -> Extra:
    """AltUp, whole on every rank, and Laurel, whose two matrices are divided by its rank."""
    hidden, inputs, rank = hidden_size(c), c.size("altup_num_inputs"), c.size("laurel_rank")
    return Extra(
        shapes=(
            ("altup.correction_coefs", inputs, inputs),
            ("altup.prediction_coefs", inputs**2, inputs),
            ("altup.modality_router", inputs, hidden),
            ("altup.router_norm", hidden, 1),
            ("laurel.post_laurel_norm", hidden, 1),
        ),
        weights=(
            # vLLM makes it in float32 whatever the model's dtype (0.32).
            Weight(
                name="altup.correct_output_scale",
                group=Group.OTHER,
                rows=hidden,
                dtype_bits=32,
                is_matmul=False,
            ),
            _buffer("altup.router_input_scale", 1),
            Weight(
                name="laurel.linear_left",
                group=Group.OTHER,
                rows=rank,
                cols=hidden,
                shard=Shard.COLUMN,
            ),
            Weight(
                name="laurel.linear_right",
                group=Group.OTHER,
                rows=hidden,
                cols=rank,
                shard=Shard.ROW,
            ),
        ),
    )


def _buffer(name: str, size: int) -> Weight:
    return Weight(name=name, group=Group.OTHER, rows=size, is_matmul=False, is_parameter=False)
