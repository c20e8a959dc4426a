"""Mixtures of experts on grouped-query attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.models.errors import UnsupportedModel
from pytest_llmserve.models.families.common import (
    Decoder,
    attention,
    decoder,
    flags_of,
    layer_kinds,
    mlp,
    moe,
    num_experts,
    stack,
    uniform,
    with_window,
)
from pytest_llmserve.models.families.llama import pattern_kinds, qwen_kinds
from pytest_llmserve.models.parts import Attention, Block, Mlp, Moe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_llmserve.models.fields import Fields

_FLOAT32: Final = 32


def mixtral(c: Fields) -> Decoder:
    """Mixtral: every layer routes."""
    part = with_window(attention(c), c.optional_size("sliding_window"))
    experts = moe(c, intermediate_size=c.size("intermediate_size"))
    return decoder(c, uniform(c, part, experts), names="mixtral", rotary_dim=part.head_dim)


def sparse_step(c: Fields) -> Callable[[int], bool]:
    """Qwen: each decoder_sparse_step-th layer routes, but those in mlp_only_layers."""
    step = c.size("decoder_sparse_step", default=1)
    dense = set(c.integers("mlp_only_layers") or ())
    return lambda index: index not in dense and (index + 1) % step == 0


def first_dense(c: Fields, default: int = 0) -> Callable[[int], bool]:
    """DeepSeek: after the first k layers each moe_layer_freq-th routes; a list says it outright."""
    kinds = layer_kinds(c, "mlp_layer_types")
    if kinds is not None:
        return lambda index: kinds[index] == "sparse"
    if isinstance(c.value("moe_layer_freq"), list):
        flags = flags_of(c, "moe_layer_freq", c.num_layers()) or ()
        return lambda index: bool(flags[index])
    first = c.count("first_k_dense_replace", default=default)
    step = c.size("moe_layer_freq", default=1)
    return lambda index: index >= first and index % step == 0


def routed(
    c: Fields, part: Attention, experts: Moe, is_moe: Callable[[int], bool], **changes: Any
) -> Decoder:
    """Layers that route and layers with a dense MLP, all with the same attention."""
    layers = range(c.num_layers())
    dense = None if all(is_moe(index) for index in layers) else mlp(c)

    def block_of(index: int) -> Block:
        return Block(parts=(part, experts if dense is None or is_moe(index) else dense))

    changes.setdefault("rotary_dim", part.head_dim)
    return decoder(c, stack(c, block_of), **changes)


def qwen2_moe(c: Fields) -> Decoder:
    """Qwen 1.5 and 2 MoE: a shared expert behind a gate; bias on q, k and v."""
    shared = c.size("shared_expert_intermediate_size")
    experts = moe(c, shared_intermediate_size=shared, has_shared_gate=True)
    part = attention(c, has_qkv_bias=c.flag("qkv_bias", default=True))
    return routed(c, _qwen_window(c, part), experts, sparse_step(c), names="qwen2_moe")


def qwen3_moe(c: Fields) -> Decoder:
    """Qwen3 MoE: no shared expert."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm="head")
    return routed(c, _qwen_window(c, part), moe(c), sparse_step(c))


def qwen3_moe_fused(c: Fields) -> Decoder:
    """The text part of Qwen3-VL-MoE: the same with experts stored as one tensor."""
    part = attention(c, qk_norm="head")
    return routed(c, part, moe(c), sparse_step(c), names="fused_experts")


def _qwen_window(c: Fields, part: Attention) -> Attention:
    kinds = set(qwen_kinds(c))
    if kinds == {"full_attention"}:
        return part
    if len(kinds) > 1:
        raise UnsupportedModel(f"{c.file}: layers that slide beside full ones in a Qwen MoE")
    return with_window(part, c.optional_size("sliding_window"))


def olmoe(c: Fields) -> Decoder:
    """OLMoE: norms over all query and all key heads."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm="width")
    blocks = uniform(c, part, moe(c))
    return decoder(c, blocks, rotary_dim=part.head_dim)


def phimoe(c: Fields) -> Decoder:
    """Phi-3.5-MoE: LayerNorms, a bias on the head."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    part = with_window(part, c.optional_size("sliding_window"))
    blocks = uniform(c, part, moe(c, intermediate_size=c.size("intermediate_size")))
    return decoder(
        c,
        blocks,
        names="mixtral",
        has_norm_bias=True,
        has_lm_head_bias=c.flag("lm_head_bias"),
        rotary_dim=part.head_dim,
    )


def gpt_oss(c: Fields) -> Decoder:
    """gpt-oss: biases everywhere, a sink per head, every second layer slides."""
    bias = c.flag("attention_bias", default=True)
    full = attention(c, has_qkv_bias=bias, has_o_bias=bias, has_sinks=True)
    window = c.optional_size("sliding_window")
    kinds = layer_kinds(c)
    experts = moe(
        c,
        intermediate_size=c.size("intermediate_size"),
        has_bias=True,
        has_router_bias=True,
    )

    def block_of(index: int) -> Block:
        slides = kinds[index] == "sliding_attention" if kinds else index % 2 == 0
        return Block(parts=(with_window(full, window if slides else None), experts))

    return decoder(
        c,
        stack(c, block_of),
        names="gpt_oss",
        rotary_dim=full.head_dim,
        rotary_dtype_bits=_FLOAT32,
    )


def ernie_moe(c: Fields) -> Decoder:
    """ERNIE 4.5 MoE: dense before the start index; shared experts; a float32 router."""
    bias = c.flag("use_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    width = c.size("moe_intermediate_size")
    experts = moe(
        c,
        has_router_bias=True,
        router_dtype_bits=_FLOAT32,
        shared_intermediate_size=c.count("moe_num_shared_experts", default=0) * width,
    )
    start = c.count("moe_layer_start_index", default=0)
    end = c.value("moe_layer_end_index")
    is_open = end is None or end == -1
    last = c.num_layers() - 1 if is_open else c.count("moe_layer_end_index")
    step = c.size("moe_layer_interval", default=1)
    return routed(c, part, experts, lambda i: start <= i <= last and (i + 1) % step == 0)


def glm4_moe(c: Fields) -> Decoder:
    """GLM-4.5 to 4.7: a float32 router with a correction bias, a shared expert."""
    norm = "head" if c.flag("use_qk_norm") else None
    part = attention(c, has_qkv_bias=c.flag("attention_bias"), qk_norm=norm)
    width = c.size("moe_intermediate_size")
    experts = moe(
        c,
        has_correction_bias=True,
        router_dtype_bits=_FLOAT32,
        shared_intermediate_size=c.count("n_shared_experts", default=0) * width,
    )
    partial = c.number("partial_rotary_factor", default=0.5)
    return routed(c, part, experts, first_dense(c), rotary_partial_factor=partial)


def dots1(c: Fields) -> Decoder:
    """dots.llm1: q and k norms per head, a shared expert."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm="head")
    shared = c.count("n_shared_experts", default=0) * c.size("moe_intermediate_size")
    experts = moe(c, has_correction_bias=True, shared_intermediate_size=shared)
    return routed(c, part, experts, first_dense(c))


def deepseek_moe(c: Fields) -> Decoder:
    """DeepSeek-MoE 16B, the first one: plain attention."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    shared = c.count("n_shared_experts", default=0) * c.size("moe_intermediate_size")
    return routed(c, part, moe(c, shared_intermediate_size=shared), first_dense(c))


def bailing(c: Fields) -> Decoder:
    """Ling 1 and 2: fused qkv, shared experts."""
    norm = "head" if c.flag("use_qk_norm") else None
    part = attention(
        c, has_qkv_bias=c.flag("use_qkv_bias"), has_o_bias=c.flag("use_bias"), qk_norm=norm
    )
    shared = c.count("num_shared_experts", default=0) * c.size("moe_intermediate_size")
    has_bias = c.flag("moe_router_enable_expert_bias")
    experts = moe(c, shared_intermediate_size=shared, has_correction_bias=has_bias)
    return routed(c, part, experts, first_dense(c), names="bailing")


def minimax_m2(c: Fields) -> Decoder:
    """MiniMax M2: norms over all heads, divided like them; a float32 router, no shared expert."""
    norm = "width_sharded" if c.flag("use_qk_norm", default=True) else None
    part = attention(c, qk_norm=norm)
    experts = moe(
        c,
        intermediate_size=c.size("intermediate_size"),
        has_correction_bias=True,
        router_dtype_bits=_FLOAT32,
    )
    rotary = c.size("rotary_dim", default=part.head_dim)
    return decoder(c, uniform(c, part, experts), names="mixtral", rotary_dim=rotary)


def minimax_m1(c: Fields) -> Decoder:
    """MiniMax-Text-01 and M1: lightning attention, each eighth layer softmax."""
    from pytest_llmserve.models.state_parts import Lightning

    layers = c.num_layers()
    kinds = flags_of(c, "attn_type_list", layers) or _m1_kinds(c)
    part = attention(c)
    fast = Lightning(num_heads=part.num_heads, head_dim=part.head_dim)
    experts = moe(c, intermediate_size=c.size("intermediate_size"))
    if c.count("shared_intermediate_size", default=0):
        raise UnsupportedModel(f"{c.file}: a MiniMax M1 with shared experts is not understood")

    def block_of(index: int) -> Block:
        return Block(parts=(part if kinds[index] else fast, experts))

    rotary = c.size("rotary_dim", default=part.head_dim)
    return decoder(c, stack(c, block_of), names="minimax_m1", rotary_dim=rotary)


def _m1_kinds(c: Fields) -> Sequence[int]:
    words = layer_kinds(c)
    if words is None:
        raise c.bad("attn_type_list", None, "a list of 0 (lightning) and 1 (softmax)")
    return [int(word == "full_attention") for word in words]


def granite_moe(c: Fields) -> Decoder:
    """Granite 3 MoE, with a shared MLP where the file has one."""
    bias = c.flag("attention_bias")
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    experts = moe(
        c,
        intermediate_size=c.size("intermediate_size"),
        shared_intermediate_size=c.count("shared_intermediate_size", default=0),
    )
    blocks = uniform(c, part, experts)
    return decoder(c, blocks, names="granitemoe", rotary_dim=part.head_dim)


def llama4(c: Fields) -> Decoder:
    """Llama 4: each interleave_moe_layer_step-th layer routes; chunked but where rope is off."""
    bias = c.flag("attention_bias")
    full = attention(c, has_qkv_bias=bias, has_o_bias=bias)
    chunk = c.optional_size("attention_chunk_size")
    width = c.size("intermediate_size")
    experts = moe(c, intermediate_size=width, shared_intermediate_size=width)
    dense = Mlp(intermediate_size=c.size("intermediate_size_mlp"))
    layers = c.num_layers()
    listed = c.integers("moe_layers")
    step = c.size("interleave_moe_layer_step", default=1)
    moe_layers = set(range(step - 1, layers, step) if listed is None else listed)
    no_rope = flags_of(c, "no_rope_layers", layers) if c.items("no_rope_layers") else None
    period = c.size("no_rope_layer_interval", default=4)

    def block_of(index: int) -> Block:
        has_rope = bool(no_rope[index]) if no_rope else (index + 1) % period != 0
        part = with_window(full, chunk if has_rope else None, is_chunked=True)
        return Block(parts=(part, experts if index in moe_layers else dense))

    return decoder(c, stack(c, block_of), names="llama4", rotary_dim=full.head_dim)


def hunyuan_moe(c: Fields) -> Decoder:
    """Hunyuan-Large, A13B and Hunyuan MoE: lists where others have numbers."""
    if c.flag("use_cla"):
        raise UnsupportedModel(f"{c.file}: cross-layer attention (use_cla) is not understood")
    bias = c.flag("attention_bias")
    norm = "head" if c.flag("use_qk_norm", default=True) else None
    part = attention(c, has_qkv_bias=bias, has_o_bias=bias, qk_norm=norm)
    experts = num_experts(c)
    skipped = c.count("moe_layer_num_skipped", default=0)
    is_mixed = c.flag("use_mixed_mlp_moe", default=True)

    def block_of(index: int) -> Block:
        if experts < 2 or index < skipped:
            return Block(parts=(part, mlp(c)))
        width = _at(c, ("moe_intermediate_size", "intermediate_size"), index)
        shared = _at(c, ("num_shared_expert",), index, default=1) if is_mixed else 0
        routing = Moe(
            num_experts=experts,
            num_experts_per_tok=_at(c, ("moe_topk", "num_experts_per_tok"), index),
            intermediate_size=width,
            shared_intermediate_size=shared * width,
        )
        return Block(parts=(part, routing))

    blocks = stack(c, block_of)
    return decoder(c, blocks, names="hunyuan", rotary_dim=part.head_dim)


def _at(c: Fields, keys: tuple[str, ...], index: int, default: int | None = None) -> int:
    """A number that may be a list with one for each layer."""
    found = c.value(*keys)
    if not isinstance(found, list):
        return c.size(*keys, default=default)
    value = found[index] if index < len(found) else None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise c.bad(keys[0], found, "an integer for each layer")
    return value


def mimo_v2(c: Fields) -> Decoder:
    """MiMo-V2-Flash: layers that slide have other heads, and sinks."""
    layers = c.num_layers()
    kinds = layer_kinds(c)
    slides = flags_of(c, "hybrid_layer_pattern", layers) or [
        int(kind == "sliding_attention") for kind in kinds or ()
    ]
    if not slides:
        raise c.bad("hybrid_layer_pattern", None, "a list of 0 (full) and 1 (sliding)")
    full = _mimo_attention(c, "", has_sinks=c.flag("add_full_attention_sink_bias"))
    has_sinks = c.flag("add_swa_attention_sink_bias", default=True)
    sliding = with_window(_mimo_attention(c, "swa_", has_sinks=has_sinks), c.size("sliding_window"))
    experts = moe(c, has_correction_bias=True, router_dtype_bits=_FLOAT32)
    is_moe = first_dense(c)
    dense = mlp(c)

    def block_of(index: int) -> Block:
        part = sliding if slides[index] else full
        return Block(parts=(part, experts if is_moe(index) else dense))

    return decoder(
        c,
        stack(c, block_of),
        rotary_dim=full.head_dim,
        rotary_partial_factor=c.number("partial_rotary_factor", default=1.0),
        local_rope_theta=c.number("swa_rope_theta", default=10000.0),
    )


def _mimo_attention(c: Fields, prefix: str, *, has_sinks: bool) -> Attention:
    bias = c.flag("attention_bias")
    heads = c.size(f"{prefix}num_attention_heads", "num_attention_heads")
    return Attention(
        num_heads=heads,
        num_kv_heads=c.size(f"{prefix}num_key_value_heads", "num_key_value_heads"),
        head_dim=c.size(f"{prefix}head_dim", "head_dim"),
        v_head_dim=c.size(f"{prefix}v_head_dim", "v_head_dim"),
        has_qkv_bias=bias,
        has_sinks=has_sinks,
    )


def exaone_moe(c: Fields) -> Decoder:
    """EXAONE MoE (K-EXAONE): EXAONE 4 attention, DeepSeek-like experts."""
    full = attention(c, qk_norm="head")
    window = c.optional_size("sliding_window")
    kinds = layer_kinds(c) or pattern_kinds(c, window)
    shared = c.count("num_shared_experts", default=0) * c.size("moe_intermediate_size")
    experts = moe(c, has_correction_bias=True, shared_intermediate_size=shared)
    is_moe = first_dense(c)
    dense = mlp(c)

    def block_of(index: int) -> Block:
        slides = kinds[index] == "sliding_attention"
        part = with_window(full, window if slides else None)
        return Block(parts=(part, experts if is_moe(index) else dense))

    return decoder(c, stack(c, block_of), rotary_dim=full.head_dim)
