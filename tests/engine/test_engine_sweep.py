from __future__ import annotations

from typing import TYPE_CHECKING

import engine_specs as specs
import numpy as np
import pytest

from pytest_llmserve.engine import sweep
from pytest_llmserve.engine.attention import kv_bytes_per_request, request_bytes
from pytest_llmserve.engine.costs import step_costs
from pytest_llmserve.engine.phases import decode_step
from pytest_llmserve.engine.roofline import floor_time_s
from pytest_llmserve.engine.sweep import kv_sweep, tpot_floor_sweep_s

if TYPE_CHECKING:
    from pytest_llmserve.engine.exact import IntArray

GIB = 1 << 30
MODELS = (specs.llama_31_8b(), specs.gemma_3_27b(), specs.qwen3_next_caches())
POOLS = (20 * GIB, 18 * GIB, 7 * GIB)
CONTEXTS = np.array([1, 1_000, 4_096, 131_072])
CONCURRENCIES = np.array([1, 2, 7, 1_000, 100_000])


def test_every_cell_equals_the_scalar_functions() -> None:
    grid = kv_sweep([request_bytes(m) for m in MODELS], CONTEXTS, CONCURRENCIES, POOLS)
    assert grid.need_bytes.shape == grid.fits.shape == (3, 4, 5)
    for m, (model, pool) in enumerate(zip(MODELS, POOLS, strict=True)):
        for t, tokens in enumerate(CONTEXTS):
            one = kv_bytes_per_request(model, int(tokens))
            assert grid.request_bytes[m, t] == one
            assert grid.max_requests[m, t] == pool // one
            for n, count in enumerate(CONCURRENCIES):
                assert grid.need_bytes[m, t, n] == one * int(count)
                assert bool(grid.fits[m, t, n]) == (one * int(count) <= pool)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [request_bytes(m) for m in MODELS]
    whole = kv_sweep(models, CONTEXTS, CONCURRENCIES, POOLS)
    monkeypatch.setattr(sweep, "CHUNK_CELLS", 5)
    parts = kv_sweep(models, CONTEXTS, CONCURRENCIES, POOLS)
    assert (whole.need_bytes == parts.need_bytes).all()
    assert (whole.fits == parts.fits).all()


def test_a_chunk_never_holds_more_than_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def counted(left: IntArray, right: IntArray) -> IntArray:
        seen.append((left * right).size)
        return left * right

    monkeypatch.setattr(sweep, "CHUNK_CELLS", 10)
    monkeypatch.setattr(sweep, "mul", counted)
    kv_sweep([request_bytes(MODELS[0])], np.arange(1, 8), CONCURRENCIES, [GIB])
    assert seen == [10, 10, 10, 5]


def test_floors_over_a_grid() -> None:
    costs = step_costs(specs.gemma_3_27b())
    peak, bandwidth = 989.4e12, 3.35e12
    floors = tpot_floor_sweep_s(costs, peak, bandwidth, CONTEXTS, CONCURRENCIES)
    for t, tokens in enumerate(CONTEXTS):
        for n, count in enumerate(CONCURRENCIES):
            cost = decode_step(costs, int(count), int(tokens))
            one = floor_time_s(int(cost.flops), int(cost.floor_bytes), peak, bandwidth)
            assert floors[t, n] == pytest.approx(one, rel=1e-12)


def test_a_cell_past_int64_is_an_error() -> None:
    with pytest.raises(OverflowError):
        kv_sweep([request_bytes(MODELS[0])], np.array([2**40]), np.array([2**20]), [GIB])


def test_bad_axes_are_refused() -> None:
    models = [request_bytes(MODELS[0])]
    with pytest.raises(ValueError, match="1 models but 2 pools"):
        kv_sweep(models, CONTEXTS, CONCURRENCIES, [GIB, GIB])
    with pytest.raises(ValueError, match="contexts must be 1-dimensional"):
        kv_sweep(models, CONTEXTS.reshape(2, 2), CONCURRENCIES, [GIB])
    with pytest.raises(ValueError, match="concurrencies must be at least 1, got 0"):
        kv_sweep(models, CONTEXTS, np.array([0]), [GIB])
    with pytest.raises(TypeError, match="contexts must hold integers"):
        kv_sweep(models, np.array([1.5]), CONCURRENCIES, [GIB])
    with pytest.raises(ValueError, match="rates must be positive"):
        tpot_floor_sweep_s(step_costs(MODELS[0]), 0.0, 1.0, CONTEXTS, CONCURRENCIES)
