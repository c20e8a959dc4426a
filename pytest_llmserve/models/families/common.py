"""What most families share: attention heads, MLP, experts, which layers slide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_llmserve.models.parts import Attention, Block, Mlp, Moe, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_llmserve.models.fields import Fields
    from pytest_llmserve.models.spec import Weight

Blocks = tuple[tuple[Block, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """What a family reader finds: the stack and what surrounds it.

    ``rotary_dim`` is the width of a cos/sin table before ``partial_rotary_factor``; ``None`` where
    the family keeps none.
    """

    hidden_size: int
    vocab_size: int
    blocks: Blocks
    is_tied: bool
    names: str = "llama"
    layers_path: str = "model.layers"
    has_norm_bias: bool = False
    has_final_norm: bool = True
    has_lm_head_bias: bool = False
    embedding_size: int | None = None
    has_whole_embedding: bool = False
    extra: tuple[Weight, ...] = ()
    rotary_dim: int | None = None
    rotary_partial_factor: float = 1.0
    rotary_dtype_bits: int | None = None
    rotary_dims: tuple[tuple[str, int], ...] = ()
    """Widths of single layer types, where they differ from ``rotary_dim`` (Gemma 4)."""
    has_indexer_rope: bool = False
    """The indexer has a second table of the same size (DeepSeek V3.2; GLM-5 shares one)."""
    local_rope_theta: float | None = None
    """The base of the layers that slide, where they have a table of their own (Gemma 3)."""
    unsupported: tuple[str, ...] = ()


def hidden_size(c: Fields) -> int:
    """The width of the residual stream."""
    return c.size("hidden_size", "n_embd", "d_model", "n_embed")


def num_heads(c: Fields) -> int:
    """Query heads."""
    return c.size("num_attention_heads", "n_head", "n_heads")


def head_dim(c: Fields) -> int:
    """``head_dim`` or hidden / heads, which then has to be whole."""
    found = c.optional_size("head_dim", "attention_head_dim")
    if found is not None:
        return found
    hidden, heads = hidden_size(c), num_heads(c)
    if hidden % heads:
        raise c.bad("hidden_size", hidden, f"a multiple of num_attention_heads ({heads})")
    return hidden // heads


def attention(c: Fields, **changes: Any) -> Attention:
    """Grouped-query attention under its usual names; ``changes`` are fields of ``Attention``."""
    heads = num_heads(c)
    kv_heads = changes.pop("num_kv_heads", None)
    if kv_heads is None:
        kv_heads = c.optional_size("num_key_value_heads", "num_kv_heads") or heads
    if kv_heads < 1 or heads % kv_heads:
        expected = f"a divisor of num_attention_heads ({heads})"
        raise c.bad("num_key_value_heads", kv_heads, expected)
    dim = changes.pop("head_dim", None) or head_dim(c)
    return Attention(num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, **changes)


def with_window(part: Attention, window: int | None, *, is_chunked: bool = False) -> Attention:
    """The same attention over the last ``window`` tokens; the same one where it is ``None``."""
    if window is None:
        return part
    return replace(part, kind="chunked" if is_chunked else "sliding", window=window)


def mlp(c: Fields, *, has_bias: bool = False, is_gated: bool = True) -> Mlp:
    """A dense MLP under its usual names."""
    width = c.size("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    return Mlp(intermediate_size=width, has_bias=has_bias, is_gated=is_gated)


def num_experts(c: Fields) -> int:
    """Routed experts; 0 means a dense model."""
    return c.count(
        "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", default=0
    )


def moe(c: Fields, **changes: Any) -> Moe:
    """Routed experts under their usual names; ``changes`` are fields of ``Moe``."""
    experts = num_experts(c)
    if experts < 1:
        raise c.bad("num_experts", experts, "at least one expert")
    top_k = c.size(
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_k",
        "moe_topk",
        "top_k_experts",
        "experts_per_token",
    )
    width = changes.pop("intermediate_size", None)
    if width is None:
        width = c.size("moe_intermediate_size", "intermediate_size")
    return Moe(num_experts=experts, num_experts_per_tok=top_k, intermediate_size=width, **changes)


def stack(c: Fields, block_of: Callable[[int], Block], *names: str) -> Blocks:
    """All layers by kind: ``block_of`` is asked for each position."""
    return grouped([block_of(index) for index in range(c.num_layers(*names))])


def grouped(blocks: Sequence[Block]) -> Blocks:
    """Equal blocks together, each kind with its positions, in the order of first appearance."""
    kinds: dict[Block, list[int]] = {}
    for index, block in enumerate(blocks):
        kinds.setdefault(block, []).append(index)
    return tuple((block, tuple(indices)) for block, indices in kinds.items())


def uniform(c: Fields, *parts: Part, norms: int = 2) -> Blocks:
    """Every layer the same."""
    block = Block(parts=parts, norms=norms)
    return ((block, tuple(range(c.num_layers("n_layer", "num_layers", "n_layers")))),)


def layer_kinds(c: Fields, key: str = "layer_types") -> Sequence[str] | None:
    """The per-layer list of a config, one word for each layer, or ``None``."""
    found = c.items(key)
    if found is None:
        return None
    layers = c.num_layers()
    if len(found) < layers or not all(isinstance(kind, str) for kind in found):
        raise c.bad(key, list(found), f"a list of {layers} words, one a layer")
    return found[:layers]


def flags_of(c: Fields, key: str, length: int) -> Sequence[int] | None:
    """A per-layer list of 0 and 1."""
    found = c.items(key)
    if found is None:
        return None
    if len(found) < length or not all(item in (0, 1) for item in found):
        raise c.bad(key, list(found), f"a list of {length} zeros and ones")
    return found


def decoder(c: Fields, blocks: Blocks, **changes: Any) -> Decoder:
    """The stack with what surrounds it under its usual names."""
    changes.setdefault("is_tied", c.flag("tie_word_embeddings"))
    vocab = c.size("vocab_size", "padded_vocab_size")
    return Decoder(hidden_size=hidden_size(c), vocab_size=vocab, blocks=blocks, **changes)
