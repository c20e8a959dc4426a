from __future__ import annotations

import pytest

from pytest_llmserve.engine.roofline import (
    Bound,
    Gemm,
    arithmetic_intensity,
    attainable_flops_per_s,
    bound_of,
    floor_time_s,
    ridge_point,
    utilisation,
)

# H100 SXM: 989.4 TFLOP/s dense bf16 (1,979 is with sparsity), 3.35 TB/s (NVIDIA's datasheet)
PEAK, BANDWIDTH = 989.4e12, 3.35e12


def test_ridge_point_of_an_h100() -> None:
    assert ridge_point(PEAK, BANDWIDTH) == pytest.approx(295.34, abs=0.01)


def test_one_flop_per_byte_uses_a_third_of_a_percent() -> None:
    assert utilisation(1.0, PEAK, BANDWIDTH) == pytest.approx(0.0034, abs=0.00005)


def test_both_roofs_meet_at_the_ridge() -> None:
    ridge = ridge_point(PEAK, BANDWIDTH)
    assert attainable_flops_per_s(ridge / 2, PEAK, BANDWIDTH) == pytest.approx(PEAK / 2)
    assert attainable_flops_per_s(ridge, PEAK, BANDWIDTH) == pytest.approx(PEAK)
    assert attainable_flops_per_s(ridge * 2, PEAK, BANDWIDTH) == PEAK


def test_bounds_and_time() -> None:
    assert bound_of(294, 1, PEAK, BANDWIDTH) is Bound.MEMORY
    assert bound_of(296, 1, PEAK, BANDWIDTH) is Bound.COMPUTE
    assert bound_of(2, 1, 2.0, 1.0) is Bound.COMPUTE  # on the ridge itself
    assert floor_time_s(10, 5, 2.0, 5.0) == 5.0
    assert floor_time_s(10, 50, 2.0, 5.0) == 10.0


def test_gemm_of_512_tokens() -> None:
    # A 512-token prefill through an 8192 x 8192 projection in FP16: compute bound on an H100.
    gemm = Gemm(m=512, n=8192, k=8192)
    assert gemm.flops == 2 * 512 * 8192 * 8192
    assert gemm.moved_bytes == 2 * (512 * 8192 + 8192 * 8192 + 512 * 8192)
    assert gemm.intensity_flop_per_byte == pytest.approx(455.1, abs=0.05)
    assert bound_of(gemm.flops, gemm.moved_bytes, PEAK, BANDWIDTH) is Bound.COMPUTE
    one = Gemm(m=1, n=8192, k=8192)
    assert one.intensity_flop_per_byte == pytest.approx(1.0, abs=0.001)
    assert bound_of(one.flops, one.moved_bytes, PEAK, BANDWIDTH) is Bound.MEMORY


@pytest.mark.parametrize("rates", [(0, 1), (1, 0), (-1, 1)])
def test_rates_must_be_positive(rates: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="rates must be positive"):
        ridge_point(*rates)
    with pytest.raises(ValueError, match="rates must be positive"):
        floor_time_s(1, 1, *rates)


def test_no_intensity_of_nothing() -> None:
    with pytest.raises(ValueError, match="no intensity"):
        arithmetic_intensity(1, 0)
