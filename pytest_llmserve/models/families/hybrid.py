"""Gated delta nets, Kimi delta attention and short convolutions beside attention."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.errors import MISSING
from pytest_llmserve.models.families.common import (
    Decoder,
    attention,
    decoder,
    head_dim,
    layer_kinds,
    mlp,
    moe,
    num_experts,
    stack,
)
from pytest_llmserve.models.families.latent import latent
from pytest_llmserve.models.families.moe import first_dense, sparse_step
from pytest_llmserve.models.families.state_space import is_state, state_bits
from pytest_llmserve.models.parts import Block, Mlp, Moe, Part
from pytest_llmserve.models.state_parts import GatedDelta, KimiDelta, ShortConv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_llmserve.models.fields import Fields

_FLOAT32: Final = 32


def gated_delta(c: Fields, *, is_split: bool) -> GatedDelta:
    """The linear layers of Qwen3-Next and Qwen3.5."""
    return GatedDelta(
        num_key_heads=c.size("linear_num_key_heads"),
        num_value_heads=c.size("linear_num_value_heads"),
        key_head_dim=c.size("linear_key_head_dim"),
        value_head_dim=c.size("linear_value_head_dim"),
        conv_kernel=c.size("linear_conv_kernel_dim"),
        is_split=is_split,
        state_dtype_bits=state_bits(c, "mamba_ssm_dtype"),
    )


def qwen3_next(c: Fields) -> Decoder:
    """Qwen3-Next and Qwen3-Coder-Next: each fourth layer attends, all route."""
    return _qwen_hybrid(c, is_split=False)


def qwen3_5(c: Fields) -> Decoder:
    """The text part of Qwen3.5 and 3.6, dense or routed."""
    return _qwen_hybrid(c, is_split=True)


def _qwen_hybrid(c: Fields, *, is_split: bool) -> Decoder:
    layers = c.num_layers()
    kinds = layer_kinds(c)
    period = c.size("full_attention_interval", default=4)
    bias = c.flag("attention_bias")
    full = attention(
        c,
        has_qkv_bias=bias,
        has_o_bias=bias,
        qk_norm="head",
        has_query_gate=c.flag("attn_output_gate", default=True),
    )
    linear = gated_delta(c, is_split=is_split)
    is_moe = sparse_step(c) if num_experts(c) else lambda index: False
    experts: Moe | None = None
    if num_experts(c):
        shared = c.size("shared_expert_intermediate_size")
        experts = moe(c, shared_intermediate_size=shared, has_shared_gate=True)
    needs_dense = experts is None or not all(is_moe(index) for index in range(layers))
    dense = mlp(c) if needs_dense else None

    def block_of(index: int) -> Block:
        is_linear = (index + 1) % period != 0
        if kinds is not None:
            is_linear = is_state(c, "layer_types", kinds[index])
        body: Part | None = experts if is_moe(index) else dense
        if body is None:
            raise c.bad("intermediate_size", MISSING, "the width of the dense layers")
        return Block(parts=(linear if is_linear else full, body))

    return decoder(
        c,
        stack(c, block_of),
        names="qwen3_5" if is_split else "qwen3_next",
        rotary_dim=full.head_dim,
        rotary_partial_factor=c.number("partial_rotary_factor", default=0.25),
    )


def kimi_linear(c: Fields) -> Decoder:
    """Kimi-Linear: delta attention with a decay per channel, each fourth layer MLA."""
    inner = c.nested("linear_attn_config")
    delta = KimiDelta(
        num_heads=inner.size("num_heads", default=c.size("linear_num_heads")),
        head_dim=inner.size("head_dim", default=c.size("linear_head_dim")),
        conv_kernel=inner.size("short_conv_kernel_size", default=c.size("linear_conv_kernel_dim")),
    )
    kinds = layer_kinds(c)
    listed = inner.integers("full_attn_layers")
    if kinds is None and listed is None:
        raise c.bad("linear_attn_config.full_attn_layers", MISSING, "a list of layers from 1")
    full_layers = {layer - 1 for layer in listed or ()}
    part = latent(c)
    shared = c.count("num_shared_experts", "n_shared_experts", default=1)
    width = c.size("moe_intermediate_size")
    experts = moe(
        c,
        has_correction_bias=True,
        router_dtype_bits=_FLOAT32,
        shared_intermediate_size=shared * width,
    )
    is_moe = first_dense(c, default=1)
    dense = mlp(c)

    def block_of(index: int) -> Block:
        is_full = index in full_layers
        if kinds is not None:
            is_full = not is_state(c, "layer_types", kinds[index])
        return Block(parts=(part if is_full else delta, experts if is_moe(index) else dense))

    return decoder(c, stack(c, block_of), names="kimi_linear", rotary_dim=None)


def lfm2(c: Fields) -> Decoder:
    """LFM2: gated short convolutions and attention, an MLP width that is rounded up."""
    width = c.size("block_ff_dim", "intermediate_size")
    if c.flag("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3)
        width = int(c.number("block_ffn_dim_multiplier", default=1.0) * width)
        multiple = c.size("block_multiple_of", default=256)
        width = multiple * ceil(width / multiple)
    dense = Mlp(intermediate_size=width)
    return _lfm2(c, lambda index: dense)


def lfm2_moe(c: Fields) -> Decoder:
    """LFM2-MoE: dense in the first layers."""
    dense = mlp(c)
    experts = moe(c, has_correction_bias=c.flag("use_expert_bias", default=True))
    first = c.count("num_dense_layers", default=2)
    return _lfm2(c, lambda index: dense if index < first else experts)


def _lfm2(c: Fields, body_of: Callable[[int], Mlp | Moe]) -> Decoder:
    kinds = _lfm2_kinds(c)
    full = attention(c, qk_norm="head")
    conv = ShortConv(conv_kernel=c.size("conv_L_cache"), has_bias=c.flag("conv_bias"))

    def block_of(index: int) -> Block:
        mixer = conv if is_state(c, "layer_types", kinds[index]) else full
        return Block(parts=(mixer, body_of(index)))

    is_tied = c.flag("tie_embedding", "tie_word_embeddings", default=True)
    return decoder(c, stack(c, block_of), is_tied=is_tied, names="lfm2", rotary_dim=head_dim(c))


def _lfm2_kinds(c: Fields) -> Sequence[str]:
    kinds = layer_kinds(c)
    if kinds is not None:
        return kinds
    listed = c.integers("full_attn_idxs")
    layers = range(c.num_layers())
    attends = set(layers if listed is None else listed)
    return ["full_attention" if index in attends else "conv" for index in layers]
