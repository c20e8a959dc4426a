"""Chunked prefill, mixed steps, whole requests and single layers, against what they consist of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from engine_specs import llama_31_70b, mixtral_8x7b
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmserve.engine.costs import step_costs
from pytest_llmserve.engine.parallel import Rank
from pytest_llmserve.engine.phases import decode_step, prefill
from pytest_llmserve.engine.roofline import floor_time_s
from pytest_llmserve.engine.schedules import (
    chunked_prefill,
    costs_by_layer,
    expert_bounds,
    mixed_step,
    request_floor_s,
)
from pytest_llmserve.strategies import model_specs

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec

PEAK, BANDWIDTH = 989_400 * 10**9, 3_350 * 10**9  # H100 SXM, NVIDIA's datasheet


def total(costs: Any, name: str) -> int:
    return sum(int(getattr(cost, name)) for cost in costs)


@settings(max_examples=80, deadline=None)
@given(model_specs(), st.integers(1, 20_000), st.integers(1, 9_000), st.data())
def test_chunks_cost_at_least_the_uncut_prompt(
    spec: ModelSpec, prompt: int, chunk: int, data: st.DataObject
) -> None:
    chunk = max(chunk, prompt // 50)
    cached = data.draw(st.integers(0, prompt - 1))
    costs = step_costs(spec)
    parts = chunked_prefill(costs, prompt, chunk, cached_tokens=cached)
    whole = prefill(costs, prompt, cached_tokens=cached)
    assert len(parts) == -(-(prompt - cached) // chunk)
    assert total(parts, "flops") == int(whole.flops)
    assert total(parts, "floor_bytes") >= int(whole.floor_bytes)
    if len(parts) == 1:
        assert parts[0] == whole


@settings(max_examples=80, deadline=None)
@given(model_specs(), st.integers(1, 256), st.integers(1, 9_000), st.integers(1, 4_000), st.data())
def test_a_mixed_step_saves_the_weights_once(
    spec: ModelSpec, batch: int, context: int, chunk: int, data: st.DataObject
) -> None:
    costs = step_costs(spec)
    end = chunk + data.draw(st.integers(0, 5_000))
    mixed = mixed_step(costs, batch, context, chunk, end)
    decode, part = (
        decode_step(costs, batch, context),
        prefill(costs, end, cached_tokens=end - chunk),
    )
    assert int(mixed.flops) == int(decode.flops) + int(part.flops)
    assert int(mixed.floor_bytes) <= int(decode.floor_bytes) + int(part.floor_bytes)
    assert int(mixed.floor_bytes) >= max(int(decode.floor_bytes), int(part.floor_bytes))


@settings(max_examples=60, deadline=None)
@given(model_specs(), st.sampled_from([1, 2, 4]), st.integers(1, 5_000))
def test_the_sum_of_layers_is_the_whole(spec: ModelSpec, tp: int, context: int) -> None:
    if spec.num_attention_heads % tp or any(size % tp for size in spec.intermediate_sizes):
        tp = 1
    rank = Rank(tensor_parallel_size=tp)
    try:
        whole = decode_step(step_costs(spec, rank), 1, context)
    except ValueError:
        tp, rank = 1, Rank()
        whole = decode_step(step_costs(spec), 1, context)
    parts = costs_by_layer(spec, rank)
    steps = [decode_step(part.costs, 1, context) for part in parts]
    assert sorted(i for part in parts for i in part.indices) == list(range(spec.num_layers))
    assert total(steps, "flops") == int(whole.flops)
    assert total(steps, "kv_read_bytes") == int(whole.kv_read_bytes)
    rows = (len(parts) - 1) * parts[0].costs.embedding_bytes_per_token
    assert total(steps, "weight_bytes") - rows == int(whole.weight_bytes)


@settings(max_examples=60, deadline=None)
@given(model_specs(attention="full"), st.integers(1, 3_000), st.integers(1, 60))
def test_a_request_is_at_most_its_steps(spec: ModelSpec, prompt: int, output: int) -> None:
    costs = step_costs(spec)
    floor = request_floor_s(costs, PEAK, BANDWIDTH, prompt_tokens=prompt, output_tokens=output)
    first = prefill(costs, prompt)
    steps = [first, *(decode_step(costs, 1, prompt + i) for i in range(1, output))]
    one_by_one = sum(floor_time_s(int(s.flops), int(s.floor_bytes), PEAK, BANDWIDTH) for s in steps)
    assert floor <= one_by_one * (1 + 1e-9)
    roofs = max(total(steps, "flops") / PEAK, total(steps, "floor_bytes") / BANDWIDTH)
    assert floor >= roofs * (1 - 1e-9)


def test_a_request_of_70b_takes_its_reads() -> None:
    """139 GB of weights at 3.35 TB/s are 41.5 ms a token: 99 of them 4.1 s, and the prefill."""
    costs = step_costs(llama_31_70b())
    floor = request_floor_s(costs, PEAK, BANDWIDTH, prompt_tokens=1000, output_tokens=100)
    assert floor == pytest.approx(99 * 0.0415 + 2 * 69.5e9 * 1000 / PEAK, rel=0.02)


def test_experts_of_a_batch() -> None:
    """Mixtral: 2 of 8 a token."""
    costs = step_costs(mixtral_8x7b())
    fewest, expected, most = expert_bounds(costs, 1)
    assert (fewest, most) == (2, 2)
    assert expected == pytest.approx(2.0)
    fewest, expected, most = expert_bounds(costs, 3)
    assert (fewest, most) == (2, 6)
    assert expected == pytest.approx(8 * (1 - 0.75**3))
    assert expert_bounds(costs, 1000)[2] == 8
    with pytest.raises(ValueError, match="has no routed experts"):
        expert_bounds(step_costs(llama_31_70b()), 1)


@pytest.mark.parametrize(("prompt", "chunk", "cached"), [(10, 0, 0), (10, 4, 10), (0, 4, 0)])
def test_empty_chunks_are_refused(prompt: int, chunk: int, cached: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        chunked_prefill(step_costs(mixtral_8x7b()), prompt, chunk, cached_tokens=cached)


@settings(max_examples=80, deadline=None)
@given(model_specs(), st.integers(1, 4_000), st.integers(1, 9_000))
def test_throughput_never_falls_with_the_batch(spec: ModelSpec, batch: int, context: int) -> None:
    costs = step_costs(spec)

    def tokens_per_s(size: int) -> float:
        cost = decode_step(costs, size, context)
        return size / floor_time_s(int(cost.flops), int(cost.floor_bytes), PEAK, BANDWIDTH)

    assert tokens_per_s(batch + 1) >= tokens_per_s(batch) * (1 - 1e-12)
