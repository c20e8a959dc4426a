"""Older families: LayerNorms, fused qkv, MLPs without gate, position tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.models.errors import UnsupportedModel
from pytest_llmserve.models.families.common import (
    Decoder,
    attention,
    decoder,
    head_dim,
    hidden_size,
    layer_kinds,
    mlp,
    num_heads,
    stack,
    uniform,
    with_window,
)
from pytest_llmserve.models.parts import Attention, Block, Mlp
from pytest_llmserve.models.spec import Group, Weight

if TYPE_CHECKING:
    from pytest_llmserve.models.fields import Fields


def _four_times(c: Fields) -> int:
    """The MLP width where null means four times the hidden size."""
    found = c.optional_size("intermediate_size", "n_inner", "ffn_hidden_size")
    return found or 4 * hidden_size(c)


def _table(name: str, rows: int, cols: int) -> Weight:
    return Weight(name=name, group=Group.EMBEDDING, rows=rows, cols=cols, is_matmul=False)


def gpt2(c: Fields) -> Decoder:
    """GPT-2: biases everywhere, a position table."""
    return _gpt2_like(c, num_heads(c))


def gpt_bigcode(c: Fields) -> Decoder:
    """SantaCoder and StarCoder: GPT-2 with one KV head where multi_query is true."""
    found = _gpt2_like(c, 1 if c.flag("multi_query", default=True) else num_heads(c), whole=True)
    positions = c.size("n_positions", "max_position_embeddings", "n_ctx")
    # transformers keeps a mask of one byte for each pair of positions
    mask = Weight(
        name="transformer.bias",
        group=Group.OTHER,
        rows=positions,
        cols=positions,
        dtype_bits=8,
        is_matmul=False,
        is_parameter=False,
    )
    return replace(found, extra=(*found.extra, mask))


def _gpt2_like(c: Fields, kv_heads: int, *, whole: bool = False) -> Decoder:
    if c.flag("add_cross_attention"):
        raise UnsupportedModel(f"{c.file}: GPT-2 with cross attention is not understood")
    part = attention(c, num_kv_heads=kv_heads, has_qkv_bias=True, has_o_bias=True)
    width = _four_times(c)
    dense = Mlp(intermediate_size=width, is_gated=False, has_bias=True, is_replicated=whole)
    positions = c.size("n_positions", "max_position_embeddings", "n_ctx")
    return decoder(
        c,
        uniform(c, part, dense),
        names="gpt2",
        layers_path="transformer.h",
        has_norm_bias=True,
        extra=(_table("transformer.wpe", positions, hidden_size(c)),),
    )


def gptj(c: Fields) -> Decoder:
    """GPT-J: one norm a layer, attention without bias, a bias on the head."""
    part = attention(c, num_kv_heads=num_heads(c))
    dense = Mlp(intermediate_size=_four_times(c), is_gated=False, has_bias=True)
    return decoder(
        c,
        uniform(c, part, dense, norms=1),
        names="gptj",
        layers_path="transformer.h",
        has_norm_bias=True,
        has_lm_head_bias=True,
        rotary_dim=c.size("rotary_dim", default=64),
    )


def gpt_neox(c: Fields) -> Decoder:
    """GPT-NeoX, Pythia, RedPajama: biases, a quarter of each head rotates."""
    bias = c.flag("attention_bias", default=True)
    part = attention(c, num_kv_heads=num_heads(c), has_qkv_bias=bias, has_o_bias=bias)
    dense = mlp(c, is_gated=False, has_bias=True)
    return decoder(
        c,
        uniform(c, part, dense),
        names="gpt_neox",
        layers_path="gpt_neox.layers",
        has_norm_bias=True,
        rotary_dim=part.head_dim,
        rotary_partial_factor=c.number("rotary_pct", "partial_rotary_factor", default=0.25),
    )


def bloom(c: Fields) -> Decoder:
    """BLOOM: ALiBi, a norm after the embedding."""
    part = attention(c, num_kv_heads=num_heads(c), has_qkv_bias=True, has_o_bias=True)
    hidden = hidden_size(c)
    dense = Mlp(intermediate_size=4 * hidden, is_gated=False, has_bias=True)
    norm = "transformer.word_embeddings_layernorm"
    extra = tuple(
        Weight(name=name, group=Group.NORM, rows=hidden, is_matmul=False)
        for name in (norm, f"{norm}.bias")
    )
    return decoder(
        c,
        uniform(c, part, dense),
        names="bloom",
        layers_path="transformer.h",
        has_norm_bias=True,
        extra=extra,
    )


def opt(c: Fields) -> Decoder:
    """OPT: a position table with two spare rows; the 350M embeds at half width."""
    bias = c.flag("enable_bias", default=True)
    if not c.flag("layer_norm_elementwise_affine", default=True):
        raise UnsupportedModel(f"{c.file}: OPT with norms without weights is not understood")
    hidden = hidden_size(c)
    part = attention(c, num_kv_heads=num_heads(c), has_qkv_bias=bias, has_o_bias=bias)
    dense = Mlp(intermediate_size=c.size("ffn_dim"), is_gated=False, has_bias=bias)
    rows = c.size("max_position_embeddings") + 2
    extra = [_table("model.decoder.embed_positions", rows, hidden)]
    width = c.size("word_embed_proj_dim", default=hidden)
    if width != hidden:
        for name, shape in (("project_in", (hidden, width)), ("project_out", (width, hidden))):
            path = f"model.decoder.{name}"
            extra.append(Weight(name=path, group=Group.OTHER, rows=shape[0], cols=shape[1]))
    is_pre_norm = c.flag("do_layer_norm_before", default=True)
    return decoder(
        c,
        uniform(c, part, dense),
        names="opt",
        layers_path="model.decoder.layers",
        has_norm_bias=True,
        has_final_norm=is_pre_norm and not c.flag("_remove_final_layer_norm"),
        embedding_size=width if width != hidden else None,
        extra=tuple(extra),
    )


def mpt(c: Fields) -> Decoder:
    """MPT: ALiBi or a position table, norms without bias."""
    if not c.flag("no_bias", default=True):
        raise UnsupportedModel(f"{c.file}: MPT with biases is not understood")
    inner = c.nested("attn_config")
    if inner.flag("qk_ln"):
        raise UnsupportedModel(f"{c.file}: MPT with qk_ln is not understood")
    heads = num_heads(c)
    kv_heads = inner.size("kv_n_heads", default=heads)
    part = attention(c, num_kv_heads=kv_heads)
    hidden = hidden_size(c)
    width = c.size("expansion_ratio", default=4) * hidden
    has_alibi = inner.flag("alibi", default=True)
    table = _table("transformer.wpe", c.size("max_seq_len"), hidden)
    return decoder(
        c,
        uniform(c, part, Mlp(intermediate_size=width, is_gated=False)),
        is_tied=True,
        names="mpt",
        layers_path="transformer.blocks",
        extra=() if has_alibi else (table,),
    )


def starcoder2(c: Fields) -> Decoder:
    """StarCoder2: biases, LayerNorms; every layer slides where sliding_window is set."""
    bias = c.flag("use_bias", default=True)
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    part = with_window(part, c.optional_size("sliding_window"))
    dense = mlp(c, is_gated=False, has_bias=bias)
    return decoder(
        c,
        uniform(c, part, dense),
        names="starcoder2",
        has_norm_bias=True,
        rotary_dim=part.head_dim,
    )


def falcon(c: Fields) -> Decoder:
    """Falcon 7B, 40B, 180B and 2: num_kv_heads counts only in the new architecture."""
    is_new = c.flag("new_decoder_architecture")
    heads = num_heads(c)
    if is_new:
        kv_heads = c.optional_size("num_kv_heads", "n_head_kv") or heads
    else:
        kv_heads = 1 if c.flag("multi_query", default=True) else heads
    bias = c.flag("bias")
    part = attention(c, num_kv_heads=kv_heads, has_qkv_bias=bias, has_o_bias=bias)
    dense = Mlp(intermediate_size=_four_times(c), is_gated=False, has_bias=bias)
    norms = c.size("num_ln_in_parallel_attn", default=2)
    if not is_new:
        norms = 1 if c.flag("parallel_attn", default=True) else 2
    return decoder(
        c,
        uniform(c, part, dense, norms=norms),
        is_tied=c.flag("tie_word_embeddings", default=True),
        names="falcon",
        layers_path="transformer.h",
        has_norm_bias=True,
        rotary_dim=None if c.flag("alibi") else part.head_dim,
    )


def phi(c: Fields) -> Decoder:
    """Phi 1, 1.5 and 2: biases, one norm a layer, a bias on the head."""
    kv_heads = c.optional_size("num_key_value_heads", "n_head_kv") or num_heads(c)
    part = attention(c, num_kv_heads=kv_heads, has_qkv_bias=True, has_o_bias=True)
    if c.flag("qk_layernorm"):
        raise UnsupportedModel(f"{c.file}: Phi with qk_layernorm is not understood")
    dense = Mlp(intermediate_size=_four_times(c), is_gated=False, has_bias=True)
    partial = c.number("partial_rotary_factor", default=0.5)
    rotary = c.optional_size("rotary_dim")
    return decoder(
        c,
        uniform(c, part, dense, norms=1),
        names="phi",
        has_norm_bias=True,
        has_lm_head_bias=True,
        rotary_dim=rotary or part.head_dim,
        rotary_partial_factor=1.0 if rotary else partial,
    )


def phi3_small(c: Fields) -> Decoder:
    """Phi-3-small: biases, a gated MLP, tied; block-sparse attention keeps the whole cache."""
    part = attention(c, has_qkv_bias=True, has_o_bias=True)
    width = c.size("ff_intermediate_size", "intermediate_size")
    dense = Mlp(intermediate_size=width, has_bias=True)
    return decoder(
        c,
        uniform(c, part, dense),
        is_tied=c.flag("tie_word_embeddings", default=True),
        names="phi3_small",
        has_norm_bias=True,
        rotary_dim=part.head_dim,
    )


def stablelm(c: Fields) -> Decoder:
    """StableLM 3B and 2: LayerNorms, a gated MLP, a quarter of each head rotates."""
    part = attention(
        c,
        has_qkv_bias=c.flag("use_qkv_bias"),
        qk_norm="width_sharded" if c.flag("qk_layernorm") else None,
    )
    norms = 1 if c.flag("use_parallel_residual") else 2
    partial = c.number("partial_rotary_factor", "rope_pct", default=0.25)
    return decoder(
        c,
        uniform(c, part, mlp(c), norms=norms),
        has_norm_bias=True,
        rotary_dim=part.head_dim,
        rotary_partial_factor=partial,
    )


def cohere(c: Fields) -> Decoder:
    """Command-R and Aya: one norm a layer, tied."""
    bias = c.flag("attention_bias")
    norm = "width_sharded" if c.flag("use_qk_norm") else None
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm=norm)
    blocks = uniform(c, part, mlp(c), norms=1)
    return decoder(c, blocks, is_tied=True, rotary_dim=part.head_dim)


def cohere2(c: Fields) -> Decoder:
    """Command-R7B and Command-A: each sliding_window_pattern-th layer is full."""
    bias = c.flag("attention_bias")
    full = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    window = c.optional_size("sliding_window")
    kinds = layer_kinds(c)
    period = c.size("sliding_window_pattern", "_sliding_window_pattern", default=4)
    dense = mlp(c)

    def block_of(index: int) -> Block:
        slides = (index + 1) % period != 0
        if kinds is not None:
            slides = kinds[index] == "sliding_attention"
        return Block(parts=(with_window(full, window if slides else None), dense), norms=1)

    return decoder(c, stack(c, block_of), is_tied=True, rotary_dim=full.head_dim)


def chatglm(c: Fields) -> Decoder:
    """ChatGLM 2 and 3, GLM-4-9B: KV heads by multi_query_group_num, untied head."""
    if not c.flag("rmsnorm", default=True) or not c.flag("post_layer_norm", default=True):
        raise UnsupportedModel(f"{c.file}: ChatGLM without RMSNorm is not understood")
    heads = num_heads(c)
    is_grouped = c.flag("multi_query_attention")
    bias = c.flag("add_bias_linear")
    dim = c.size("kv_channels", default=head_dim(c))
    part = Attention(
        num_heads=heads,
        num_kv_heads=c.size("multi_query_group_num") if is_grouped else heads,
        head_dim=dim,
        has_qkv_bias=bias or c.flag("add_qkv_bias"),
        has_o_bias=bias,
    )
    dense = Mlp(intermediate_size=c.size("ffn_hidden_size"), has_bias=bias)
    return decoder(
        c,
        uniform(c, part, dense),
        names="chatglm",
        layers_path="transformer.encoder.layers",
        rotary_dim=dim,
        rotary_partial_factor=0.5,
    )
