"""Decode and prefill of a server on its GPUs, for the roofline invariants."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_llmserve.engine.costs import step_costs
from pytest_llmserve.engine.latency import compute_format, tpot_floor, ttft_floor
from pytest_llmserve.engine.parallel import Rank
from pytest_llmserve.models.quantization import scheme_of

if TYPE_CHECKING:
    from pytest_llmserve.engine.costs import StepCosts
    from pytest_llmserve.engine.latency import Floor
    from pytest_llmserve.subject import Subject

NO_FLOOR = "cannot tell: no source states this GPU's bandwidth or its peak for the model's dtype"


def costs_of(subject: Subject) -> StepCosts:
    """What one GPU of the server reads and computes, in coefficients of batch and tokens."""
    deployment = subject.deployment
    model, settings = deployment.model, deployment.settings
    assert model is not None
    return step_costs(
        model,
        Rank(tensor_parallel_size=settings.tensor_parallel_size.value),
        partial(scheme_of, model.quantization) if model.quantization else None,
        kv_cache_dtype=settings.kv_cache_dtype.value,
    )


def decode_floor(subject: Subject, batch: int, context: int) -> Floor | None:
    """The floor of one decode step; ``None`` where the GPU's figures are unknown."""
    deployment = subject.deployment
    assert deployment.model is not None
    assert deployment.gpu is not None
    drafted = getattr(deployment.settings, "num_speculative_tokens", None)
    return tpot_floor(
        costs_of(subject),
        deployment.gpu,
        compute_format(deployment.model),
        batch=batch,
        context=context,
        tokens_per_step=1 + (drafted.value if drafted else 0),
    )


def prefill_floor(subject: Subject, prompt_tokens: int) -> Floor | None:
    """The floor of one prompt's prefill; ``None`` where the GPU's figures are unknown."""
    deployment = subject.deployment
    assert deployment.model is not None
    assert deployment.gpu is not None
    return ttft_floor(
        costs_of(subject),
        deployment.gpu,
        compute_format(deployment.model),
        prompt_tokens=prompt_tokens,
        pipeline_parallel_size=deployment.settings.pipeline_parallel_size.value,
    )


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
