"""Parts: the small vocabulary that every decoder layer is written in.

A family reader turns a config into parts, the bundled catalogue stores parts, and ``build`` turns
parts into weights and caches. Sizes are logical: before padding, sharding or quantisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import Weight
    from pytest_llmserve.models.state_parts import StatePart


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention with its projections."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    kind: Literal["full", "sliding", "chunked"] = "full"
    window: int | None = None
    has_qkv_bias: bool = False
    has_o_bias: bool = False
    qk_norm: Literal["head", "width", "width_sharded"] | None = None
    """``head``: one vector of head_dim each; ``width``: of all heads, whole or sharded."""
    has_query_gate: bool = False
    """q_proj also makes an output gate: twice the rows (Qwen3-Next)."""
    has_sinks: bool = False
    reads_shared_cache: bool = False
    """Keys and values come from another layer: no k, v and no cache of its own (Gemma 3n)."""
    has_unstored_v: bool = False
    """v is k in the checkpoint; runtimes still hold a matrix for it (Gemma 4)."""
    sparse_index_dim: int | None = None
    """MiniMax-M3: a sparse layer has index queries and keys of this width besides."""
    sparse_index_heads: int | None = None
    sparse_topk_tokens: int | None = None
    """Tokens that the index lets a query read at most."""
    is_cross: bool = False
    """Keys and values come from images: no cache of text (Llama 3.2 Vision)."""
    input_size: int | None = None
    """Inputs of q, k and v where it is not the hidden size (EAGLE-3: twice)."""
    has_unstored_k_bias: bool = False
    """k has no bias in the checkpoint; runtimes still hold one for it (Whisper)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention:
    """A decoder's attention to its encoder (Whisper): q and o, both with a bias.

    k and v work with the encoder, once a request, and are counted there.
    """

    num_heads: int
    head_dim: int
    encoder_tokens: int
    """Tokens of the encoder's output at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (MLA)."""

    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    has_bias: bool = False
    """Bias on the two down projections and on o."""
    caches_heads: bool = False
    """Cached as plain keys and values of all heads (MiniCPM3)."""
    index_num_heads: int | None = None
    index_head_dim: int | None = None
    index_topk: int | None = None
    """Tokens that the indexer lets a query read."""
    has_shared_indexer: bool = False
    """The layer takes its selection from another layer's indexer (GLM-5.2): no indexer weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A dense MLP: gate, up and down, or only up and down."""

    intermediate_size: int
    is_gated: bool = True
    has_bias: bool = False
    is_replicated: bool = False
    """Runtimes keep it whole on every rank (GPTBigCode)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """A router, its experts and what every token visits besides."""

    num_experts: int
    num_experts_per_tok: int
    intermediate_size: int
    is_gated: bool = True
    has_bias: bool = False
    has_router_bias: bool = False
    has_correction_bias: bool = False
    """A bias of the router that training set and no gradient: a buffer, not a parameter."""
    router_dtype_bits: int | None = None
    shared_intermediate_size: int = 0
    has_shared_gate: bool = False
    latent_size: int | None = None
    """The experts work on a projection of this width (Nemotron 3 Super)."""
    has_expert_scale: bool = False
    """Gemma 4: a scale per input channel of the router and one per expert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Small weights of one family.

    ``shapes`` holds ``(name, rows, cols)`` of vectors and matrices that nothing divides;
    ``weights`` those that parallelism divides or that have a width of their own.
    """

    shapes: tuple[tuple[str, int, int], ...]
    weights: tuple[Weight, ...] = ()


Part: TypeAlias = "Attention | CrossAttention | Latent | Mlp | Moe | Extra | StatePart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One kind of layer: its parts and its ``norms`` vectors of the hidden size."""

    parts: tuple[Part, ...]
    norms: int = 2
