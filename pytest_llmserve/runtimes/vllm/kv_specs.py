"""What each layer's KV cache is in vLLM's eyes, and the bytes of one page of it on one rank.

A page is one block of one layer. Attention pages hold ``block_size`` tokens of
``heads x bytes per head``; a state (Mamba, linear attention) is one page whatever the tokens.
Source: vLLM 0.33.0 ``v1/kv_cache_interface.py`` and the layers' ``get_kv_cache_spec``, read.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, Literal

from pytest_llmserve.models.spec import (
    IndexerCache,
    KvCache,
    LatentCache,
    SharedCache,
    StateCache,
)

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import Cache, Layer, ModelSpec, StateTensor
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings
    from pytest_llmserve.runtimes.vllm.version_rules import KvRules

Kind = Literal["full", "sliding", "chunked", "mla", "mamba"]

DTYPE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4}
_ONE_BYTE: Final = ("fp8", "int8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")
_PER_TOKEN_HEAD: Final = {"int8_per_token_head": 8, "fp8_per_token_head": 8}
# turboquant presets: (bits of K, bits of V); 8-bit K is stored plain.
_TURBOQUANT_BITS: Final = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
_TURBOQUANT_NATIVE_ENDS: Final = 2  # layers at each end of a dense model that stay unquantised
_DS_MLA_BYTES: Final = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}


class UnknownKvCacheDtypeError(ValueError):
    """A ``kv_cache_dtype`` whose page size is not known; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSpec:
    """One layer's cache on one rank.

    ``shape`` is what must be equal for two attention specs to be one (heads, dims, bytes).
    ``page_bytes`` may include padding (a state padded up to an attention page).
    """

    kind: Kind
    block_size: int
    page_bytes: int
    shape: tuple[int, ...] = ()
    window: int | None = None
    state_blocks: int | None = None
    """States: blocks one request takes in its group; ``None``: one per ``block_size`` tokens."""

    @property
    def is_attention(self) -> bool:
        """Whether pages hold tokens, not a state."""
        return self.kind != "mamba"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """An attention cache before its block size is known: bytes of one token on one rank."""

    kind: Kind
    bytes_per_token: int
    shape: tuple[int, ...]
    window: int | None = None

    def spec(self, block_size: int) -> KvSpec:
        """The spec with pages of ``block_size`` tokens."""
        return KvSpec(
            kind=self.kind,
            block_size=block_size,
            page_bytes=self.bytes_per_token * block_size,
            shape=self.shape,
            window=self.window,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """A recurrent state of one sequence on one rank."""

    kind: str
    state_bytes: int


Row = TokenRow | StateRow


def local_kv_heads(num_kv_heads: int, tensor_parallel_size: int) -> int:
    """KV heads that a rank keeps: an equal share, but at least one whole head."""
    return max(1, num_kv_heads // tensor_parallel_size)


def head_bytes(head_dim: int, v_head_dim: int, kv_cache_dtype: str, dtype_bytes: int) -> int:
    """Bytes of one token's key and value in one head.

    Raises:
        UnknownKvCacheDtypeError: no page size is known for ``kv_cache_dtype``.
    """
    both = head_dim + v_head_dim
    if kv_cache_dtype in ("auto", "float16", "bfloat16"):
        return both * dtype_bytes
    if kv_cache_dtype in _ONE_BYTE or kv_cache_dtype in _DS_MLA_BYTES:
        return both
    if kv_cache_dtype in _PER_TOKEN_HEAD:
        return both + _PER_TOKEN_HEAD[kv_cache_dtype]
    if kv_cache_dtype == "int4_per_token_head":
        return both // 2 + 8
    if kv_cache_dtype.startswith("nvfp4"):
        return both // 2 + both // 16
    if kv_cache_dtype in _TURBOQUANT_BITS:
        key_bits, value_bits = _TURBOQUANT_BITS[kv_cache_dtype]
        key = head_dim if key_bits == 8 else -(-head_dim * key_bits // 8) + 2
        slot = key + -(-v_head_dim * value_bits // 8) + 4
        return slot + slot % 2
    raise UnknownKvCacheDtypeError(
        f"the page size of --kv-cache-dtype {kv_cache_dtype} is not known"
    )


def layer_rows(model: ModelSpec, settings: VllmSettings, *, kv_cache_dtype: str) -> list[Row]:
    """Every cache of the model in stack order, as one rank keeps it; shared caches have none.

    ``kv_cache_dtype`` is the one in effect (see :func:`block_size.effective_kv_cache_dtype`).

    Raises:
        UnknownKvCacheDtypeError: no page size is known for ``kv_cache_dtype``.
    """
    return [row for _, row in indexed_rows(model, settings, kv_cache_dtype=kv_cache_dtype)]


def indexed_rows(
    model: ModelSpec, settings: VllmSettings, *, kv_cache_dtype: str
) -> list[tuple[int, Row]]:
    """As :func:`layer_rows`, each with the position of its layer in the stack."""
    native = _native_layers(model, kv_cache_dtype)
    out: list[tuple[int, Row]] = []
    for group in model.layer_groups:
        rows = _rows_of_layer(group.layer, model, settings, kv_cache_dtype)
        plain = _rows_of_layer(group.layer, model, settings, "auto") if native else rows
        for index in group.indices:
            out.extend((index, row) for row in (plain if index in native else rows))
    out.sort(key=lambda pair: pair[0])
    return out


def _native_layers(model: ModelSpec, kv_cache_dtype: str) -> frozenset[int]:
    """Layers that turboquant leaves unquantised: the first and last two of a dense model."""
    if kv_cache_dtype not in _TURBOQUANT_BITS or any(g.layer.experts for g in model.layer_groups):
        return frozenset()
    ends = _TURBOQUANT_NATIVE_ENDS
    last = model.num_layers
    return frozenset([*range(ends), *range(last - ends, last)])


def _rows_of_layer(
    layer: Layer, model: ModelSpec, settings: VllmSettings, kv_cache_dtype: str
) -> list[Row]:
    has_latent = any(isinstance(cache, LatentCache) for cache in layer.caches)
    rows: list[Row] = []
    for cache in layer.caches:
        row = _row(cache, model, settings, kv_cache_dtype, has_latent=has_latent)
        if row is not None:
            rows.append(row)
    return rows


def _row(
    cache: Cache,
    model: ModelSpec,
    settings: VllmSettings,
    kv_cache_dtype: str,
    *,
    has_latent: bool,
) -> Row | None:
    dtype_bytes = DTYPE_BYTES[settings.dtype.value or model.dtype]
    if isinstance(cache, SharedCache):
        return None
    if isinstance(cache, StateCache):
        return StateRow(kind=cache.kind, state_bytes=state_bytes(cache, settings, dtype_bytes))
    if isinstance(cache, IndexerCache):
        return _indexer_row(cache.index_head_dim, is_sparse_mla=has_latent)
    if isinstance(cache, LatentCache):
        return _latent_row(cache, settings, kv_cache_dtype, dtype_bytes)
    heads = local_kv_heads(cache.num_kv_heads, settings.tensor_parallel_size.value)
    # MiniCPM3 pads its values to the key width.
    v_head_dim = cache.head_dim if model.model_type == "minicpm3" else cache.v_head_dim
    each = head_bytes(cache.head_dim, v_head_dim, kv_cache_dtype, dtype_bytes)
    return TokenRow(
        kind=cache.kind,
        bytes_per_token=heads * each,
        shape=(heads, cache.head_dim, v_head_dim, each),
        window=cache.window if cache.kind != "full" else None,
    )


def _latent_row(
    cache: LatentCache, settings: VllmSettings, kv_cache_dtype: str, dtype_bytes: int
) -> TokenRow:
    if settings.env.get("VLLM_MLA_DISABLE", "0") == "1":
        heads = max(1, cache.num_heads // settings.tensor_parallel_size.value)
        dim = cache.qk_nope_head_dim + cache.qk_rope_head_dim
        each = head_bytes(dim, dim, kv_cache_dtype, dtype_bytes)
        return TokenRow(kind="full", bytes_per_token=heads * each, shape=(heads, dim, dim, each))
    dim = cache.kv_lora_rank + cache.qk_rope_head_dim
    each = _DS_MLA_BYTES.get(kv_cache_dtype) or head_bytes(dim, 0, kv_cache_dtype, dtype_bytes)
    return TokenRow(kind="mla", bytes_per_token=each, shape=(1, dim, 0, each))


def _indexer_row(index_head_dim: int, *, is_sparse_mla: bool) -> TokenRow:
    """DeepSeek's indexer keeps fp8 keys with a float32 scale per 128; MiniMax M3's bf16 keys."""
    each = index_head_dim + index_head_dim // 128 * 4 if is_sparse_mla else index_head_dim * 2
    return TokenRow(kind="mla", bytes_per_token=each, shape=(1, index_head_dim, 0, each))


def state_bytes(cache: StateCache, settings: VllmSettings, dtype_bytes: int) -> int:
    """Bytes of one sequence's state in one layer on one rank.

    Speculative decoding keeps one more convolution row per draft token (not for Mamba 1).
    """
    tp = settings.tensor_parallel_size.value
    extra_rows = 0 if cache.kind == "mamba1" else settings.num_speculative_tokens.value
    conv = DTYPE_BYTES.get(settings.mamba_cache_dtype, dtype_bytes)
    total = 0
    for tensor in cache.tensors:
        shape = _local_shape(tensor, cache, tp)
        if tensor.role == "conv":
            channels = shape[1] if tensor.sharded_axis != 0 else shape[0]
            total += (prod(shape) + extra_rows * channels) * conv
        else:
            total += prod(shape) * _recurrent_bytes(tensor, settings, conv)
    return total


def _recurrent_bytes(tensor: StateTensor, settings: VllmSettings, conv_bytes: int) -> int:
    stated = DTYPE_BYTES.get(settings.mamba_ssm_cache_dtype)
    if stated is not None:
        return stated
    return tensor.dtype_bits // 8 if tensor.dtype_bits else conv_bytes


def _local_shape(tensor: StateTensor, cache: StateCache, tp: int) -> tuple[int, ...]:
    if tensor.sharded_axis is None or tp == 1:
        return tensor.shape
    shape = list(tensor.shape)
    axis = tensor.sharded_axis
    size = shape[axis]
    if tensor.role == "conv" and cache.kind == "mamba2":
        size = _mamba2_conv_width(size, cache, tp)
    shape[axis] = size // tp
    return tuple(shape)


def _mamba2_conv_width(width: int, cache: StateCache, tp: int) -> int:
    """Conv channels with the B and C groups repeated up to TP where TP does not divide them."""
    recurrent = next(t for t in cache.tensors if t.role == "recurrent")
    num_heads, head_dim, state_size = recurrent.shape
    inner = num_heads * head_dim
    groups = (width - inner) // (2 * state_size)
    if groups % tp == 0:
        return width
    return inner + 2 * tp * state_size


def mamba_blocks(row: StateRow, settings: VllmSettings, rules: KvRules) -> int | None:
    """Blocks that one request may take in each group of states; ``None``: by its tokens.

    Without prefix caching one (and one per draft token). With it: the running state, the last
    cached one and the checkpoints of a prefill; older versions kept every block ("all" mode).
    """
    spec_blocks = settings.num_speculative_tokens.value
    if not settings.enable_prefix_caching.value:
        return 1 + spec_blocks
    if rules.has_mamba_all_mode and row.kind == "mamba2":
        return None
    if not rules.has_mamba_align_mode:
        return 1 + spec_blocks
    checkpoints = int(rules.has_prefill_checkpoints and row.kind == "mamba2")
    return 2 + spec_blocks + checkpoints


_SPEC_KINDS: Final = {KvCache: "attention", LatentCache: "attention", StateCache: "state"}


def is_hybrid(model: ModelSpec) -> bool:
    """Whether attention and recurrent states stand in one model."""
    kinds = {
        _SPEC_KINDS.get(type(cache)) for group in model.layer_groups for cache in group.layer.caches
    }
    return {"attention", "state"} <= kinds
