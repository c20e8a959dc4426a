"""Decode and prefill of a server on its GPUs, for the roofline invariants.

The engine's part is imported where a floor is asked for: most servers declare no latency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmserve.engine.latency import Floor, ThroughputCeiling
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.units import Interval

NO_FLOOR = "cannot tell: no source states this GPU's bandwidth or its peak for the model's dtype"


def _gpu(subject: Subject) -> GpuSpec:
    gpu = subject.deployment.gpu
    assert gpu is not None, "asked only of servers whose GPU is known"
    return gpu


def decode_floor(subject: Subject, batch: int, context: int) -> Floor | None:
    """The floor of one decode step; ``None`` where the GPU's figures are unknown."""
    from pytest_llmserve.engine.latency import tpot_floor

    deployment = subject.deployment
    return tpot_floor(
        subject.costs,
        _gpu(subject),
        subject.inputs.compute_format(deployment),
        batch=batch,
        context=context,
        tokens_per_step=subject.inputs.tokens_per_step(deployment),
    )


def prefill_floor(subject: Subject, prompt_tokens: int) -> Floor | None:
    """The floor of one prompt's prefill; ``None`` where the GPU's figures are unknown."""
    from pytest_llmserve.engine.latency import ttft_floor

    deployment = subject.deployment
    return ttft_floor(
        subject.costs,
        _gpu(subject),
        subject.inputs.compute_format(deployment),
        prompt_tokens=prompt_tokens,
        pipeline_parallel_size=deployment.settings.pipeline_parallel_size.value,
    )


def rate_ceiling(subject: Subject) -> ThroughputCeiling | None:
    """Most requests per second of one replica at the declared workload; ``None``: unknown rates.

    As many decode at once as ``max_num_seqs`` lets, whatever concurrency is declared.
    """
    from pytest_llmserve.engine.latency import throughput_ceiling

    deployment, load = subject.deployment, subject.facts.workload
    assert load is not None
    settings = deployment.settings
    return throughput_ceiling(
        subject.costs,
        _gpu(subject),
        subject.inputs.compute_format(deployment),
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        concurrency=settings.max_num_seqs.value,
        tokens_per_step=subject.inputs.tokens_per_step(deployment),
        pipeline_parallel_size=settings.pipeline_parallel_size.value,
    )


def rates(subject: Subject) -> tuple[int, int] | None:
    """Peak FLOP/s for the model's dtype and bytes/s of the GPU; ``None`` where one is unknown."""
    from pytest_llmserve.engine.latency import dense_peak_flops_per_s

    gpu = _gpu(subject)
    peak = dense_peak_flops_per_s(gpu, subject.inputs.compute_format(subject.deployment))
    if peak is None or gpu.hbm_bytes_per_s is None:
        return None
    return peak, gpu.hbm_bytes_per_s


def requests_that_fit(subject: Subject, tokens: int) -> Interval | None:
    """Requests of so many tokens that one replica's KV cache holds; ``None``: cannot be told."""
    from pytest_llmserve.units import Interval

    vram = subject.plan.vram
    held = subject.changed({"max_model_len": tokens}).plan.kv
    if vram is None or held is None or not held.request_bytes:
        return None
    low, expected, high = (max(0, left) // held.request_bytes for left in vram.kv_available_bytes)
    return Interval(low, expected, high)


def pays_off_from(subject: Subject) -> int | None:
    """Shortest context from which a step with KV cache has the lower floor; ``None``: at none.

    Raises:
        ValueError: the GPU's bandwidth or its peak for the model's dtype is not known.
    """
    from pytest_llmserve.engine.memoization import kv_cache_pays_off_from

    found = rates(subject)
    if found is None:
        raise ValueError(NO_FLOOR)
    return kv_cache_pays_off_from(subject.costs, *found)


def decode_batch(subject: Subject) -> int:
    """Sequences that decode together on one replica at the declared load; 1 without one."""
    load = subject.facts.workload
    if load is None:
        return 1
    return -(-load.concurrency // subject.deployment.settings.data_parallel_size.value)


def decode_context(subject: Subject) -> int:
    """Tokens that a sequence holds in the middle of its output; 1 without a workload."""
    load = subject.facts.workload
    return 1 if load is None else load.prompt_tokens + load.output_tokens // 2


def prompt_tokens(subject: Subject) -> int:
    """The declared prompt; without one, a full chunk of the scheduler."""
    load = subject.facts.workload
    if load is not None:
        return load.prompt_tokens
    settings = subject.deployment.settings
    longest = settings.max_model_len.value or settings.max_num_batched_tokens.value
    return min(settings.max_num_batched_tokens.value, longest)
