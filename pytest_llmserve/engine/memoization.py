"""What a KV cache saves and what it costs: generation with keys and values kept or made anew.

Without a cache every step runs the whole sequence again. Generating ``n`` tokens costs O(n) passes
of a token through the matrices with a cache and O(n^2) without; attention costs O(n^2) and O(n^3).
The price is memory that grows with every token, and reading it back in every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmserve.engine.exact import integers
from pytest_llmserve.engine.phases import decode_step
from pytest_llmserve.engine.roofline import floor_time_s

if TYPE_CHECKING:
    from pytest_llmserve.engine.costs import StepCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationCost:
    """Operations of generating tokens for one sequence on one GPU, and the cache they need."""

    matmul_flops: int
    attention_flops: int
    cache_bytes: int
    """Held at the end: the price of the cache."""
    cache_read_bytes: int
    """Read back over all steps."""

    @property
    def flops(self) -> int:
        """All operations."""
        return self.matmul_flops + self.attention_flops


def with_kv_cache(costs: StepCosts, prompt_tokens: int, new_tokens: int) -> GenerationCost:
    """One prefill, then one token a step: each position passes the matrices once.

    Raises:
        ValueError: an empty prompt or nothing to generate.
    """
    prompt, last = _lengths(prompt_tokens, new_tokens)
    attention = held = read = 0
    for part in costs.attention:
        before = int(part.reach.pairs(prompt))
        decoded = int(part.reach.pairs(last)) - before
        attention += part.prefill_flops_per_pair * before + part.decode_flops_per_pair * decoded
        read += part.bytes_per_token * decoded
        held += part.bytes_per_token * part.reach.held(last)
    matmul = last * _per_token(costs) + new_tokens * costs.head_flops_per_token
    return GenerationCost(
        matmul_flops=matmul,
        attention_flops=attention,
        cache_bytes=held + costs.state_bytes,
        cache_read_bytes=read + (new_tokens - 1) * costs.state_bytes,
    )


def without_kv_cache(costs: StepCosts, prompt_tokens: int, new_tokens: int) -> GenerationCost:
    """Every step runs the prompt and all tokens so far again.

    Raises:
        ValueError: an empty prompt or nothing to generate.
    """
    prompt, last = _lengths(prompt_tokens, new_tokens)
    passes = _sum_to(last) - _sum_to(prompt - 1)
    attention = sum(
        part.prefill_flops_per_pair
        * (part.reach.pairs_of_all_prefixes(last) - part.reach.pairs_of_all_prefixes(prompt - 1))
        for part in costs.attention
    )
    return GenerationCost(
        matmul_flops=passes * _per_token(costs) + new_tokens * costs.head_flops_per_token,
        attention_flops=attention,
        cache_bytes=0,
        cache_read_bytes=0,
    )


def kv_cache_pays_off_from(
    costs: StepCosts, peak_flops_per_s: float, bytes_per_s: float, *, limit: int = 1 << 24
) -> int | None:
    """Shortest context from which a step with the cache has the lower roofline floor, in tokens.

    By operations alone the cache pays from the second token on. In time it pays later: running a
    few hundred tokens again is hidden behind reading the weights once, and a cached step must read
    the cache besides. So the answer is near the GPU's ridge point (H100 SXM, 16 bit: about 300).

    Returns:
        ``None`` where it does not pay up to ``limit`` tokens.
    """

    def pays(context: int) -> bool:
        cached = decode_step(costs, 1, context)
        anew = context * (_per_token(costs) + costs.state_flops_per_token)
        anew += costs.head_flops_per_token
        anew += sum(
            part.prefill_flops_per_pair * int(part.reach.pairs(context)) for part in costs.attention
        )
        step = floor_time_s(
            int(cached.flops), int(cached.floor_bytes), peak_flops_per_s, bytes_per_s
        )
        return floor_time_s(anew, int(cached.weight_bytes), peak_flops_per_s, bytes_per_s) > step

    high = 2
    while not pays(high):
        high *= 2
        if high > limit:
            return None
    low = high // 2  # does not pay (or is 1, where both run one token)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def _lengths(prompt_tokens: int, new_tokens: int) -> tuple[int, int]:
    """The prompt and the last position that is read: the last token made is never fed back."""
    integers("prompt_tokens", prompt_tokens, 1)
    integers("new_tokens", new_tokens, 1)
    return prompt_tokens, prompt_tokens + new_tokens - 1


def _per_token(costs: StepCosts) -> int:
    return costs.flops_per_token + sum(e.flops_per_token for e in costs.experts)


def _sum_to(count: int) -> int:
    return count * (count + 1) // 2
