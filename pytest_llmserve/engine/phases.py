"""Operations and bytes of the two phases of generation: prefill and one decode step.

Figures are per GPU, for the batch that the GPU's tensor-parallel group works on. Each argument is
a Python int or a numpy integer array; arrays broadcast, so one call covers a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmserve.engine.exact import add, integers, minimum, mul, sub

if TYPE_CHECKING:
    from pytest_llmserve.engine.costs import StepCosts
    from pytest_llmserve.engine.exact import IntLike


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCost:
    """What one GPU computes and moves."""

    flops: IntLike
    weight_bytes: IntLike
    kv_read_bytes: IntLike
    kv_write_bytes: IntLike
    activation_bytes: IntLike

    @property
    def floor_bytes(self) -> IntLike:
        """What no kernel can avoid to read: the weights and the cache."""
        return add(self.weight_bytes, self.kv_read_bytes)

    @property
    def moved_bytes(self) -> IntLike:
        """What GEMM after GEMM moves: also their inputs and outputs and the new cache entries."""
        return add(self.floor_bytes, self.kv_write_bytes, self.activation_bytes)


def decode_step(
    costs: StepCosts, batch: IntLike, context: IntLike, *, reads_distinct_experts: bool = False
) -> PhaseCost:
    """One token for each of ``batch`` sequences that then hold ``context`` tokens each.

    Args:
        costs: the model on its GPU.
        batch: sequences in the step, at least 1.
        context: tokens of each sequence, the new one included; at least 1.
        reads_distinct_experts: count min(E, batch x k) experts, the most that a step can read;
            else the k that it must read, which is all that a floor may claim.

    Raises:
        OverflowError: an array's result does not fit into int64.
    """
    batch, context = integers("batch", batch, 1), integers("context", context, 1)
    per_sequence: IntLike = mul(context, 0)
    read = add(per_sequence, costs.state_bytes)
    for attention in costs.attention:
        attended = attention.reach.attended(context)
        per_sequence = add(per_sequence, mul(attention.decode_flops_per_pair, attended))
        read = add(read, mul(attention.bytes_per_token, attended))
    token_flops = costs.head_flops_per_token + costs.state_flops_per_token + _flops_per_token(costs)
    written = costs.state_bytes + sum(a.bytes_per_token for a in costs.attention)
    return PhaseCost(
        flops=mul(batch, add(per_sequence, token_flops)),
        weight_bytes=_weight_bytes(costs, batch, batch, reads_distinct_experts),
        kv_read_bytes=mul(batch, read),
        kv_write_bytes=mul(batch, written),
        activation_bytes=mul(batch, costs.activation_bytes_per_token),
    )


def prefill(
    costs: StepCosts,
    prompt_tokens: IntLike,
    batch: IntLike = 1,
    *,
    cached_tokens: IntLike = 0,
    reads_distinct_experts: bool = False,
) -> PhaseCost:
    """The prompts of ``batch`` sequences up to their first token, weights read once.

    Args:
        costs: the model on its GPU.
        prompt_tokens: tokens of each prompt, at least 1.
        batch: prompts that share the pass.
        cached_tokens: of each prompt, found in the prefix cache; fewer than ``prompt_tokens``.
        reads_distinct_experts: count min(E, tokens x k) experts instead of the k of a floor.

    Raises:
        ValueError: a prompt that is wholly cached.
        OverflowError: an array's result does not fit into int64.
    """
    prompt = integers("prompt_tokens", prompt_tokens, 1)
    batch, cached = integers("batch", batch, 1), integers("cached_tokens", cached_tokens)
    new = integers("prompt_tokens - cached_tokens", sub(prompt, cached), 1)
    flops = add(mul(new, _flops_per_token(costs)), costs.head_flops_per_token)
    read: IntLike = mul(cached, 0)
    written: IntLike = add(mul(new, 0), costs.state_bytes)
    for attention in costs.attention:
        reach = attention.reach
        pairs = sub(reach.pairs(prompt), reach.pairs(cached))
        flops = add(flops, mul(attention.prefill_flops_per_pair, pairs))
        # the first new query reads what it reaches of the cached tokens
        seen = sub(reach.attended(add(cached, 1)), 1)
        read = add(read, mul(attention.bytes_per_token, seen))
        written = add(written, mul(attention.bytes_per_token, new))
    tokens = mul(batch, new)
    return PhaseCost(
        flops=mul(batch, flops),
        weight_bytes=_weight_bytes(costs, batch, tokens, reads_distinct_experts),
        kv_read_bytes=mul(batch, read),
        kv_write_bytes=mul(batch, written),
        activation_bytes=mul(tokens, costs.activation_bytes_per_token),
    )


def _flops_per_token(costs: StepCosts) -> int:
    return costs.flops_per_token + sum(e.flops_per_token for e in costs.experts)


def _weight_bytes(
    costs: StepCosts, batch: IntLike, tokens: IntLike, reads_distinct_experts: bool
) -> IntLike:
    """Matrices once, an embedding row a token, and the experts that the tokens visit."""
    rows = mul(tokens, costs.embedding_bytes_per_token)
    total = add(mul(batch, 0), rows, costs.weight_bytes)
    for experts in costs.experts:
        visited: IntLike = experts.floor_experts
        if reads_distinct_experts:
            visited = minimum(mul(tokens, experts.experts_per_token), experts.num_experts)
        total = add(total, mul(visited, experts.bytes_each))
    return total
