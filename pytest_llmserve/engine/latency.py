"""Floors: the shortest time that a step, a first token or a throughput can take on a GPU.

A floor is what no hardware of that kind beats: it divides by the highest bandwidth known of the
part and by its dense peak, counts only bytes that must be read and only the experts that one token
visits. It can refute a target, never promise it. Where a figure of the GPU is not known there is
no floor: ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.phases import decode_step, prefill
from pytest_llmserve.engine.roofline import (
    Bound,
    arithmetic_intensity,
    bound_of,
    floor_time_s,
    ridge_point,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.engine.costs import StepCosts
    from pytest_llmserve.engine.phases import PhaseCost
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec

# GeForce cards clock above their rated boost: 5090 1.15 x, 5070 Ti 1.13 x, 2080 Ti 1.09 x the rated
# figure in public matmul runs. 1.2 is above all of them.
BOOST_GUARD: Final = Fraction(12, 10)
# Rated GeForce peaks accumulate in fp32; accumulating in fp16 runs twice as fast (an RTX 4080 did a
# 512-token prefill at 1.05 x the fp32-accumulate figure).
FP16_ACCUMULATE: Final = 2
_SIXTEEN_BIT: Final = ("bf16", "fp16")
_DOUBLED: Final = ("bf16", "fp16", "fp8")

# The kernel's dtype by storage scheme, best first: a GPU computes in the first that it has.
# Four-bit integers are expanded to 16 bit; so are 4-bit floats where there is no fp4.
_COMPUTE_DTYPES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "fp8_tensor": (("fp8",), _SIXTEEN_BIT),
    "fp8_channel": (("fp8",), _SIXTEEN_BIT),
    "fp8_block": (("fp8",), _SIXTEEN_BIT),
    "mxfp8": (("fp8",), _SIXTEEN_BIT),
    "int8": (("int8",), _SIXTEEN_BIT),
    "nvfp4": (("fp4",), _SIXTEEN_BIT),
    "mxfp4": (("fp4",), _SIXTEEN_BIT),
    "int4": (_SIXTEEN_BIT,),
    "nf4": (_SIXTEEN_BIT,),
    # mixed or unknown storage: the fastest that the part has
    "mixed": (("fp4", "fp8", "int8", *_SIXTEEN_BIT),),
    "unknown": (("fp4", "fp8", "int8", *_SIXTEEN_BIT),),
}
_BY_DTYPE: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "bfloat16": (_SIXTEEN_BIT,),
    "float16": (_SIXTEEN_BIT,),
    "float32": (("tf32", "fp32"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The shortest time of a piece of work on one GPU, and what makes it so."""

    floor_s: float
    flops: int
    moved_bytes: int
    bound: Bound
    intensity_flop_per_byte: float
    ridge_flop_per_byte: float


def dense_peak_flops_per_s(gpu: GpuSpec, scheme_or_dtype: str) -> int | None:
    """The highest dense rate of a GPU for weights of a storage scheme or of a dtype.

    GeForce figures are raised by what real cards reach (see the constants above), so that the
    result is an upper bound. ``None``: the catalogue has no figure.

    Raises:
        ValueError: neither a scheme nor a dtype.
    """
    choices = _COMPUTE_DTYPES.get(scheme_or_dtype) or _BY_DTYPE.get(scheme_or_dtype)
    if choices is None:
        known = ", ".join([*_COMPUTE_DTYPES, *_BY_DTYPE])
        raise ValueError(f"unknown scheme or dtype {scheme_or_dtype!r}; valid: {known}")
    for names in choices:
        peaks = [_guarded(gpu, name) for name in names if name in gpu.dense_flops_per_s]
        if peaks:
            return max(peaks)
    return None


def compute_format(spec: ModelSpec) -> str:
    """What to ask :func:`dense_peak_flops_per_s` for: the scheme, else the dtype, of a model."""
    return spec.dtype if spec.quantization is None else spec.quantization.scheme


def floor_of(cost: PhaseCost, gpu: GpuSpec, compute: str, *, shards: int = 1) -> Floor | None:
    """The floor of a phase: max(FLOPs / peak, bytes / bandwidth).

    Args:
        cost: the work, of Python ints.
        gpu: the part; its bandwidth is the upper bound.
        compute: storage scheme or dtype of the weights.
        shards: GPUs that the work is divided by on top of what ``cost`` says.

    Returns:
        ``None`` where the GPU's bandwidth or its peak for ``compute`` is not known.
    """
    peak = dense_peak_flops_per_s(gpu, compute)
    bandwidth = gpu.hbm_bytes_per_s
    if peak is None or bandwidth is None:
        return None
    flops, moved_bytes = int(cost.flops), int(cost.floor_bytes)
    return Floor(
        floor_s=floor_time_s(flops, moved_bytes, peak, bandwidth) / shards,
        flops=flops,
        moved_bytes=moved_bytes,
        bound=bound_of(flops, moved_bytes, peak, bandwidth),
        intensity_flop_per_byte=arithmetic_intensity(flops, moved_bytes),
        ridge_flop_per_byte=ridge_point(peak, bandwidth),
    )


def tpot_floor(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    *,
    batch: int = 1,
    context: int = 1,
    tokens_per_step: int = 1,
) -> Floor | None:
    """Floor of the time per output token.

    Args:
        costs: the model on one GPU of its tensor-parallel group.
        gpu: the part.
        compute: storage scheme or dtype of the weights (:func:`compute_format`).
        batch: sequences that decode together.
        context: tokens that each holds.
        tokens_per_step: most tokens that a step can yield: draft tokens + 1 where a draft model
            speculates, which beats the floor of a plain step.

    Returns:
        ``None`` where a figure of the GPU is not known.
    """
    return floor_of(decode_step(costs, batch, context), gpu, compute, shards=tokens_per_step)


def ttft_floor(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    *,
    prompt_tokens: int,
    batch: int = 1,
    cached_tokens: int = 0,
    pipeline_parallel_size: int = 1,
) -> Floor | None:
    """Floor of the time to the first token of ``batch`` prompts that arrive together.

    Pipeline stages can work on chunks of one prompt at a time, so they divide the floor.
    Arguments as for :func:`tpot_floor` and :func:`phases.prefill`.
    """
    cost = prefill(costs, prompt_tokens, batch, cached_tokens=cached_tokens)
    return floor_of(cost, gpu, compute, shards=pipeline_parallel_size)


def decode_tokens_per_s_ceiling(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    *,
    batch: int,
    context: int,
    tokens_per_step: int = 1,
    pipeline_parallel_size: int = 1,
) -> float | None:
    """Highest output rate of one instance, in tokens/s: batch over the floor of its step.

    Each pipeline stage can hold a batch of its own. ``None`` where a figure is not known.
    """
    floor = tpot_floor(
        costs, gpu, compute, batch=batch, context=context, tokens_per_step=tokens_per_step
    )
    if floor is None:
        return None
    return batch * pipeline_parallel_size / floor.floor_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputCeiling:
    """The highest rate of requests that an instance can serve, and what limits it."""

    requests_per_s: float
    output_tokens_per_s: float
    bound: Bound


def throughput_ceiling(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    *,
    prompt_tokens: int,
    output_tokens: int,
    concurrency: int,
    cached_tokens: int = 0,
    tokens_per_step: int = 1,
    pipeline_parallel_size: int = 1,
) -> ThroughputCeiling | None:
    """Highest steady rate of equal requests, at most ``concurrency`` of them decoding at once.

    A request's FLOPs are spent whatever the batch. Its share of the bytes is least when the batch
    is full: ``concurrency`` sequences read the weights together, each its own cache. Arguments as
    for :func:`tpot_floor` and :func:`ttft_floor`; ``None`` where a figure of the GPU is unknown.
    """
    from pytest_llmserve.engine.memoization import with_kv_cache

    peak, bandwidth = dense_peak_flops_per_s(gpu, compute), gpu.hbm_bytes_per_s
    if peak is None or bandwidth is None:
        return None
    flops = int(prefill(costs, prompt_tokens, cached_tokens=cached_tokens).flops)
    moved = 0.0
    if output_tokens > 1:  # the prefill makes the first one
        whole = with_kv_cache(costs, prompt_tokens, output_tokens)
        first = with_kv_cache(costs, prompt_tokens, 1)
        flops += whole.flops - first.flops
        weights = int(decode_step(costs, concurrency, 1).weight_bytes)
        steps = (output_tokens - 1) / tokens_per_step
        cache = (whole.cache_read_bytes - first.cache_read_bytes) / tokens_per_step
        moved = steps * weights / concurrency + cache
    compute_s, memory_s = flops / peak, moved / bandwidth
    rate = pipeline_parallel_size / max(compute_s, memory_s)
    return ThroughputCeiling(
        requests_per_s=rate,
        output_tokens_per_s=rate * output_tokens,
        bound=Bound.MEMORY if memory_s > compute_s else Bound.COMPUTE,
    )


def _guarded(gpu: GpuSpec, name: str) -> int:
    peak = gpu.dense_flops_per_s[name]
    if not gpu.is_boost_guarded:
        return peak
    factor = BOOST_GUARD * (FP16_ACCUMULATE if name in _DOUBLED else 1)
    return int(peak * factor)
