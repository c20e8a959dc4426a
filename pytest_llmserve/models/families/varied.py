"""Families whose layers differ one by one: Nemotron NAS, MiniMax M3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pytest_llmserve.models.errors import MISSING, UnsupportedModel
from pytest_llmserve.models.families.common import (
    Decoder,
    attention,
    decoder,
    flags_of,
    grouped,
    head_dim,
    hidden_size,
    moe,
    num_heads,
    stack,
)
from pytest_llmserve.models.fields import Fields
from pytest_llmserve.models.parts import Attention, Block, Extra, Mlp, Part

_FFN_MULTIPLE: Final = 256


def nemotron_nas(c: Fields) -> Decoder:
    """Llama-Nemotron from architecture search: each layer its own heads and width, or nothing."""
    configs = c.items("block_configs")
    layers = c.num_layers()
    if configs is None or len(configs) != layers:
        raise c.bad("block_configs", configs or MISSING, f"a list of {layers} blocks")
    blocks = [_nas_block(c, index, entry) for index, entry in enumerate(configs)]
    return decoder(c, grouped(blocks), rotary_dim=head_dim(c))


def _nas_block(c: Fields, index: int, entry: object) -> Block:
    if not isinstance(entry, Mapping):
        raise c.bad(f"block_configs[{index}]", entry, "an object")
    block = Fields(entry, file=c.file, path=f"{c.path}block_configs[{index}].")
    hidden = hidden_size(c)
    parts: list[Part] = []
    mixer, ffn = block.nested("attention"), block.nested("ffn")
    if mixer.flag("replace_with_linear"):
        parts.append(Extra(shapes=(("self_attn.linear_attn", hidden, hidden),)))
    elif not mixer.flag("no_op"):
        kv_heads = num_heads(c) // mixer.size("n_heads_in_group")
        parts.append(_nas_attention(c, mixer, kv_heads))
    if ffn.flag("replace_with_linear"):
        parts.append(Extra(shapes=(("mlp.linear_mlp", hidden, hidden),)))
    elif not ffn.flag("no_op"):
        parts.append(Mlp(intermediate_size=_nas_width(ffn, hidden)))
    return Block(parts=tuple(parts), norms=len(parts))


def _nas_attention(c: Fields, mixer: Fields, kv_heads: int) -> Attention:
    window = mixer.optional_size("window_length")
    if window is not None or mixer.optional_size("num_sink_tokens") is not None:
        raise UnsupportedModel(f"{c.file}: {mixer.path}window_length is not understood")
    bias = c.flag("attention_bias")
    return attention(c, num_kv_heads=kv_heads, has_qkv_bias=bias, has_o_bias=bias)


def _nas_width(ffn: Fields, hidden: int) -> int:
    """``2 x ffn_mult x hidden / 3``, rounded up to a multiple of 256."""
    width = int(2 * ffn.number("ffn_mult") * hidden / 3)
    return -(-width // _FFN_MULTIPLE) * _FFN_MULTIPLE


def minimax_m3(c: Fields) -> Decoder:
    """MiniMax M3: dense layers first, then experts and attention that reads chosen blocks."""
    layers = c.num_layers()
    sparse = _sparse_config(c)
    freq = flags_of(sparse, "sparse_attention_freq", layers)
    is_moe = flags_of(c, "moe_layer_freq", layers)
    if freq is None or is_moe is None:
        key = "moe_layer_freq" if is_moe is None else "sparse_attention_config"
        raise c.bad(key, MISSING, f"a list of {layers} zeros and ones")
    full = attention(c, qk_norm="head")
    tokens = sparse.size("sparse_topk_blocks") * sparse.size("sparse_block_size")
    chosen = attention(
        c,
        qk_norm="head",
        sparse_index_dim=sparse.size("sparse_index_dim"),
        sparse_index_heads=sparse.size("sparse_num_index_heads"),
        sparse_topk_tokens=tokens,
    )
    dense = Mlp(intermediate_size=c.size("dense_intermediate_size"))
    shared = c.count("n_shared_experts", default=1) * c.size("shared_intermediate_size")
    experts = moe(
        c,
        intermediate_size=c.size("intermediate_size"),
        shared_intermediate_size=shared,
        has_correction_bias=c.flag("use_routing_bias", default=True),
        router_dtype_bits=32,
    )

    def block_of(index: int) -> Block:
        part = chosen if freq[index] else full
        return Block(parts=(part, experts if is_moe[index] else dense))

    rotary = c.size("rotary_dim", default=full.head_dim)
    return decoder(c, stack(c, block_of), names="minimax_m3", rotary_dim=rotary)


def _sparse_config(c: Fields) -> Fields:
    found: Mapping[str, Any] | None = c.object("sparse_attention_config")
    if found is None:
        raise c.bad("sparse_attention_config", MISSING, "an object")
    return c.nested("sparse_attention_config")
