"""Tokens in one block of the KV cache: the attention backend's choice, enlarged for hybrids.

Source: vLLM 0.33.0 ``platforms/cuda.py`` and the attention backends, read; hybrid blocks of
80 to 8304 tokens held against what 0.14.1 to 0.32.0 computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.spec import IndexerCache, KvCache, LatentCache, StateCache
from pytest_llmserve.runtimes.vllm.kv_specs import KvSpec, StateRow, TokenRow, mamba_blocks

if TYPE_CHECKING:
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.kv_specs import Row
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings
    from pytest_llmserve.runtimes.vllm.version_rules import KvRules

DEFAULT_BLOCK: Final = 16
# What a backend picks when 16 is not among its block sizes.
_BACKEND_BLOCKS: Final = {
    "FLASHMLA": 64,
    "FLASHMLA_SPARSE": 64,
    "FLASHINFER_MLA_SPARSE": 64,
    "FLASH_ATTN_MLA_SPARSE": 64,
    "FLASHINFER_MLA": 32,
    "TOKENSPEED_MLA": 32,
    "CUTLASS_MLA": 128,
}
_OLD_BACKEND_BLOCKS: Final = _BACKEND_BLOCKS | {"FLASHINFER_MLA": 64}
_TURBOQUANT_BLOCK: Final = 32
_SPARSE_MLA_BLOCK: Final = 64
_MINIMAX_SPARSE_BLOCK: Final = 128
_WIDE_HEAD: Final = 512  # FA3 with fp8 KV on Hopper takes 64 only from this head size
_FA4_HEAD: Final = 256  # its FA4 kernel on Blackwell takes 128 only
_BLACKWELL: Final = (100, 103)
_HOPPER: Final = 90
_DEFAULT_CHUNK: Final = 256  # transformers' Mamba2Config.chunk_size


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Shape:
    """What of a model decides the backend."""

    has_latent: bool
    has_indexer: bool
    widest_head: int


def _shape(model: ModelSpec) -> _Shape:
    caches = [cache for group in model.layer_groups for cache in group.layer.caches]
    return _Shape(
        has_latent=any(isinstance(c, LatentCache) for c in caches),
        has_indexer=any(isinstance(c, IndexerCache) for c in caches),
        widest_head=max((c.head_dim for c in caches if isinstance(c, KvCache)), default=0),
    )


def _is_blackwell(gpu: GpuSpec | None) -> bool:
    return gpu is not None and gpu.capability in _BLACKWELL


def _is_hopper(gpu: GpuSpec | None) -> bool:
    return gpu is not None and gpu.capability == _HOPPER


def effective_kv_cache_dtype(settings: VllmSettings, model: ModelSpec, gpu: GpuSpec | None) -> str:
    """The cache format that the chosen backend really keeps.

    Sparse MLA: any fp8 becomes ``fp8_ds_mla`` on Hopper (FlashMLA sparse); GLM-5 defaults to fp8
    on Blackwell.
    """
    dtype = settings.kv_cache_dtype.value
    shape = _shape(model)
    if not (shape.has_latent and shape.has_indexer):
        return dtype
    if dtype == "auto" and model.model_type == "glm_moe_dsa" and _is_blackwell(gpu):
        return "fp8"
    if dtype.startswith("fp8") and _is_hopper(gpu):
        return "fp8_ds_mla"
    return dtype


def attention_block_size(
    settings: VllmSettings, rules: KvRules, model: ModelSpec, gpu: GpuSpec | None
) -> int:
    """Tokens of a block before hybrids enlarge it: the user's, else the backend's choice."""
    if settings.block_size.value is not None:
        return settings.block_size.value
    shape = _shape(model)
    is_fp8 = settings.kv_cache_dtype.value.startswith("fp8")
    if settings.kv_cache_dtype.value.startswith("turboquant"):
        return _TURBOQUANT_BLOCK
    if shape.has_indexer:
        return _SPARSE_MLA_BLOCK if shape.has_latent else _MINIMAX_SPARSE_BLOCK
    backend = settings.attention_backend.value
    if shape.has_latent and settings.env.get("VLLM_MLA_DISABLE", "0") != "1":
        return _mla_block(backend, rules, gpu)
    if _is_hopper(gpu) and is_fp8 and shape.widest_head >= _WIDE_HEAD:
        return 64
    if backend == "FLASH_ATTN" and _is_blackwell(gpu) and shape.widest_head == _FA4_HEAD:
        return 128
    return DEFAULT_BLOCK


def _mla_block(backend: str | None, rules: KvRules, gpu: GpuSpec | None) -> int:
    if backend is not None:
        blocks = _BACKEND_BLOCKS if rules.asks_backend else _OLD_BACKEND_BLOCKS
        return blocks.get(backend.upper(), DEFAULT_BLOCK)
    if not rules.asks_backend:
        return 64 if _is_hopper(gpu) or _is_blackwell(gpu) else DEFAULT_BLOCK
    return 32 if _is_blackwell(gpu) else DEFAULT_BLOCK


def lay_out(
    rows: list[tuple[int, Row]],
    settings: VllmSettings,
    rules: KvRules,
    model: ModelSpec,
    gpu: GpuSpec | None,
) -> list[tuple[int, KvSpec]]:
    """Gives every cache its block size and page: ``(layer index, spec)`` in stack order.

    In a hybrid the attention block grows until its page holds a whole state,
    ``block = k x ceil(state / (k x bytes per token))``, and states are padded to that page.
    Where prefix caching is off a state's block is the whole context.
    """
    base = attention_block_size(settings, rules, model, gpu)
    token_bytes = max((r.bytes_per_token for _, r in rows if isinstance(r, TokenRow)), default=0)
    state_bytes = max((r.state_bytes for _, r in rows if isinstance(r, StateRow)), default=0)
    block = base
    if token_bytes and state_bytes:
        block = max(base, _hybrid_block(base, token_bytes, state_bytes, settings, rules, model))
    page = block * token_bytes if token_bytes else None
    made: dict[Row, KvSpec] = {}
    for _, row in rows:
        if row in made:
            continue
        if isinstance(row, TokenRow):
            made[row] = row.spec(block)
        else:
            made[row] = _state_spec(row, page, block, settings, rules)
    return [(index, made[row]) for index, row in rows]


def _state_spec(
    row: StateRow, page: int | None, block: int, settings: VllmSettings, rules: KvRules
) -> KvSpec:
    blocks = 1 + settings.num_speculative_tokens.value
    is_cached = page is not None and settings.enable_prefix_caching.value
    mode_blocks = mamba_blocks(row, settings, rules) if is_cached else blocks
    has_whole_context = not is_cached or mode_blocks == blocks
    return KvSpec(
        kind="mamba",
        block_size=(settings.max_model_len.value or 1) if has_whole_context else block,
        page_bytes=row.state_bytes if page is None else page,
        shape=(row.state_bytes,),
        state_blocks=mode_blocks,
    )


def _hybrid_block(
    base: int,
    token_bytes: int,
    state_bytes: int,
    settings: VllmSettings,
    rules: KvRules,
    model: ModelSpec,
) -> int:
    kernel = base
    if _shape(model).has_latent:
        kernel = max(kernel, rules.hybrid_mla_block)
    chunk = _mamba2_chunk(model)
    if rules.has_mamba_all_mode and settings.enable_prefix_caching.value and chunk is not None:
        chunk = lcm(chunk, kernel)
        tokens = -(-state_bytes // token_bytes)
        return chunk * -(-tokens // chunk)
    return kernel * -(-state_bytes // (kernel * token_bytes))


def _mamba2_chunk(model: ModelSpec) -> int | None:
    for group in model.layer_groups:
        for cache in group.layer.caches:
            if isinstance(cache, StateCache) and cache.kind == "mamba2":
                return cache.chunk_size or _DEFAULT_CHUNK
    return None
