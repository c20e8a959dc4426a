"""Llama and what is shaped like it: q, k, v, o, a gated MLP and two norms.

Weights of each family: vLLM 0.32 (design notes, section 6.7) and transformers 5.24, whose
parameter counts the benchmark holds these against.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
from pytest_llmserve.models.parts import Attention, Block, Extra, Mlp, Part
from pytest_llmserve.models.spec import Group, Weight

if TYPE_CHECKING:
    from pytest_llmserve.models.fields import Fields


def llama(c: Fields) -> Decoder:
    """Llama, Yi, TinyLlama, Vicuna, Falcon 3, SmolLM 1 and 2, Granite, Arctic-free Llamas."""
    bias = c.flag("attention_bias", "bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    return _plain(c, part, mlp(c, has_bias=c.flag("mlp_bias")))


def mistral(c: Fields) -> Decoder:
    """Mistral: every layer slides where sliding_window is not null (absent: the class has 4096)."""
    window = c.optional_size("sliding_window")
    part = attention(c)
    kinds = layer_kinds(c)
    if kinds is None:
        return _plain(c, with_window(part, window), mlp(c))
    return _alternating(c, part, mlp(c), kinds, window)


def qwen2(c: Fields) -> Decoder:
    """Qwen 1.5, 2 and 2.5, QwQ: bias on q, k and v; slides only with use_sliding_window."""
    part = attention(c, has_qkv_bias=True)
    kinds = qwen_kinds(c)
    return _alternating(c, part, mlp(c), kinds, c.optional_size("sliding_window"))


def qwen3(c: Fields) -> Decoder:
    """Qwen3 dense: a norm on each query and key head."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm="head")
    return _alternating(c, part, mlp(c), qwen_kinds(c), c.optional_size("sliding_window"))


def qwen_kinds(c: Fields) -> list[str]:
    """Full attention unless use_sliding_window is true, then from max_window_layers on."""
    kinds = layer_kinds(c)
    if not c.flag("use_sliding_window") or c.optional_size("sliding_window") is None:
        return ["full_attention"] * c.num_layers()
    if kinds is not None:
        return list(kinds)
    first = c.count("max_window_layers", default=0)
    return [
        "sliding_attention" if index >= first else "full_attention"
        for index in range(c.num_layers())
    ]


def phi3(c: Fields) -> Decoder:
    """Phi-3, 3.5 and 4: every layer slides whenever sliding_window is not null."""
    part = with_window(attention(c), c.optional_size("sliding_window"))
    partial = c.number("partial_rotary_factor", default=1.0)
    return _plain(c, part, mlp(c), names="phi3", rotary_partial_factor=partial)


def exaone4(c: Fields) -> Decoder:
    """EXAONE 4: q and k norms per head, slides by layer_types or its pattern."""
    part = attention(c, qk_norm="head")
    kinds = layer_kinds(c)
    window = c.optional_size("sliding_window")
    if kinds is None:
        kinds = pattern_kinds(c, window)
    return _alternating(c, part, mlp(c), kinds, window)


def pattern_kinds(c: Fields, window: int | None) -> list[str]:
    """``sliding_window_pattern`` as a number (each n-th layer is full) or as ``LLLG``."""
    pattern = c.value("sliding_window_pattern")
    layers = c.num_layers()
    if window is None or pattern is None:
        return ["full_attention"] * layers
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        letters = [pattern[index % len(pattern)] for index in range(layers)]
        letters[-1] = "G"
        return ["full_attention" if letter == "G" else "sliding_attention" for letter in letters]
    period = c.size("sliding_window_pattern")
    return [
        "full_attention"
        if (index + 1) % period == 0 or index == layers - 1
        else "sliding_attention"
        for index in range(layers)
    ]


def exaone(c: Fields) -> Decoder:
    """EXAONE 3: Llama under GPT-2's names; its layer count may be called num_layers."""
    width = c.size("intermediate_size")
    blocks = uniform(c, attention(c), Mlp(intermediate_size=width))
    return decoder(c, blocks, names="exaone", layers_path="transformer.h", rotary_dim=head_dim(c))


def olmo2(c: Fields) -> Decoder:
    """OLMo 2 and 3: norms over all query and all key heads; 3 slides by layer_types."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm="width")
    kinds = layer_kinds(c)
    if kinds is None and c.optional_size("sliding_window") is not None:
        full = "full_attention"
        kinds = [full if index % 4 == 3 else "sliding_attention" for index in range(c.num_layers())]
    return _alternating(c, part, mlp(c), kinds, c.optional_size("sliding_window"))


def olmo(c: Fields) -> Decoder:
    """OLMo 1: norms without weights."""
    bias = c.flag("attention_bias")
    blocks = uniform(c, attention(c, has_qkv_bias=bias, has_o_bias=bias), mlp(c), norms=0)
    return decoder(c, blocks, has_final_norm=False, rotary_dim=head_dim(c))


def seed_oss(c: Fields) -> Decoder:
    """Seed-OSS: a bias on q, k and v and its own flag for o."""
    part = attention(
        c, has_qkv_bias=c.flag("attention_bias"), has_o_bias=c.flag("attention_out_bias")
    )
    return _plain(c, part, mlp(c, has_bias=c.flag("mlp_bias")))


def smollm3(c: Fields) -> Decoder:
    """SmolLM3: Llama with some layers without rotary positions."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    dense = mlp(c, has_bias=c.flag("mlp_bias"))
    return _alternating(c, part, dense, qwen_kinds(c), c.optional_size("sliding_window"))


def glm(c: Fields) -> Decoder:
    """GLM-4 in transformers' form: bias on q, k and v; half of each head rotates."""
    part = attention(c, has_qkv_bias=c.flag("attention_bias"))
    return _plain(c, part, mlp(c), names="glm4", rotary_partial_factor=_half(c))


def glm4(c: Fields) -> Decoder:
    """GLM-4-0414 and GLM-Z1: four norms a layer."""
    part = attention(c, has_qkv_bias=c.flag("attention_bias"))
    blocks = uniform(c, part, mlp(c), norms=4)
    return decoder(c, blocks, names="glm4", rotary_dim=head_dim(c), rotary_partial_factor=_half(c))


def _half(c: Fields) -> float:
    return c.number("partial_rotary_factor", default=0.5)


def ernie(c: Fields) -> Decoder:
    """ERNIE 4.5 dense: one flag for all biases."""
    bias = c.flag("use_bias")
    return _plain(c, attention(c, has_qkv_bias=bias, has_o_bias=bias), mlp(c, has_bias=bias))


def hunyuan_dense(c: Fields) -> Decoder:
    """Hunyuan dense: q and k norms per head."""
    bias = c.flag("attention_bias")
    has_norm = c.flag("use_qk_norm", default=True)
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm="head" if has_norm else None)
    return _plain(c, part, mlp(c, has_bias=c.flag("mlp_bias")), names="hunyuan")


def nemotron(c: Fields) -> Decoder:
    """Nemotron 4 and Minitron: LayerNorms, an MLP without gate."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    dense = mlp(c, has_bias=c.flag("mlp_bias"), is_gated=False)
    return _plain(c, part, dense, has_norm_bias=True, rotary_partial_factor=_half(c))


def arcee(c: Fields) -> Decoder:
    """Arcee AFM: Llama with an MLP without gate."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    return _plain(c, part, mlp(c, has_bias=c.flag("mlp_bias"), is_gated=False))


def apertus(c: Fields) -> Decoder:
    """Apertus: q and k norms, an MLP without gate whose activation has two numbers."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm="head")
    numbers = Extra(shapes=(("mlp.act_fn.alpha_p", 1, 1), ("mlp.act_fn.alpha_n", 1, 1)))
    blocks = uniform(c, part, mlp(c, is_gated=False), numbers)
    return decoder(c, blocks, rotary_dim=part.head_dim)


def internlm(c: Fields) -> Decoder:
    """InternLM 1: ``bias`` stands for q, k, v and o."""
    bias = c.flag("bias", default=True)
    return _plain(c, attention(c, has_qkv_bias=bias, has_o_bias=bias), mlp(c))


def internlm2(c: Fields) -> Decoder:
    """InternLM 2, 2.5 and 3: Llama under other names."""
    bias = c.flag("bias", "qkv_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    return _plain(c, part, mlp(c), names="internlm2")


def baichuan(c: Fields) -> Decoder:
    """Baichuan 1 and 2: fused qkv."""
    return _plain(c, attention(c, num_kv_heads=num_heads(c)), mlp(c), names="baichuan")


def orion(c: Fields) -> Decoder:
    """Orion: Llama with LayerNorms."""
    return _plain(c, attention(c), mlp(c), has_norm_bias=True)


def qwen1(c: Fields) -> Decoder:
    """Qwen 1: intermediate_size is twice the real width; bias on qkv only."""
    part = attention(c, num_kv_heads=num_heads(c), head_dim=c.optional_size("kv_channels"))
    doubled = c.size("intermediate_size")
    blocks = uniform(c, part, Mlp(intermediate_size=doubled // 2))
    has_bias = not c.flag("no_bias", default=True)
    if has_bias:
        raise c.bad("no_bias", False, "true (the released models)")
    parts: tuple[Part, ...] = (_with_qkv_bias(part), Mlp(intermediate_size=doubled // 2))
    blocks = uniform(c, *parts)
    return decoder(c, blocks, names="qwen", layers_path="transformer.h", rotary_dim=part.head_dim)


def _with_qkv_bias(part: Attention) -> Attention:
    return Attention(
        num_heads=part.num_heads,
        num_kv_heads=part.num_kv_heads,
        head_dim=part.head_dim,
        has_qkv_bias=True,
    )


def mllama(c: Fields) -> Decoder:
    """Llama 3.2 Vision: some layers attend to images, behind two gates; eight more embeddings."""
    part, dense = attention(c), mlp(c)
    cross = replace(part, is_cross=True, qk_norm="head")
    gates = Extra(shapes=(("cross_attn_attn_gate", 1, 1), ("cross_attn_mlp_gate", 1, 1)))
    listed = c.integers("cross_attention_layers")
    at = set(range(3, c.num_layers(), 5) if listed is None else listed)

    def block_of(index: int) -> Block:
        return Block(parts=(cross, dense, gates) if index in at else (part, dense))

    spare = Weight(
        name="model.embed_tokens (image tokens)",
        group=Group.EMBEDDING,
        rows=8,
        cols=hidden_size(c),
        is_matmul=False,
    )
    return decoder(
        c,
        stack(c, block_of),
        extra=(spare,),
        rotary_dim=part.head_dim,
        unsupported=("keys and values of images in the cross-attention layers",),
    )


def minicpm(c: Fields) -> Decoder:
    """MiniCPM 1, 2 and 4: Llama with scaled residuals."""
    bias = c.flag("attention_bias")
    return _plain(c, attention(c, has_qkv_bias=bias, has_o_bias=bias), mlp(c))


def _plain(c: Fields, part: Attention, dense: Mlp, **changes: object) -> Decoder:
    changes.setdefault("rotary_dim", part.head_dim)
    return decoder(c, uniform(c, part, dense), **changes)


def _alternating(
    c: Fields,
    part: Attention,
    dense: Mlp,
    kinds: object,
    window: int | None,
    norms: int = 2,
) -> Decoder:
    """Layers that slide and layers that do not, by their words."""
    blocks = stack(c, lambda index: _block(c, part, dense, kinds, window, index, norms))
    return decoder(c, blocks, rotary_dim=part.head_dim)


def _block(
    c: Fields,
    part: Attention,
    dense: Mlp,
    kinds: object,
    window: int | None,
    index: int,
    norms: int,
) -> Block:
    kind = kinds[index] if isinstance(kinds, list | tuple) else "full_attention"
    if kind not in {"full_attention", "sliding_attention"}:
        raise c.bad("layer_types", kind, "full_attention or sliding_attention")
    slides = kind == "sliding_attention"
    if slides and window is None:
        raise c.bad("sliding_window", None, "a window for the layers that slide")
    return Block(parts=(with_window(part, window if slides else None), dense), norms=norms)
