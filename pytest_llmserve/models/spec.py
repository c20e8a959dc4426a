"""``ModelSpec``: what a model is made of, exactly, layer by layer.

A layer is what it caches (``caches``) and what it stores (``weights``). Everything else (parameter
totals, bytes of a rank, KV bytes of a token, FLOPs of a step) is derived from these two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


class Shard(StrEnum):
    """How tensor parallelism divides a weight of ``rows`` outputs x ``cols`` inputs."""

    REPLICATED = "replicated"  # a full copy on every rank
    COLUMN = "column"  # rows / TP
    ROW = "row"  # cols / TP
    KV = "kv"  # rows are KV heads: rows / TP, but at least one whole head a rank
    VOCAB = "vocab"  # rows padded to a multiple of 64, then divided by TP


class Group(StrEnum):
    """What a weight is counted under."""

    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    ATTENTION = "attention"
    STATE = "state"  # Mamba, linear attention, short convolution
    MLP = "mlp"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    NORM = "norm"
    VISION = "vision"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One stored tensor (or, for experts, ``copies`` equal ones).

    ``name`` is the module path of the checkpoint below its layer (``self_attn.q_proj``) or, outside
    the layers, the whole path (``model.embed_tokens``): ignore lists of quantised checkpoints are
    matched against it. Logical shape, before any padding or sharding.
    """

    name: str
    group: Group
    rows: int
    cols: int = 1
    shard: Shard = Shard.REPLICATED
    copies: int = 1
    kv_heads: int = 0
    """For ``Shard.KV``: how many KV heads the rows are."""
    dtype_bits: int | None = None
    """Fixed storage width (32 for a float32 router); ``None``: the model's dtype."""
    is_matmul: bool = True
    """Multiplied with activations in every step: quantisation may touch it, FLOPs count it."""
    is_parameter: bool = True
    """False for buffers (a router's correction bias): stored, not counted as parameters."""

    @property
    def num_elements(self) -> int:
        """Elements of all copies."""
        return self.rows * self.cols * self.copies


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """Keys and values of softmax attention, a row per token and KV head.

    ``window`` is the sliding window or the chunk length in tokens, ``None`` for full attention.
    """

    kind: Literal["full", "sliding", "chunked"]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    max_attended_tokens: int | None = None
    """Tokens that an indexer lets a query read at most; ``None``: no indexer, or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCache:
    """MLA: one latent row of ``kv_lora_rank + qk_rope_head_dim`` per token, whatever the heads."""

    num_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    max_attended_tokens: int | None = None
    """``index_topk``: tokens that an indexer lets a query read at most; ``None``: as above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerCache:
    """A sparse-attention indexer's keys (DeepSeek V3.2): ``index_head_dim`` per token."""

    index_head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCache:
    """A layer that reads another layer's cache (Gemma 3n): attention work, no memory of its own."""

    attention: KvCache


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCache:
    """Keys and values of an encoder's output, written once a request (Whisper).

    ``encoder_tokens`` rows at most, whatever the length of the text.
    """

    attention: KvCache
    encoder_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """One tensor of a recurrent state for one sequence; ``sharded_axis`` is divided by TP."""

    shape: tuple[int, ...]
    sharded_axis: int | None
    role: Literal["conv", "recurrent"]
    dtype_bits: int | None = None
    """Width that config or architecture fix (32 for Nemotron-H); ``None``: the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCache:
    """A state of fixed size per sequence: Mamba, gated delta net, linear attention, short conv."""

    kind: Literal["mamba1", "mamba2", "gdn", "kda", "linear", "short_conv"]
    tensors: tuple[StateTensor, ...]
    chunk_size: int | None = None
    """Tokens of one prefill chunk (``chunk_size``, ``mamba_chunk_size``), where the config says."""


Cache = KvCache | LatentCache | IndexerCache | SharedCache | CrossCache | StateCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The routed experts of a layer: how many there are and how many a token visits."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One kind of decoder layer."""

    caches: tuple[Cache, ...]
    weights: tuple[Weight, ...]
    experts: Experts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Equal layers and their positions in the stack."""

    layer: Layer
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimits:
    """What the config says about positions; each runtime derives its own limit from it.

    ``candidates`` holds every length key found (``max_position_embeddings``, ``n_positions``…)
    after class defaults were filled in.
    """

    candidates: Mapping[str, int]
    model_max_length: int | None = None
    rope_type: str | None = None
    rope_factor: float | None = None
    original_max_position_embeddings: int | None = None


Scheme = Literal[
    "fp8_tensor",
    "fp8_channel",
    "fp8_block",
    "int8",
    "int4",
    "nvfp4",
    "mxfp4",
    "mxfp8",
    "nf4",
    "mixed",
    "unknown",
]
"""A storage format of quantised weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What ``quantization_config`` or ``hf_quant_config.json`` says of the stored weights.

    ``method`` is the checkpoint's own word (``fp8``, ``awq``, ``compressed-tensors``…); ``scheme``
    is the storage format it amounts to.
    """

    method: str
    scheme: Scheme
    bits: int
    group_size: int | None = None
    is_symmetric: bool = True
    block_shape: tuple[int, int] | None = None
    is_static_activation: bool = False
    ignore: tuple[str, ...] = ()
    """Names, ``*`` patterns, prefixes and ``re:`` patterns of modules that stay unquantised."""
    is_lm_head_quantized: bool = False
    is_experts_only: bool = False
    per_module: Mapping[str, str] = field(default_factory=dict)
    """``mixed``: module path -> scheme."""
    kv_cache_scheme: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryTable:
    """A cos/sin table that runtimes keep on every rank: ``rows`` x ``width`` elements."""

    rows: int
    width: int
    dtype_bits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model whose architecture is understood; nothing in it was guessed."""

    id: str
    architecture: str
    model_type: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    intermediate_sizes: tuple[int, ...]
    """Every MLP width that tensor parallelism has to divide (dense, shared, routed)."""
    layer_groups: tuple[LayerGroup, ...]
    outside: tuple[Weight, ...]
    """Weights outside the layers: embedding, position table, final norm, lm_head unless tied."""
    vision: tuple[Weight, ...] = ()
    """Vision or audio towers and projectors."""
    is_tied: bool
    dtype: str
    """The checkpoint's dtype: ``bfloat16``, ``float16`` or ``float32``."""
    limits: ContextLimits
    quantization: Quantization | None = None
    rotary_tables: tuple[RotaryTable, ...] = ()
    is_multimodal: bool = False
    vision_num_heads: int | None = None
    """Heads of the vision tower: tensor parallelism has to divide them too."""
    vision_intermediate_sizes: tuple[int, ...] = ()
    """MLP widths of the vision tower, which tensor parallelism has to divide."""
    layers_path: str = "model.layers"
    """Module path of the stack: ``f"{layers_path}.{index}.{weight.name}"`` is a whole path."""
    has_vocab_on_every_stage: bool = False
    """Pipeline stages: embedding, final norm and lm_head on each one, not only first and last."""
    has_embedding_on_every_stage: bool = False
    """Pipeline stages: the embedding on each one, final norm and lm_head only on the last."""
    checkpoint_bytes: int | None = None
    """Bytes of the stored tensors, from safetensors headers or their index, where present."""
    unsupported: tuple[str, ...] = ()
    """Parts that were seen and are not modelled (an unknown tower): sizes are lower bounds."""
    source: str = ""
    """``models/llama/config.json`` or ``catalogue meta-llama/Llama-3.1-8B``."""

    def layers(self) -> tuple[Layer, ...]:
        """The layers in stack order."""
        out: dict[int, Layer] = {}
        for group in self.layer_groups:
            for index in group.indices:
                out[index] = group.layer
        return tuple(out[i] for i in range(self.num_layers))
