from __future__ import annotations

from typing import Any

import engine_specs as specs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmserve.engine.costs import NominalModel, step_costs
from pytest_llmserve.engine.expected import ExpectedTime, request_expected
from pytest_llmserve.engine.latency import (
    compute_format,
    decode_tokens_per_s_ceiling,
    dense_peak_flops_per_s,
    throughput_ceiling,
    tpot_floor,
    ttft_floor,
)
from pytest_llmserve.engine.roofline import Bound
from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.models.spec import Quantization

H100 = specs.gpu()
BF16 = "bfloat16"


def test_nominal_70b_on_an_h100() -> None:
    # 140 GB over 3.35 TB/s is 41.8 ms; at 1 FLOP/byte an H100 reaches 0.34 % of its peak
    floor = tpot_floor(NominalModel(num_params=70 * 10**9).costs(), H100, "float16")
    assert floor is not None
    assert floor.floor_s == pytest.approx(0.0418, abs=0.00005)
    assert floor.intensity_flop_per_byte == 1.0
    assert floor.ridge_flop_per_byte == pytest.approx(295, abs=0.5)
    assert floor.bound is Bound.MEMORY
    assert floor.flops / floor.floor_s / 989.4e12 == pytest.approx(0.0034, abs=0.00005)


def test_llama_31_70b_on_an_h100() -> None:
    # the same from its exact shape: 139.0 GB without the input embedding, 41.5 ms
    floor = tpot_floor(step_costs(specs.llama_31_70b()), H100, BF16)
    assert floor is not None
    assert floor.moved_bytes == 139_006_066_688 + 16_384 + 327_680
    assert floor.floor_s == pytest.approx(0.04149, abs=0.00001)
    assert floor.intensity_flop_per_byte == pytest.approx(1.0, abs=0.001)
    assert floor.bound is Bound.MEMORY


def test_prefill_of_512_tokens_is_compute_bound_on_an_h100() -> None:
    costs = step_costs(specs.llama_31_70b())
    floor = ttft_floor(costs, H100, BF16, prompt_tokens=512)
    assert floor is not None
    assert floor.bound is Bound.COMPUTE
    assert floor.floor_s == floor.flops / 989.4e12
    short = ttft_floor(costs, H100, BF16, prompt_tokens=128)
    assert short is not None
    assert short.bound is Bound.MEMORY


def test_decode_intensity_grows_with_batch_until_the_cache_caps_it() -> None:
    costs = step_costs(specs.llama_31_8b())

    def intensity(batch: int) -> float:
        floor = tpot_floor(costs, H100, BF16, batch=batch, context=8_192)
        assert floor is not None
        return floor.intensity_flop_per_byte

    found = [intensity(batch) for batch in (1, 4, 16, 64, 256, 1_024, 2**20)]
    assert found == sorted(found)
    # per sequence: FLOPs of a token over the KV it reads, whatever the batch
    flops = costs.flops_per_token + costs.head_flops_per_token + 4 * 32 * 128 * 32 * 8_192
    cap = flops / (8_192 * 131_072)
    assert found[-1] < cap
    assert found[-1] == pytest.approx(cap, rel=1e-3)
    assert cap < 295  # so that no batch makes it compute bound


def test_speculation_and_pipelines_divide_floors() -> None:
    costs = step_costs(specs.llama_31_8b())
    plain = tpot_floor(costs, H100, BF16)
    drafted = tpot_floor(costs, H100, BF16, tokens_per_step=4)
    assert plain is not None
    assert drafted is not None
    assert drafted.floor_s == plain.floor_s / 4
    one = ttft_floor(costs, H100, BF16, prompt_tokens=4_096)
    two = ttft_floor(costs, H100, BF16, prompt_tokens=4_096, pipeline_parallel_size=2)
    assert one is not None
    assert two is not None
    assert two.floor_s == one.floor_s / 2


def test_cached_prompts_lower_the_floor() -> None:
    costs = step_costs(specs.llama_31_8b())
    whole = ttft_floor(costs, H100, BF16, prompt_tokens=8_192)
    cached = ttft_floor(costs, H100, BF16, prompt_tokens=8_192, cached_tokens=8_000)
    assert whole is not None
    assert cached is not None
    assert cached.floor_s < whole.floor_s / 10


def test_throughput_ceiling() -> None:
    costs = step_costs(specs.llama_31_8b())
    floor = tpot_floor(costs, H100, BF16, batch=32, context=2_048)
    assert floor is not None
    found = decode_tokens_per_s_ceiling(costs, H100, BF16, batch=32, context=2_048)
    assert found == pytest.approx(32 / floor.floor_s)
    piped = decode_tokens_per_s_ceiling(
        costs, H100, BF16, batch=32, context=2_048, pipeline_parallel_size=2
    )
    assert piped == pytest.approx(64 / floor.floor_s)


def test_unknown_figures_give_no_floor() -> None:
    costs = step_costs(specs.llama_31_8b())
    no_bandwidth = specs.gpu(hbm_bytes_per_s=None)
    no_peak = specs.gpu(dense_flops_per_s={"fp32": 66_900 * 10**9})
    for gpu in (no_bandwidth, no_peak):
        assert tpot_floor(costs, gpu, BF16) is None
        assert ttft_floor(costs, gpu, BF16, prompt_tokens=512) is None
        assert decode_tokens_per_s_ceiling(costs, gpu, BF16, batch=1, context=1) is None


@pytest.mark.parametrize(
    ("fmt", "tflops"),
    [
        ("bfloat16", 989_400),
        ("float32", 494_700),
        ("fp8_block", 1_978_900),
        # 4-bit weights are computed in 16 bit where the part has no fp4
        ("int4", 989_400),
        ("nvfp4", 989_400),
        # int8 is not among this part's figures here: the 16-bit peak
        ("int8", 989_400),
        # mixed storage: the fastest there is
        ("mixed", 1_978_900),
    ],
)
def test_peak_by_format(fmt: str, tflops: int) -> None:
    assert dense_peak_flops_per_s(H100, fmt) == tflops * 10**9


def test_geforce_peaks_are_guarded() -> None:
    # RTX 4090: 165.2 TFLOP/s with fp32 accumulate, twice that with fp16; 1.2 x for the boost
    geforce = specs.gpu(
        is_boost_guarded=True,
        dense_flops_per_s={"fp16": 165_200 * 10**9, "fp32": 82_600 * 10**9},
    )
    assert dense_peak_flops_per_s(geforce, "float16") == 396_480 * 10**9
    assert dense_peak_flops_per_s(geforce, "float32") == 99_120 * 10**9


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown scheme or dtype 'bf16'; valid: .*bfloat16"):
        dense_peak_flops_per_s(H100, "bf16")


def test_format_of_a_model() -> None:
    fp8 = Quantization(method="fp8", scheme="fp8_block", bits=8)
    assert compute_format(specs.llama_31_8b()) == "bfloat16"
    assert compute_format(specs.llama_31_8b(fp8)) == "fp8_block"


def test_a_ceiling_of_requests() -> None:
    """An 8B on an H100: 1000 + 300 tokens spend 1299 x 2 x 7.5e9 FLOPs and little else."""
    costs = step_costs(specs.llama_31_8b())
    load = {"prompt_tokens": 1000, "output_tokens": 300}
    full = throughput_ceiling(costs, specs.gpu(), "bfloat16", concurrency=512, **load)
    assert full is not None
    assert full.requests_per_s == pytest.approx(989.4e12 / (2 * 7.5e9 * 1299), rel=0.05)
    assert full.output_tokens_per_s == pytest.approx(300 * full.requests_per_s)
    assert full.bound is Bound.COMPUTE
    # one at a time it is the weights, read for each token
    lone = throughput_ceiling(costs, specs.gpu(), "bfloat16", concurrency=1, **load)
    assert lone is not None
    assert lone.bound is Bound.MEMORY
    assert lone.requests_per_s == pytest.approx(1 / (299 * 15.0e9 / 3.35e12), rel=0.02)
    drafted = throughput_ceiling(
        costs, specs.gpu(), "bfloat16", concurrency=1, tokens_per_step=4, **load
    )
    assert drafted is not None
    assert drafted.requests_per_s == pytest.approx(4 * lone.requests_per_s)
    cached = throughput_ceiling(
        costs, specs.gpu(), "bfloat16", concurrency=512, cached_tokens=900, **load
    )
    assert cached is not None
    assert cached.requests_per_s > full.requests_per_s
    nothing = specs.gpu(hbm_bytes_per_s=None)
    assert throughput_ceiling(costs, nothing, "bfloat16", concurrency=1, **load) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.integers(1, 4000), st.integers(1, 800))
def test_what_is_expected_never_beats_the_ceiling(
    concurrency: int, prompt: int, output: int
) -> None:
    costs = step_costs(specs.llama_31_8b())
    device = load_gpu("h100-sxm-80gb")
    load: dict[str, Any] = {
        "prompt_tokens": prompt,
        "output_tokens": output,
        "concurrency": concurrency,
    }
    ceiling = throughput_ceiling(costs, device, "bfloat16", **load)
    request = request_expected(costs, device, "bfloat16", **load)
    assert ceiling is not None
    if isinstance(request, ExpectedTime):
        assert concurrency / request.expected_s <= ceiling.requests_per_s
