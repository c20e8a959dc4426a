"""Expectations: above their floor, inside their interval, and silent where nothing was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from engine_specs import gpu, llama_31_8b, llama_31_70b, mixtral_8x7b
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmserve.engine.costs import step_costs
from pytest_llmserve.engine.expected import (
    ExpectedTime,
    NoExpectation,
    distinct_experts,
    loaded_tpot_expected,
    memory_class,
    request_expected,
    tpot_expected,
    ttft_expected,
)
from pytest_llmserve.engine.latency import tpot_floor, ttft_floor
from pytest_llmserve.engine.parallel import Rank
from pytest_llmserve.engine.speed_table import DECODE, PREFILL, DecodeClass, PrefillClass
from pytest_llmserve.hardware.catalogue import load_gpu

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec

H100 = load_gpu("h100-sxm-80gb")
LLAMA = step_costs(llama_31_8b())


def told(found: ExpectedTime | NoExpectation) -> ExpectedTime:
    assert isinstance(found, ExpectedTime), found
    return found


def test_a_step_is_its_load_at_a_fraction_and_a_launch_a_layer() -> None:
    """15.0 GB at 3.35 TB/s are 4.48 ms: / 0.75 + 32 x 75 us is 8.4 ms.

    vLLM on an H100 took 8.0 to 9.6 ms a token of an 8B in bf16 in public tables.
    """
    step = told(tpot_expected(LLAMA, H100, "bfloat16"))
    assert step.expected_s == pytest.approx(15.01e9 / 3.35e12 / 0.75 + 32 * 75e-6, rel=2e-3)
    assert 0.0065 < step.low_s < 0.008 < step.expected_s < 0.0096 < step.high_s


def test_tensor_parallelism_adds_its_exchange() -> None:
    costs = step_costs(llama_31_70b(), Rank(tensor_parallel_size=2))
    step = told(tpot_expected(costs, H100, "bfloat16"))
    # two vectors of 8192 x 2 B in 80 layers, 2 (N - 1) / N of it over 450 GB/s
    assert costs.reduced_bytes_per_token == 2 * 80 * 8192 * 2
    load = tpot_floor(costs, H100, "bfloat16")
    assert load is not None
    rest = step.expected_s - load.floor_s / 0.75 - 80 * 75e-6
    assert rest == pytest.approx(costs.reduced_bytes_per_token / 450e9, rel=1e-3)


def test_experts_are_counted_by_coverage() -> None:
    """8 experts, 2 a token: one token touches 2, four touch 8 x (1 - 0.75^4) = 5.47."""
    assert distinct_experts(8, 2, 1) == pytest.approx(2)
    assert distinct_experts(8, 2, 4) == pytest.approx(5.4688, abs=1e-4)
    assert distinct_experts(8, 2, 10_000) == pytest.approx(8)
    # 256 experts over 8 ranks: of 8 that a token visits, one rank has 1; of 4 ranks' worth, all.
    assert distinct_experts(256, 8, 1, held=32) == pytest.approx(1)
    assert distinct_experts(256, 8, 10_000, held=4) == pytest.approx(4)


def test_ranks_of_whole_experts_touch_their_share() -> None:
    """8 experts over 4 ranks: 2 a rank, of which a token visits 2 x 2 / 8."""
    rank = Rank(tensor_parallel_size=4, expert_ranks=4, has_expert_parallel=True)
    (experts,) = step_costs(mixtral_8x7b(), rank).experts
    assert (experts.num_experts, experts.total_experts) == (2, 8)


def test_fp8_weights_are_multiplied_in_16_bit_where_the_gpu_has_no_fp8() -> None:
    """A100: 312 TFLOP/s in bf16, and int8 kernels that fp8 weights do not use."""
    device, prompt = load_gpu("a100-sxm-80gb"), 32_000
    first = told(ttft_expected(LLAMA, device, "fp8_block", prompt_tokens=prompt))
    wide = told(ttft_expected(LLAMA, device, "bfloat16", prompt_tokens=prompt))
    assert first.expected_s == wide.expected_s
    floor = ttft_floor(LLAMA, device, "fp8_block", prompt_tokens=prompt)
    assert floor is not None
    assert first.expected_s > 1.5 * floor.floor_s


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("h100-sxm-80gb", "HBM NVIDIA"),
        ("mi300x", "HBM AMD"),
        ("rtx-4090", "GeForce"),
        ("l40s", "GDDR NVIDIA"),
        ("gb10", "unified NVIDIA"),
        ("m2-ultra", None),
        ("gaudi3", None),
        ("rx-7900-xtx", None),
    ],
)
def test_memory_classes(part: str, expected: str | None) -> None:
    assert memory_class(load_gpu(part)) == expected


def test_where_little_was_measured_nothing_is_expected() -> None:
    moe = step_costs(mixtral_8x7b(), Rank(tensor_parallel_size=8))
    found = tpot_expected(moe, H100, "bfloat16", batch=16)
    assert isinstance(found, NoExpectation)
    assert found.reason == (
        "mixture-of-experts models on 8 x HBM NVIDIA parts at batch 16 were not measured "
        "often enough"
    )
    assert isinstance(tpot_expected(LLAMA, load_gpu("mi300x"), "bfloat16"), NoExpectation)
    assert isinstance(tpot_expected(LLAMA, load_gpu("gaudi3"), "bfloat16"), NoExpectation)
    nameless = gpu(memory_kind="HBM3", hbm_bytes_per_s=None, hbm_safe_bytes_per_s=None)
    assert isinstance(tpot_expected(LLAMA, nameless, "bfloat16"), NoExpectation)
    assert isinstance(
        ttft_expected(LLAMA, load_gpu("l4"), "bfloat16", prompt_tokens=9), NoExpectation
    )


def test_too_much_prefill_is_not_predicted() -> None:
    found = loaded_tpot_expected(
        LLAMA, H100, "bfloat16", concurrency=32, prompt_tokens=32_000, output_tokens=100
    )
    assert isinstance(found, NoExpectation)
    assert "of its time in prefill" in found.reason


def test_prefill_holds_decoding_up() -> None:
    """16 requests of 1000 + 500 tokens: 15 prefills in 500 steps."""
    load: dict[str, Any] = {"concurrency": 16, "prompt_tokens": 1000, "output_tokens": 500}
    step = told(tpot_expected(LLAMA, H100, "bfloat16", batch=16, context=1250))
    first = told(ttft_expected(LLAMA, H100, "bfloat16", prompt_tokens=1000))
    loaded = told(loaded_tpot_expected(LLAMA, H100, "bfloat16", **load))
    busy_s = first.expected_s - 0.03  # the GPU's own part: a user waits 30 ms longer
    assert loaded.expected_s == pytest.approx(step.expected_s + 15 / 500 * busy_s)
    whole = told(request_expected(LLAMA, H100, "bfloat16", **load))
    assert whole.expected_s == pytest.approx(first.expected_s + 499 * loaded.expected_s)
    assert whole.n == min(step.n, first.n)


def test_every_class_rests_on_measurements() -> None:
    rows: tuple[DecodeClass | PrefillClass, ...] = (*DECODE, *PREFILL)
    for row in rows:
        assert row.n >= 3
        if row.n < 5:
            assert row.low <= 0.75
            assert row.high >= 1.6
        assert row.source
        assert row.low <= 0.85
        assert row.high >= 1.25


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([llama_31_8b(), llama_31_70b(), mixtral_8x7b()]),
    st.sampled_from(["h100-sxm-80gb", "a100-sxm-80gb", "rtx-4090", "gb10", "mi300x", "l40s"]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 512),
    st.integers(1, 30_000),
)
def test_an_expectation_lies_above_its_floor(
    spec: ModelSpec, part: str, tp: int, batch: int, tokens: int
) -> None:
    device = load_gpu(part)
    costs = step_costs(spec, Rank(tensor_parallel_size=tp))
    step = tpot_expected(costs, device, "bfloat16", batch=batch, context=tokens)
    if isinstance(step, ExpectedTime):
        floor = tpot_floor(costs, device, "bfloat16", batch=batch, context=tokens)
        assert floor is not None
        assert floor.floor_s < step.expected_s
        assert step.low_s <= step.expected_s <= step.high_s
    first = ttft_expected(costs, device, "bfloat16", prompt_tokens=tokens)
    if isinstance(first, ExpectedTime):
        lowest = ttft_floor(costs, device, "bfloat16", prompt_tokens=tokens)
        assert lowest is not None
        assert first.expected_s > lowest.floor_s
