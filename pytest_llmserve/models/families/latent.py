"""Multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM-5, MiniCPM3."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.families.common import (
    Decoder,
    decoder,
    hidden_size,
    layer_kinds,
    mlp,
    moe,
    num_heads,
    stack,
    uniform,
)
from pytest_llmserve.models.families.moe import first_dense
from pytest_llmserve.models.parts import Block, Latent, Moe

if TYPE_CHECKING:
    from pytest_llmserve.models.fields import Fields

_FLOAT32: Final = 32


def latent(c: Fields, v_head_dim: int | None = None) -> Latent:
    """MLA from its ranks and head widths; num_key_value_heads and head_dim say nothing."""
    return Latent(
        num_heads=num_heads(c),
        q_lora_rank=c.optional_size("q_lora_rank"),
        kv_lora_rank=c.size("kv_lora_rank"),
        qk_nope_head_dim=c.count("qk_nope_head_dim"),
        qk_rope_head_dim=c.count("qk_rope_head_dim"),
        v_head_dim=v_head_dim or c.size("v_head_dim"),
        has_bias=c.flag("attention_bias"),
    )


def _experts(c: Fields) -> Moe:
    width = c.size("moe_intermediate_size")
    has_correction = c.text("topk_method") == "noaux_tc" or c.text("topk_method") is None
    return moe(
        c,
        has_correction_bias=has_correction,
        shared_intermediate_size=c.count("n_shared_experts", default=0) * width,
    )


def deepseek_v2(c: Fields) -> Decoder:
    """DeepSeek V2 and V2-Lite: as V3 without the correction bias."""
    found = replace(_experts(c), has_correction_bias=c.text("topk_method") == "noaux_tc")
    return _routed(c, latent(c), found)


def deepseek_v3(c: Fields) -> Decoder:
    """DeepSeek V3, V3.1, R1, Kimi K2, Moonlight."""
    return _routed(c, latent(c), _experts(c))


def deepseek_v32(c: Fields) -> Decoder:
    """DeepSeek V3.2 and GLM-5: an indexer beside the attention, on some layers shared."""
    part = replace(
        latent(c),
        index_num_heads=c.size("index_n_heads"),
        index_head_dim=c.size("index_head_dim"),
        index_topk=c.size("index_topk"),
    )
    shared = replace(part, has_shared_indexer=True)
    kinds = layer_kinds(c, "indexer_types")
    experts, dense, is_moe = _experts(c), mlp(c), first_dense(c)

    def block_of(index: int) -> Block:
        is_shared = kinds is not None and kinds[index] == "shared"
        body = experts if is_moe(index) else dense
        return Block(parts=(shared if is_shared else part, body))

    return decoder(c, stack(c, block_of), rotary_dim=part.qk_rope_head_dim, has_indexer_rope=True)


def glm_dsa(c: Fields) -> Decoder:
    """GLM-5 to 5.3: as DeepSeek V3.2, on some layers with another layer's selection."""
    return replace(deepseek_v32(c), has_indexer_rope=False)


def glm4_moe_lite(c: Fields) -> Decoder:
    """GLM-4.7-Flash: DeepSeek V3's layers, the first one dense, a float32 router."""
    experts = replace(_experts(c), has_correction_bias=True, router_dtype_bits=_FLOAT32)
    return _routed(c, latent(c), experts, first=1)


def _routed(c: Fields, part: Latent, experts: Moe, first: int = 0) -> Decoder:
    is_moe = first_dense(c, default=first)
    dense = None if all(is_moe(index) for index in range(c.num_layers())) else mlp(c)

    def block_of(index: int) -> Block:
        return Block(parts=(part, experts if dense is None or is_moe(index) else dense))

    return decoder(c, stack(c, block_of), rotary_dim=part.qk_rope_head_dim or None)


def minicpm3(c: Fields) -> Decoder:
    """MiniCPM3: latent weights, but all heads are cached, values as wide as keys."""
    values = c.size("v_head_dim", default=hidden_size(c) // num_heads(c))
    part = replace(latent(c, v_head_dim=values), caches_heads=True)
    return decoder(c, uniform(c, part, mlp(c)), rotary_dim=part.qk_rope_head_dim)
