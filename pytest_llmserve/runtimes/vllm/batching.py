"""Defaults of the scheduler: tokens and sequences of a step, by device, version and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.versions import at_least, short
from pytest_llmserve.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec

# Source: vllm/engine/arg_utils.py of each release wheel.
_DP_TOKENS: Final = 256  # deepep_low_latency and nixl_ep, since 0.20
_BATCHED_DP_BACKENDS: Final = frozenset({"deepep_low_latency", "nixl_ep"})
# The largest item of models with bidirectional image attention (run on 0.32), since 0.22.
PREFIX_LM_ITEM_TOKENS: Final[Mapping[str, int]] = {
    "Gemma3ForConditionalGeneration": 256,
    "Gemma4ForConditionalGeneration": 2496,
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tier:
    """What ``vllm serve`` starts from on a device, and why."""

    tokens: int
    seqs: int
    why: str


def device_tier(gpu: GpuSpec | None, version: Version) -> Tier:
    """The row of the defaults table that a device falls in."""
    default = f"vllm {short(version)} default"
    if gpu is None:
        return Tier(2048, 256, f"{default}, GPU not known")
    total = gpu.memory_total_bytes
    memory_bytes = gpu.memory_marketed_bytes if total is None else total.expected
    if memory_bytes >= 160 * GIB and at_least(version, "0.28"):
        return Tier(16384, 1024, f"{default} for >= 160 GiB")
    is_a100 = "a100" in f"{gpu.id} {gpu.name}".lower() and at_least(version, "0.9")
    is_gb10 = gpu.capability == 121 and at_least(version, "0.33")
    if memory_bytes < 70 * GIB:
        return Tier(2048, 256, f"{default} for < 70 GiB")
    if is_a100 or is_gb10:
        return Tier(2048, 256, f"{default} for {'A100' if is_a100 else 'GB10'}")
    return Tier(8192, 1024, f"{default} for >= 70 GiB")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BatchInputs:
    """What the defaults depend on; ``None`` for a number that nobody stated."""

    version: Version
    gpu: GpuSpec | None
    model: ModelSpec | None
    max_model_len: int | None
    tokens: int | None
    seqs: int | None
    has_chunked_prefill: bool
    is_throughput_mode: bool
    all2all_backend: str | None
    has_expert_parallel: bool
    data_parallel_size: int
    is_text_only: bool


def resolve_batch(given: BatchInputs) -> tuple[int, str, int, str]:
    """Tokens and sequences of a step, each with the reason for a default."""
    tier = device_tier(given.gpu, given.version)
    tokens, why_tokens = given.tokens, tier.why
    seqs, why_seqs = given.seqs, tier.why
    if tokens is None:
        is_batched_dp = (
            given.all2all_backend in _BATCHED_DP_BACKENDS
            and given.has_expert_parallel
            and given.data_parallel_size > 1
            and at_least(given.version, "0.20")
        )
        tokens = _DP_TOKENS if is_batched_dp else tier.tokens
    if seqs is None:
        seqs = tier.seqs
    if given.is_throughput_mode:
        why_tokens = why_seqs = f"{tier.why}, doubled by --performance-mode throughput"
        tokens *= 2 if given.tokens is None else 1
        seqs *= 2 if given.seqs is None else 1
    if given.tokens is None:
        tokens, why_tokens = _fit(tokens, why_tokens, seqs, given)
    if given.seqs is None and at_least(given.version, "0.10.1") and seqs > tokens:
        seqs, why_seqs = tokens, "capped at max_num_batched_tokens"
    return tokens, why_tokens, seqs, why_seqs


def _fit(tokens: int, why: str, seqs: int, given: BatchInputs) -> tuple[int, str]:
    length = given.max_model_len
    if length is not None and not given.has_chunked_prefill and length > tokens:
        tokens, why = length, "raised to max_model_len: chunked prefill is off"
    if given.model is not None and not given.is_text_only and at_least(given.version, "0.22"):
        item = PREFIX_LM_ITEM_TOKENS.get(given.model.architecture, 0)
        if item > tokens:
            tokens, why = item, "raised to the largest image of the model"
    is_capped = at_least(given.version, "0.11.1")
    if is_capped and length is not None and seqs * length < tokens:
        tokens, why = seqs * length, "capped at max_num_seqs x max_model_len"
    return tokens, why
