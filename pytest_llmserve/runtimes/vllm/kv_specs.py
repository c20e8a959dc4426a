"""What each layer's KV cache is in vLLM's eyes, and the bytes of one page of it on one rank.

A page is one block of one layer. Attention pages hold ``block_size`` tokens of
``heads x bytes per head``; a state (Mamba, linear attention) is one page whatever the tokens.
Source: vLLM 0.33.0 ``v1/kv_cache_interface.py`` and the layers' ``get_kv_cache_spec``, read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final, Literal

from pytest_llmserve.engine.kv_formats import (
    KvDtypeError,
    indexer_token_bytes,
    kv_head_token_bytes,
    latent_token_bytes,
)
from pytest_llmserve.engine.parallel import local_kv_heads
from pytest_llmserve.models.spec import (
    CrossCache,
    IndexerCache,
    LatentCache,
    SharedCache,
    StateCache,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.models.spec import Cache, Layer, ModelSpec, StateTensor
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings
    from pytest_llmserve.runtimes.vllm.version_rules import KvRules

Kind = Literal["full", "sliding", "chunked", "mla", "mamba", "cross"]

# The first and last two attention layers of a dense model stay unquantised under turboquant.
_TURBOQUANT: Final = "turboquant"
_TURBOQUANT_NATIVE_ENDS: Final = 2
_SLIDING: Final = "sliding_window"
_DTYPE_BITS: Final = {"float32": 32, "float": 32, "float16": 16, "half": 16, "bfloat16": 16}


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
    encoder_tokens: int | None = None
    """Cross attention: tokens of the encoder's output that a request keeps."""

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
    encoder_tokens: int | None = None

    def spec(self, block_size: int) -> KvSpec:
        """The spec with pages of ``block_size`` tokens."""
        return KvSpec(
            kind=self.kind,
            block_size=block_size,
            page_bytes=self.bytes_per_token * block_size,
            shape=self.shape,
            window=self.window,
            encoder_tokens=self.encoder_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """A recurrent state of one sequence on one rank."""

    kind: str
    state_bytes: int


Row = TokenRow | StateRow


def layer_rows(
    model: ModelSpec, settings: VllmSettings, *, kv_cache_dtype: str
) -> list[tuple[int, Row]]:
    """Every cache with its layer's position, in stack order, as one rank keeps it.

    Layers that read another layer's cache have none.

    ``kv_cache_dtype`` is the one in effect (see :func:`block_size.effective_kv_cache_dtype`).

    Raises:
        KvDtypeError: no page size is known for ``kv_cache_dtype``.
    """
    native = _native_layers(model, settings, kv_cache_dtype)
    out: list[tuple[int, Row]] = []
    for group in model.layer_groups:
        rows = _rows_of_layer(group.layer, model, settings, kv_cache_dtype)
        plain = _rows_of_layer(group.layer, model, settings, "auto") if native else rows
        for index in group.indices:
            out.extend((index, row) for row in (plain if index in native else rows))
    out.sort(key=lambda pair: pair[0])
    return out


def draft_rows(
    draft: ModelSpec, model: ModelSpec, settings: VllmSettings, *, kv_cache_dtype: str
) -> list[tuple[int, Row]]:
    """Caches of the draft's layers, which stand behind the target's."""
    rows = layer_rows(draft, settings, kv_cache_dtype=kv_cache_dtype)
    return [(model.num_layers + index, row) for index, row in rows]


def _native_layers(model: ModelSpec, settings: VllmSettings, kv_cache_dtype: str) -> frozenset[int]:
    """Layers whose cache stays in the model's dtype.

    Those that ``--kv-cache-dtype-skip-layers`` names and, with turboquant, the first and last two
    of a dense model.
    """
    native = set(_skipped_layers(model, settings))
    is_dense = all(group.layer.experts is None for group in model.layer_groups)
    if kv_cache_dtype.startswith(_TURBOQUANT) and is_dense:
        ends, last = _TURBOQUANT_NATIVE_ENDS, model.num_layers
        native.update([*range(ends), *range(last - ends, last)])
    return frozenset(native)


def _skipped_layers(model: ModelSpec, settings: VllmSettings) -> Iterator[int]:
    for word in settings.kv_skip_layers:
        if word.isdecimal():
            yield int(word)
            continue
        if word != _SLIDING:
            raise KvDtypeError(f"--kv-cache-dtype-skip-layers {word}: which layers is not known")
        for group in model.layer_groups:
            if any(getattr(cache, "kind", "") == "sliding" for cache in group.layer.caches):
                yield from group.indices


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
    bits = _DTYPE_BITS[settings.dtype.value or model.dtype]
    tp = settings.tensor_parallel_size.value
    if isinstance(cache, SharedCache):
        return None
    if isinstance(cache, StateCache):
        return StateRow(kind=cache.kind, state_bytes=state_bytes(cache, settings, bits))
    if isinstance(cache, IndexerCache):
        return _indexer_row(cache.index_head_dim, is_sparse_mla=has_latent)
    if isinstance(cache, LatentCache):
        return _latent_row(cache, settings, kv_cache_dtype, bits)
    if isinstance(cache, CrossCache):
        row = _row(cache.attention, model, settings, kv_cache_dtype, has_latent=False)
        assert isinstance(row, TokenRow)
        return replace(row, kind="cross", encoder_tokens=cache.encoder_tokens)
    # MiniCPM3 pads its values to the key width.
    v_head_dim = cache.head_dim if model.model_type == "minicpm3" else cache.v_head_dim
    return _heads_row(
        cache.kind,
        local_kv_heads(cache.num_kv_heads, tp),
        (cache.head_dim, v_head_dim),
        kv_head_token_bytes(cache.head_dim, v_head_dim, kv_cache_dtype, bits),
        cache.window if cache.kind != "full" else None,
    )


def _heads_row(
    kind: Kind, heads: int, dims: tuple[int, int], head_bytes: int, window: int | None = None
) -> TokenRow:
    return TokenRow(
        kind=kind,
        bytes_per_token=heads * head_bytes,
        shape=(heads, *dims, head_bytes),
        window=window,
    )


def _latent_row(
    cache: LatentCache, settings: VllmSettings, kv_cache_dtype: str, bits: int
) -> TokenRow:
    if settings.env.get("VLLM_MLA_DISABLE", "0") == "1":
        heads = max(1, cache.num_heads // settings.tensor_parallel_size.value)
        dim = cache.qk_nope_head_dim + cache.qk_rope_head_dim
        each = kv_head_token_bytes(dim, dim, kv_cache_dtype, bits)
        return _heads_row("full", heads, (dim, dim), each)
    rank, rope = cache.kv_lora_rank, cache.qk_rope_head_dim
    each = latent_token_bytes(rank, rope, kv_cache_dtype, bits)
    return _heads_row("mla", 1, (rank + rope, 0), each)


def _indexer_row(index_head_dim: int, *, is_sparse_mla: bool) -> TokenRow:
    """DeepSeek's indexer keeps fp8 keys and scales; MiniMax M3's plain bf16 keys."""
    each = indexer_token_bytes(index_head_dim) if is_sparse_mla else index_head_dim * 2
    return _heads_row("mla", 1, (index_head_dim, 0), each)


def state_bytes(cache: StateCache, settings: VllmSettings, model_dtype_bits: int) -> int:
    """Bytes of one sequence's state in one layer on one rank.

    A recurrent tensor has the width that the user stated, else the architecture's, else the
    convolution's. Speculative decoding keeps one more convolution row for each draft token (not
    for Mamba 1).
    """
    tp = settings.tensor_parallel_size.value
    extra_rows = 0 if cache.kind == "mamba1" else settings.num_speculative_tokens.value
    conv_bits = _DTYPE_BITS.get(settings.mamba_cache_dtype, model_dtype_bits)
    stated_bits = _DTYPE_BITS.get(settings.mamba_ssm_cache_dtype)
    total = 0
    for tensor in cache.tensors:
        shape = _local_shape(tensor, cache, tp)
        if tensor.role == "conv":
            channels = shape[0] if tensor.sharded_axis == 0 else shape[-1]
            total += (prod(shape) + extra_rows * channels) * conv_bits // 8
        else:
            total += prod(shape) * (stated_bits or tensor.dtype_bits or conv_bits) // 8
    return total


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
