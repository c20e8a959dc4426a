"""Work over several steps: chunked prefill, a step that mixes prefill and decode, a whole request.

A scheduler cuts prompts into chunks and adds them to running decode steps. That spends the same
FLOPs as an uncut prompt, and reads the weights and the cache so far again for each chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_llmserve.engine.costs import step_costs
from pytest_llmserve.engine.exact import integers
from pytest_llmserve.engine.memoization import with_kv_cache
from pytest_llmserve.engine.phases import PhaseCost, decode_step, prefill
from pytest_llmserve.engine.roofline import floor_time_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.engine.costs import StepCosts
    from pytest_llmserve.engine.parallel import Rank
    from pytest_llmserve.models.spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersCost:
    """Equal layers of a model, or what lies outside the layers (``indices`` empty)."""

    indices: tuple[int, ...]
    costs: StepCosts


def costs_by_layer(spec: ModelSpec, rank: Rank | None = None) -> tuple[LayersCost, ...]:
    """The coefficients of each group of equal layers, and of what lies outside them.

    Unquantised; the groups and the outside add up to :func:`costs.step_costs`.

    Raises:
        ShardingError: a dimension that a parallel size does not divide.
    """
    parts = [
        LayersCost(
            indices=group.indices,
            costs=step_costs(
                replace(
                    spec, layer_groups=(group,), outside=(), num_layers=len(group.indices),
                    is_tied=False,
                ),
                rank,
            ),
        )
        for group in spec.layer_groups
    ]  # fmt: skip
    outside = step_costs(replace(spec, layer_groups=(), num_layers=0), rank)
    return (*parts, LayersCost(indices=(), costs=outside))


def chunked_prefill(
    costs: StepCosts, prompt_tokens: int, chunk_tokens: int, *, cached_tokens: int = 0
) -> tuple[PhaseCost, ...]:
    """One prompt in chunks, each a step of its own; only the last one makes logits.

    Args:
        costs: the model on its GPU.
        prompt_tokens: of the prompt, at least 1.
        chunk_tokens: most tokens of a step (``max_num_batched_tokens``).
        cached_tokens: found in the prefix cache; fewer than ``prompt_tokens``.

    Raises:
        ValueError: an empty chunk, or a prompt that is wholly cached.
    """
    integers("chunk_tokens", chunk_tokens, 1)
    integers("prompt_tokens - cached_tokens", prompt_tokens - cached_tokens, 1)
    return tuple(_chunks(costs, prompt_tokens, chunk_tokens, cached_tokens))


def _chunks(costs: StepCosts, prompt: int, chunk: int, done: int) -> Iterator[PhaseCost]:
    while done < prompt:
        end = min(prompt, done + chunk)
        cost = prefill(costs, end, cached_tokens=done)
        if end < prompt:
            cost = replace(cost, flops=int(cost.flops) - costs.head_flops_per_token)
        yield cost
        done = end


def mixed_step(
    costs: StepCosts, batch: int, context: int, chunk_tokens: int, chunk_end: int
) -> PhaseCost:
    """One step that decodes ``batch`` sequences and runs a chunk of one prompt beside them.

    Args:
        costs: the model on its GPU.
        batch: sequences that decode, at least 1.
        context: tokens that each holds.
        chunk_tokens: of the prompt in this step, at least 1.
        chunk_end: tokens of the prompt after this step.

    Raises:
        ValueError: a chunk longer than the prompt so far.
    """
    decode = decode_step(costs, batch, context)
    chunk = prefill(costs, chunk_end, cached_tokens=chunk_end - chunk_tokens)
    # both pass the matrices together: read once, but for an embedding row of each token
    shared = int(prefill(costs, 1).weight_bytes) - costs.embedding_bytes_per_token
    return PhaseCost(
        flops=int(decode.flops) + int(chunk.flops),
        weight_bytes=int(decode.weight_bytes) + int(chunk.weight_bytes) - shared,
        kv_read_bytes=int(decode.kv_read_bytes) + int(chunk.kv_read_bytes),
        kv_write_bytes=int(decode.kv_write_bytes) + int(chunk.kv_write_bytes),
        activation_bytes=int(decode.activation_bytes) + int(chunk.activation_bytes),
    )


def request_floor_s(
    costs: StepCosts,
    peak_flops_per_s: float,
    bytes_per_s: float,
    *,
    prompt_tokens: int,
    output_tokens: int,
    cached_tokens: int = 0,
) -> float:
    """Shortest time of a whole request, alone on the GPU: its prefill, then a step a token.

    Raises:
        ValueError: an empty prompt, nothing to generate, or a wholly cached prompt.
    """
    first = prefill(costs, prompt_tokens, cached_tokens=cached_tokens)
    total = floor_time_s(int(first.flops), int(first.floor_bytes), peak_flops_per_s, bytes_per_s)
    if output_tokens == 1:
        return total
    # a step's FLOPs and bytes both rise with its context, so their sums bound the sum of steps
    whole = with_kv_cache(costs, prompt_tokens, output_tokens)
    start = with_kv_cache(costs, prompt_tokens, 1)
    steps = output_tokens - 1
    weights = steps * int(decode_step(costs, 1, 1).weight_bytes)
    moved = weights + whole.cache_read_bytes - start.cache_read_bytes
    flops = whole.flops - start.flops + steps * costs.state_flops_per_token
    return total + floor_time_s(flops, moved, peak_flops_per_s, bytes_per_s)


def expert_bounds(costs: StepCosts, batch: int) -> tuple[int, float, int]:
    """Experts of a layer that a batch touches: fewest, expected if tokens choose evenly, most.

    Raises:
        ValueError: a model without routed experts, or an empty batch.
    """
    from pytest_llmserve.engine.expected import distinct_experts

    integers("batch", batch, 1)
    if not costs.experts:
        raise ValueError(f"{costs.name} has no routed experts")
    kind = costs.experts[0]
    most = min(kind.num_experts, batch * kind.experts_per_token)
    expected = distinct_experts(
        kind.total_experts, kind.experts_per_token, batch, held=kind.num_experts
    )
    return kind.floor_experts, max(kind.floor_experts, expected), most
