from __future__ import annotations

from typing import TYPE_CHECKING

import engine_specs as specs
import pytest

from pytest_llmserve.engine.costs import NominalModel, StepCosts, step_costs
from pytest_llmserve.engine.memoization import (
    GenerationCost,
    kv_cache_pays_off_from,
    with_kv_cache,
    without_kv_cache,
)
from pytest_llmserve.engine.phases import decode_step, prefill

if TYPE_CHECKING:
    from collections.abc import Callable

PEAK, BANDWIDTH = 989.4e12, 3.35e12  # H100 SXM, bf16
LLAMA = step_costs(specs.llama_31_8b())


def test_nominal_70b() -> None:
    # 140 GFLOP a token: 100 tokens from one cost 100 of them with a cache, 5,050 without
    costs = NominalModel(num_params=70 * 10**9).costs()
    assert with_kv_cache(costs, 1, 100).flops == 100 * 140 * 10**9
    assert without_kv_cache(costs, 1, 100).flops == 5_050 * 140 * 10**9


@pytest.mark.parametrize("costs", [LLAMA, step_costs(specs.gemma_3_27b())], ids=["8b", "gemma"])
@pytest.mark.parametrize(("prompt", "new"), [(1, 1), (1, 7), (1_020, 9)])
def test_sums_equal_the_steps_they_are_made_of(costs: StepCosts, prompt: int, new: int) -> None:
    cached = with_kv_cache(costs, prompt, new)
    steps = [prefill(costs, prompt)]
    steps += [decode_step(costs, 1, prompt + i) for i in range(1, new)]
    assert cached.flops == sum(int(step.flops) for step in steps)
    assert cached.cache_read_bytes == sum(int(step.kv_read_bytes) for step in steps)
    anew = without_kv_cache(costs, prompt, new)
    assert anew.flops == sum(int(prefill(costs, prompt + i).flops) for i in range(new))


def test_the_price_is_the_cache() -> None:
    assert with_kv_cache(LLAMA, 1_000, 25).cache_bytes == 1_024 * 131_072
    assert without_kv_cache(LLAMA, 1_000, 25).cache_bytes == 0
    states = step_costs(specs.qwen3_next_caches())
    held = with_kv_cache(states, 10, 1).cache_bytes
    assert held == 36 * 1_097_728 + 10 * 12 * 2_048


def test_growth() -> None:
    # matrices: n against n^2; attention: n^2 against n^3
    def ratios(generate: Callable[[StepCosts, int, int], GenerationCost]) -> tuple[float, float]:
        small, large = generate(LLAMA, 1, 10_000), generate(LLAMA, 1, 20_000)
        return (
            large.matmul_flops / small.matmul_flops,
            large.attention_flops / small.attention_flops,
        )

    assert ratios(with_kv_cache) == pytest.approx((2, 4), rel=1e-3)
    assert ratios(without_kv_cache) == pytest.approx((4, 8), rel=0.1)


def test_one_token_needs_no_cache() -> None:
    assert with_kv_cache(LLAMA, 50, 1).flops == without_kv_cache(LLAMA, 50, 1).flops
    assert with_kv_cache(LLAMA, 50, 2).flops < without_kv_cache(LLAMA, 50, 2).flops


def test_where_the_cache_begins_to_save_time() -> None:
    # running 295 tokens anew takes as long as reading the weights once: the ridge of an H100
    found = kv_cache_pays_off_from(NominalModel(num_params=70 * 10**9).costs(), PEAK, BANDWIDTH)
    assert found == 296
    exact = kv_cache_pays_off_from(LLAMA, PEAK, BANDWIDTH)
    assert exact is not None
    assert 290 < exact < 340


def test_pays_off_exactly_from_there() -> None:
    length = kv_cache_pays_off_from(LLAMA, PEAK, BANDWIDTH)
    assert length is not None

    def anew_s(context: int) -> float:
        cost = prefill(LLAMA, context)
        return max(int(cost.flops) / PEAK, LLAMA.weight_bytes / BANDWIDTH)

    def cached_s(context: int) -> float:
        cost = decode_step(LLAMA, 1, context)
        return max(int(cost.flops) / PEAK, int(cost.floor_bytes) / BANDWIDTH)

    assert anew_s(length) > cached_s(length)
    assert anew_s(length - 1) <= cached_s(length - 1)


def test_a_cache_that_never_pays() -> None:
    # a cache that takes longer to read back than a token takes to compute
    heavy = NominalModel(num_params=1_000, kv_bytes_per_token=10**9).costs()
    assert kv_cache_pays_off_from(heavy, PEAK, BANDWIDTH, limit=4_096) is None


@pytest.mark.parametrize(("prompt", "new"), [(0, 1), (1, 0)])
def test_empty_generations_are_refused(prompt: int, new: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        with_kv_cache(LLAMA, prompt, new)
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        without_kv_cache(LLAMA, prompt, new)
