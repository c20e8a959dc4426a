"""State spaces: Mamba 1 and 2, alone or beside attention."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.errors import MISSING, UnsupportedModel
from pytest_llmserve.models.families.common import (
    Decoder,
    attention,
    decoder,
    grouped,
    hidden_size,
    layer_kinds,
    mlp,
    moe,
    num_experts,
    stack,
    uniform,
)
from pytest_llmserve.models.parts import Block, Mlp, Part
from pytest_llmserve.models.state_parts import Mamba1, Mamba2

if TYPE_CHECKING:
    from pytest_llmserve.models.fields import Fields

_FLOAT32: Final = 32
_BITS: Final = {"float32": 32, "bfloat16": 16, "float16": 16}
_LINEAR: Final = frozenset(("mamba", "linear_attention", "conv"))
_FULL: Final = frozenset(("attention", "full_attention", "hybrid"))


def state_bits(c: Fields, key: str, default: int | None = None) -> int | None:
    """The width that a config asks for the recurrent state."""
    found = c.text(key)
    if found is None or found == "auto":
        return default
    if found not in _BITS:
        raise c.bad(key, found, "float32, bfloat16 or float16")
    return _BITS[found]


def is_state(c: Fields, key: str, kind: str) -> bool:
    """Whether a layer's word names a recurrent layer."""
    if kind not in _LINEAR | _FULL:
        raise c.bad(key, kind, f"one of {', '.join(sorted(_LINEAR | _FULL))}")
    return kind in _LINEAR


def _mamba2(c: Fields, state_dtype_bits: int | None = None) -> Mamba2:
    """Mamba 2 under the names of Granite 4 H, Bamba and Falcon-H1."""
    heads = c.size("mamba_n_heads")
    inner = c.optional_size("mamba_d_ssm") or c.size("mamba_expand") * hidden_size(c)
    dim = inner // heads if c.is_auto("mamba_d_head") else c.size("mamba_d_head")
    if heads * dim != inner:
        raise c.bad("mamba_d_head", dim, f"{inner} / mamba_n_heads ({heads})")
    return Mamba2(
        num_heads=heads,
        head_dim=dim,
        state_size=c.size("mamba_d_state"),
        num_groups=c.size("mamba_n_groups"),
        conv_kernel=c.size("mamba_d_conv"),
        has_conv_bias=c.flag("mamba_conv_bias", default=True),
        has_bias=c.flag("mamba_proj_bias"),
        state_dtype_bits=state_dtype_bits,
        chunk_size=c.optional_size("mamba_chunk_size"),
    )


def nemotron_h(c: Fields) -> Decoder:
    """Nemotron-H and Nemotron 3: one mixer a layer, named by a pattern of letters or words."""
    kinds = _nemotron_kinds(c)
    heads, dim = c.size("mamba_num_heads"), c.size("mamba_head_dim")
    mamba = Mamba2(
        num_heads=heads,
        head_dim=dim,
        state_size=c.size("ssm_state_size", "mamba_d_state"),
        num_groups=c.size("n_groups", "mamba_n_groups"),
        conv_kernel=c.size("conv_kernel", "mamba_d_conv"),
        has_conv_bias=c.flag("use_conv_bias", "mamba_conv_bias", default=True),
        has_bias=c.flag("use_bias", "mamba_proj_bias"),
        state_dtype_bits=state_bits(c, "mamba_ssm_cache_dtype", _FLOAT32),
        chunk_size=c.optional_size("chunk_size", "mamba_chunk_size"),
    )
    bias = c.flag("attention_bias")
    parts: dict[str, Part] = {
        "mamba": mamba,
        "attention": attention(c, has_qkv_bias=bias, has_o_bias=bias),
    }
    if "mlp" in kinds:
        parts["mlp"] = _nemotron_mlp(c)
    if "moe" in kinds:
        parts["moe"] = moe(
            c,
            is_gated=False,
            has_correction_bias=True,
            latent_size=c.optional_size("moe_latent_size"),
            shared_intermediate_size=c.count("n_shared_experts", default=1)
            * c.count("moe_shared_expert_intermediate_size", default=0),
        )
    blocks = grouped([Block(parts=(parts[kind],), norms=1) for kind in kinds])
    return decoder(c, blocks, names="nemotron_h", layers_path="backbone.layers")


def _nemotron_mlp(c: Fields) -> Mlp:
    width = c.size("intermediate_size")
    return Mlp(intermediate_size=width, is_gated=False, has_bias=c.flag("mlp_bias"))


_LETTERS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS: Final = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}


def _nemotron_kinds(c: Fields) -> list[str]:
    words = c.items("layers_block_type", "layer_types")
    if words is not None:
        table, found, key = _WORDS, list(words), "layers_block_type"
    else:
        table, found, key = (
            _LETTERS,
            list(c.text("hybrid_override_pattern") or ""),
            ("hybrid_override_pattern"),
        )
    if not found:
        raise c.bad("hybrid_override_pattern", MISSING, "a letter (M, *, -, E) for each layer")
    for kind in found:
        if not isinstance(kind, str) or kind not in table:
            raise c.bad(key, kind, f"one of {', '.join(table)}")
    layers = c.optional_size("num_hidden_layers")
    if layers is not None and layers != len(found):
        raise c.bad(key, f"{len(found)} layers", f"num_hidden_layers = {layers}")
    return [table[kind] for kind in found]


def granite_hybrid(c: Fields) -> Decoder:
    """Granite 4: Mamba 2 and attention layers, experts where there are any, a shared MLP."""
    kinds = layer_kinds(c) or layer_kinds(c, "layers_block_type")
    if kinds is None:
        raise c.bad("layer_types", MISSING, "mamba or attention for each layer")
    bias = c.flag("attention_bias")
    full = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    mamba = _mamba2(c) if any(is_state(c, "layer_types", kind) for kind in kinds) else None
    width = c.size("shared_intermediate_size")
    body: Part = Mlp(intermediate_size=width)
    if num_experts(c):
        inner = c.size("intermediate_size")
        body = moe(c, intermediate_size=inner, shared_intermediate_size=width)

    def block_of(index: int) -> Block:
        mixer = mamba if is_state(c, "layer_types", kinds[index]) else full
        return Block(parts=(mixer or full, body))

    has_rope = c.text("position_embedding_type") == "rope"
    return decoder(
        c,
        stack(c, block_of),
        names="granite_hybrid",
        rotary_dim=full.head_dim if has_rope else None,
    )


def falcon_h1(c: Fields) -> Decoder:
    """Falcon-H1: attention and Mamba 2 side by side in every layer."""
    bias = c.flag("attention_bias")
    full = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    mamba = replace(_mamba2(c), has_gate_norm=c.flag("mamba_rms_norm"))
    if mamba.has_bias != c.flag("projectors_bias"):
        raise UnsupportedModel(f"{c.file}: mamba_proj_bias and projectors_bias differ")
    dense = mlp(c, has_bias=c.flag("mlp_bias"))
    blocks = uniform(c, full, mamba, dense)
    return decoder(c, blocks, names="falcon_h1", rotary_dim=full.head_dim)


def bamba(c: Fields) -> Decoder:
    """Bamba: Mamba 2 but for the layers in attn_layer_indices."""
    bias = c.flag("attention_bias")
    full = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    mamba = _mamba2(c)
    attends = set(c.integers("attn_layer_indices") or ())
    dense = mlp(c, has_bias=c.flag("mlp_bias"))

    def block_of(index: int) -> Block:
        return Block(parts=(full if index in attends else mamba, dense))

    partial = c.number("partial_rotary_factor", default=0.5)
    return decoder(
        c,
        stack(c, block_of),
        names="falcon_h1",
        rotary_dim=full.head_dim,
        rotary_partial_factor=partial,
    )


def mamba2(c: Fields) -> Decoder:
    """Mamba 2: nothing else."""
    heads, dim = c.size("num_heads"), c.size("head_dim")
    inner = c.size("expand") * hidden_size(c)
    if heads * dim != inner:
        raise c.bad("num_heads", heads, f"expand x hidden_size ({inner}) / head_dim ({dim})")
    part = Mamba2(
        num_heads=heads,
        head_dim=dim,
        state_size=c.size("state_size"),
        num_groups=c.size("n_groups"),
        conv_kernel=c.size("conv_kernel"),
        has_conv_bias=c.flag("use_conv_bias", default=True),
        has_bias=c.flag("use_bias"),
        chunk_size=c.optional_size("chunk_size"),
    )
    blocks = uniform(c, part, norms=1)
    return decoder(c, blocks, names="mamba", layers_path="backbone.layers")


def mamba1(c: Fields) -> Decoder:
    """Mamba and Falcon-Mamba; intermediate_size counts before expand."""
    hidden = hidden_size(c)
    inner = c.optional_size("intermediate_size") or c.size("expand") * hidden
    part = Mamba1(
        intermediate_size=inner,
        state_size=c.size("state_size"),
        time_step_rank=ceil(hidden / 16)
        if c.is_auto("time_step_rank")
        else c.size("time_step_rank"),
        conv_kernel=c.size("conv_kernel"),
        has_conv_bias=c.flag("use_conv_bias", default=True),
        has_bias=c.flag("use_bias"),
    )
    blocks = uniform(c, part, norms=1)
    return decoder(c, blocks, names="mamba", layers_path="backbone.layers")


def jamba(c: Fields) -> Decoder:
    """Jamba: Mamba 1, each eighth layer attends, each second routes."""
    hidden = hidden_size(c)
    state = Mamba1(
        intermediate_size=c.size("mamba_expand") * hidden,
        state_size=c.size("mamba_d_state"),
        time_step_rank=ceil(hidden / 16) if c.is_auto("mamba_dt_rank") else c.size("mamba_dt_rank"),
        conv_kernel=c.size("mamba_d_conv"),
        has_conv_bias=c.flag("mamba_conv_bias", default=True),
        has_bias=c.flag("mamba_proj_bias"),
        has_inner_norms=True,
    )
    full = attention(c)
    dense = mlp(c)
    experts = moe(c, intermediate_size=dense.intermediate_size) if num_experts(c) > 1 else None
    attends = (c.size("attn_layer_period"), c.count("attn_layer_offset"))
    routes = (c.size("expert_layer_period"), c.count("expert_layer_offset"))

    def block_of(index: int) -> Block:
        mixer = full if index % attends[0] == attends[1] else state
        is_routed = experts is not None and index % routes[0] == routes[1]
        return Block(parts=(mixer, experts if experts is not None and is_routed else dense))

    return decoder(c, stack(c, block_of), names="jamba")
