"""``VllmSettings``: every engine setting that decides memory, speed or start-up, after defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmserve.runtimes.deployment import ServingSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.runtimes.deployment import Setting, Unknown


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VllmSettings(ServingSettings):
    """Named as vLLM's engine arguments are; values as the stated version resolves them."""

    gpu_memory_utilization: Setting[float]
    kv_cache_memory_bytes: Setting[int | None]
    num_gpu_blocks_override: Setting[int | None]
    block_size: Setting[int | None]
    """Stated by the user; ``None``: the attention backend's choice (see ``kv_pool``)."""
    enable_prefix_caching: Setting[bool]
    enable_chunked_prefill: Setting[bool]
    enforce_eager: Setting[bool]
    has_cuda_graphs: bool
    async_scheduling: Setting[bool]
    disable_hybrid_kv_cache_manager: Setting[bool]
    enable_expert_parallel: Setting[bool]
    decode_context_parallel_size: Setting[int]
    prefill_context_parallel_size: Setting[int]
    cpu_offload_gib: Setting[float]
    is_auto_max_model_len: bool
    """``--max-model-len auto``: the server shortens it to what fits."""
    derived_max_model_len: int | None
    """The model's own limit as this version derives it."""
    language_model_only: Setting[bool]
    num_speculative_tokens: Setting[int]
    speculative_method: Setting[str | None]
    enable_lora: Setting[bool]
    max_loras: Setting[int]
    max_lora_rank: Setting[int]
    attention_backend: Setting[str | None]
    env: Mapping[str, str]
    """Environment variables of the server whose values are known."""
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mm_encoder_tp_mode: str = "weights"
    """``data``: the vision encoder is copied to every rank instead of sharded."""
    fully_sharded_loras: bool = False
    unplanned: tuple[Unknown, ...] = ()
    """Why no plan can be told: flags whose memory is not modelled."""
    num_redundant_experts: int = 0
    """Copies of busy experts that ``--enable-eplb`` adds to each layer."""
    kv_skip_layers: tuple[str, ...] = ()
    """Layers (positions, or ``sliding_window``) whose cache stays unquantised."""
    mm_ipc_gib: float = 0.0
    """Taken off the pool for images that processes hand to each other on the GPU."""
    kv_connectors: tuple[str, ...] = ()
    """What ``--kv-transfer-config`` moves the cache with."""
    draft_model: str | None = None
    """The model that ``--speculative-config`` names for drafting."""
    draft_tensor_parallel_size: int | None = None
