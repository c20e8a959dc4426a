"""The whole plan: ledger, pool, unknowns."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version
from planning import V32, gemma_3_27b, gpu, llama_8b, model, settings

from pytest_llmserve.runtimes.vllm.plan import make_plan
from pytest_llmserve.units import GIB, Interval

if TYPE_CHECKING:
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Plan
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

LLAMA = llama_8b()
H100 = gpu()


def plan(
    spec: ModelSpec | None = LLAMA,
    card: GpuSpec | None = H100,
    version: Version = V32,
    **changed: Any,
) -> Plan:
    return make_plan(settings(**changed), version=version, model=spec, gpu=card)


def test_ledger_adds_up() -> None:
    vram = plan().vram
    assert vram is not None
    assert vram.budget_bytes.expected == -(-vram.gpu_total_bytes.expected * 92 // 100)
    assert vram.weights_bytes == Interval.exact(16094077440)
    left = vram.budget_bytes - vram.weights_bytes - vram.activations_bytes
    assert vram.kv_available_bytes == left - vram.non_torch_bytes - vram.graphs_bytes
    assert vram.graphs_in_budget


@pytest.mark.parametrize(
    ("version", "env", "is_subtracted"),
    [
        ("0.17.1", {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"}, False),
        ("0.19.1", {}, False),
        ("0.19.1", {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"}, True),
        ("0.20.0", {}, True),
        ("0.33.0", {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}, False),
    ],
)
def test_graphs_come_off_the_budget_since_0_20(
    version: str, env: dict[str, str], is_subtracted: bool
) -> None:
    vram = plan(version=Version(version), env=env).vram
    assert vram is not None
    assert vram.graphs_in_budget is is_subtracted
    left = vram.budget_bytes - vram.weights_bytes - vram.activations_bytes - vram.non_torch_bytes
    assert vram.kv_available_bytes == (left - vram.graphs_bytes if is_subtracted else left)


def test_logged_pool_of_llama_8b_is_inside() -> None:
    # llm-d campaign: 0.19.0, H100 (79.19 GiB), utilisation 0.95: 58.11 GiB left for the cache.
    vram = plan(
        card=gpu(total_gib=79.19), version=Version("0.19.0"), gpu_memory_utilization=0.95
    ).vram
    assert vram is not None
    assert vram.kv_available_bytes.low <= 58.11 * GIB <= vram.kv_available_bytes.high
    assert vram.kv_available_bytes.expected == pytest.approx(58.11 * GIB, abs=0.3 * GIB)


def test_stated_cache_memory_is_exact() -> None:
    found = plan(kv_cache_memory_bytes=20 * GIB)
    assert found.vram is not None
    assert found.kv is not None
    assert found.vram.kv_available_bytes == Interval.exact(20 * GIB)
    assert found.kv.num_blocks == Interval.exact(10240)
    assert found.kv.capacity_tokens == Interval.exact(163840)
    assert found.kv.max_concurrency == (1.25, 1.25, 1.25)
    assert found.kv.need_bytes == 16 * GIB
    assert found.kv.bytes_per_token == 131072
    assert found.kv.bytes_per_block == 2097152
    assert found.kv.estimated_max_len == Interval.exact(131072)
    assert "kv-cache-memory-bytes" in found.vram.sources["kv_available"]


def test_estimate_goes_beyond_the_stated_length_up_to_the_models_own() -> None:
    found = plan(kv_cache_memory_bytes=20 * GIB, max_model_len=8192)
    assert found.kv is not None
    assert found.kv.estimated_max_len == Interval.exact(131072)


def test_sources_are_short_words() -> None:
    vram = plan(tensor_parallel_size=2).vram
    assert vram is not None
    assert vram.sources["weights"] == "8.03e9 params x 2 B / TP 2"
    assert vram.sources["budget"].startswith("0.92 x framework total")
    assert vram.sources["gpu_total"] == "test card"
    assert vram.sources["activations"].startswith("estimated, +/- ")
    eager = plan(has_cuda_graphs=False).vram
    assert eager is not None
    assert eager.sources["graphs"] == "no CUDA graphs"


def test_a_budget_that_the_weights_exceed_leaves_nothing() -> None:
    found = plan(card=gpu(total_gib=14.57), gpu_memory_utilization=0.9)
    assert found.vram is not None
    assert found.kv is not None
    assert found.vram.kv_available_bytes.high < 0
    assert found.kv.num_blocks == Interval.exact(0)
    assert found.kv.estimated_max_len == Interval.exact(0)


def test_all_stages_use_the_blocks_of_the_fullest() -> None:
    # gemma-3-27b: 31 layers a stage; the first holds one page more a block than the second.
    two = plan(gemma_3_27b(), pipeline_parallel_size=2, kv_cache_memory_bytes=20 * GIB)
    assert two.kv is not None
    widest = two.kv.bytes_per_block
    assert two.kv.num_blocks.expected == 20 * GIB // widest


def test_auto_length_is_shortened_to_the_pool() -> None:
    found = plan(is_auto_max_model_len=True, kv_cache_memory_bytes=10 * GIB, max_model_len=131072)
    assert found.kv is not None
    assert found.kv.max_model_len == 81904
    assert found.kv.need_bytes <= 10 * GIB


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"spec": None}, "model"),
        ({"card": None}, "GPU"),
        ({"card": replace(H100, memory_total_bytes=None)}, "GPU memory"),
        ({"max_model_len": None}, "max_model_len"),
        ({"dtype": None}, "dtype"),
        ({"speculative_method": "eagle"}, "draft model"),
        ({"tensor_parallel_size": 3}, "weights"),
        ({"kv_cache_dtype": "int3"}, "KV cache"),
        ({"spec": replace(LLAMA, unsupported=("audio tower",))}, "weights"),
    ],
)
def test_what_is_missing_is_said_and_nothing_guessed(changed: dict[str, Any], what: str) -> None:
    found = plan(**changed)
    assert (found.vram, found.kv) == (None, None)
    assert [item.what for item in found.unknown] == [what]
    assert found.unknown[0].why


def test_model_without_a_cache_has_no_pool() -> None:
    found = plan(model([()]))
    assert found.vram is not None
    assert found.kv is None
    assert found.unknown == ()


def test_a_plan_takes_less_than_two_milliseconds() -> None:
    stated = settings()
    make_plan(stated, version=V32, model=LLAMA, gpu=H100)
    best = min(_timed(stated) for _ in range(20))
    assert best < 0.002


def _timed(stated: VllmSettings) -> float:
    start = time.process_time()
    for _ in range(5):
        make_plan(stated, version=V32, model=LLAMA, gpu=H100)
    return (time.process_time() - start) / 5


def test_memory_for_images_between_processes_comes_off_the_pool() -> None:
    # --mm-ipc-gpu-memory-gb (since 0.25): off the pool, byte for byte.
    with_it, without = plan(mm_ipc_gib=2.0).vram, plan().vram
    assert with_it is not None
    assert without is not None
    ends = zip(without.kv_available_bytes, with_it.kv_available_bytes, strict=True)
    assert [more - less for more, less in ends] == [2 * GIB] * 3
