"""Blocks, printed capacity and the start-up check.

The tables are outside figures: what vLLM computed and printed on a stand-in GPU, 0.14.1 to 0.32.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from planning import (
    gemma_3_27b,
    gpt_oss,
    heads,
    latent,
    llama_8b,
    model,
    pool,
    settings,
    state,
)

from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.runtimes.vllm.kv_pool import NO_MEMORY_SAYS, concurrent_batches
from pytest_llmserve.runtimes.vllm.version_rules import kv_rules
from pytest_llmserve.units import GIB

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec

LLAMA = llama_8b()
GEMMA3 = gemma_3_27b()
GPT_OSS_20B = gpt_oss(24)
KIMI_K2 = model([latent()] * 61)
PHI3 = model([heads(32, 96, 262144)] * 32)
QWEN35 = model(
    [*[state("gdn", (3, 8192), (32, 128, 128), recurrent_bits=32)] * 3, heads(2, 256)] * 10
)
NEMOTRON_56B = model(
    [
        *[state("mamba2", (3, 20480), (256, 64, 256), recurrent_bits=32, chunk_size=128)] * 54,
        *[heads(8, 128)] * 10,
    ]
)
SCOUT = model(
    [heads(8, 128) if i % 4 == 3 else heads(8, 128, 8192, kind="chunked") for i in range(48)]
)
OVERRIDE: dict[str, Any] = {"num_gpu_blocks_override": 100, "max_model_len": 8192}


@pytest.mark.parametrize(
    ("spec", "version", "changed", "pool_gib", "blocks", "concurrency", "tokens"),
    [
        (LLAMA, "0.32.0", {}, 16.1, 8243, 1.0062, 131888),
        (LLAMA, "0.32.0", {"max_model_len": 32000}, 20, 10240, 5.12, 163840),
        (LLAMA, "0.14.1", OVERRIDE, 20, 100, 0.1953125, 1600),
        (
            LLAMA,
            "0.32.0",
            {"tensor_parallel_size": 16, "decode_context_parallel_size": 2},
            20,
            81920,
            20.0,
            2621440,
        ),
        (GEMMA3, "0.32.0", {}, 18, 14745, 1.0013, 131241),
        (GEMMA3, "0.14.1", {"max_model_len": 8192}, 30, 24576, 6.845682, 56160),
        (GEMMA3, "0.20.2", {"max_model_len": 8192}, 30, 24576, 6.845682, 56079),
        (
            GEMMA3,
            "0.25.1",
            {"max_model_len": 65536, "max_num_batched_tokens": 2048},
            30,
            24576,
            4.677579,
            306549,
        ),
        (
            GEMMA3,
            "0.26.0",
            {"max_model_len": 65536, "max_num_batched_tokens": 2048},
            30,
            24576,
            4.081036,
            267454,
        ),
        (
            GEMMA3,
            "0.32.0",
            {"max_model_len": 16384, "disable_hybrid_kv_cache_manager": True},
            30,
            3963,
            3.870117,
            63408,
        ),
        (GPT_OSS_20B, "0.32.0", {}, 40, 109226, 11.840217, None),
        (
            GPT_OSS_20B,
            "0.14.1",
            {"max_model_len": 65536, "tensor_parallel_size": 2},
            30,
            163840,
            35.486246,
            1310720,
        ),
        (
            GPT_OSS_20B,
            "0.26.0",
            {"max_model_len": 65536, "tensor_parallel_size": 2},
            30,
            163840,
            31.943849,
            2093472,
        ),
        (KIMI_K2, "0.32.0", {"max_model_len": 4096}, 20, 19099, 74.605469, 305584),
        (
            KIMI_K2,
            "0.19.1",
            {
                "max_model_len": 8192,
                "tensor_parallel_size": 8,
                "decode_context_parallel_size": 8,
            },
            30,
            28649,
            447.640625,
            3667072,
        ),
        (PHI3, "0.32.0", {}, 100, 17066, 2.082998, 273022),
        (QWEN35, "0.32.0", {"max_model_len": 262144}, 40, 1985, 7.784314, 2040611),
        (
            QWEN35,
            "0.32.0",
            {
                "max_model_len": 16384,
                "tensor_parallel_size": 2,
                "enable_prefix_caching": False,
            },
            30,
            2978,
            156.736842,
            2567976,
        ),
        (NEMOTRON_56B, "0.32.0", {"max_model_len": 8192}, 40, 254, 12.7, 104038),
        (NEMOTRON_56B, "0.28.0", {"max_model_len": 8192}, 30, 190, 13.571429, 111177),
        (NEMOTRON_56B, "0.27.1", {"max_model_len": 8192}, 30, 186, 13.285714, 108836),
        (NEMOTRON_56B, "0.14.1", {"max_model_len": 8192}, 30, 186, 13.285714, 109824),
        (
            NEMOTRON_56B,
            "0.14.1",
            {"max_model_len": 8192, "enable_prefix_caching": False},
            30,
            190,
            23.75,
            111456,
        ),
    ],
)
def test_printed_capacity(
    spec: ModelSpec,
    version: str,
    changed: dict[str, Any],
    pool_gib: float,
    blocks: int,
    concurrency: float,
    tokens: int | None,
) -> None:
    found = pool(spec, version, **changed)
    count = found.num_blocks(int(pool_gib * GIB))
    assert count == blocks
    length = changed.get("max_model_len", 131072)
    printed, times = found.capacity(count, length)
    assert times == pytest.approx(concurrency, abs=6e-5)
    if tokens is not None:
        assert printed == tokens


@pytest.mark.parametrize(
    ("spec", "version", "changed", "pool_gib", "need", "available", "estimate"),
    [
        (LLAMA, "0.32.0", {}, 16, "16.0", "16.0", 131056),
        (LLAMA, "0.28.0", {}, 15.99, "16.0", "15.99", 130976),
        (LLAMA, "0.29.0", {}, 15.99, "16.0", "15.99", 130960),
        (LLAMA, "0.32.0", {}, 0.5, "16.0", "0.5", 4080),
        (LLAMA, "0.32.0", {}, 2, "16.0", "2.0", 16368),
        (LLAMA, "0.32.0", OVERRIDE, 20, "1.0", "0.19", 1584),
        (LLAMA, "0.20.2", OVERRIDE, 20, "1.0", "0.2", 1600),
        (GEMMA3, "0.32.0", {}, 4, "17.98", "4.0", 7472),
        (GEMMA3, "0.32.0", {}, 10, "17.98", "10.0", 26512),
        (GEMMA3, "0.32.0", {}, 17.9, "17.98", "17.9", 130048),
        (SCOUT, "0.32.0", {"max_model_len": 10485760}, 40, "483.38", "40.0", 800064),
    ],
)
def test_words_of_a_refusal(
    spec: ModelSpec,
    version: str,
    changed: dict[str, Any],
    pool_gib: float,
    need: str,
    available: str,
    estimate: int,
) -> None:
    length = changed.get("max_model_len", 131072)
    answer = pool(spec, version, **changed).check(int(pool_gib * GIB), length)
    assert not answer.fits
    possessive = "models's" if version == "0.20.2" else "model's"
    assert answer.server_says == (
        f"To serve at least one request with the {possessive} max seq len ({length}), "
        f"({need} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({available} GiB). Based on the available memory, the estimated maximum model length "
        f"is {estimate}."
    )
    assert answer.estimated_max_len == estimate


def test_null_block_is_reserved_since_0_29() -> None:
    assert pool(LLAMA, "0.28.0").check(16 * GIB, 131072).fits
    assert not pool(LLAMA, "0.29.0").check(16 * GIB, 131072).fits
    assert pool(LLAMA, "0.29.0").check(16 * GIB + 2097152, 131072).fits


def test_override_fools_the_check_before_0_20() -> None:
    assert pool(LLAMA, "0.19.1", **OVERRIDE).check(20 * GIB, 8192).fits
    assert not pool(LLAMA, "0.20.2", **OVERRIDE).check(20 * GIB, 8192).fits


def test_worked_needs() -> None:
    # gpt-oss-120b, H100 server: 8192 + 1033 blocks of 589824 B on 0.33, 8192 + 521 up to 0.25.
    assert pool(gpt_oss(36), "0.33.0").need_bytes(131072) == 9225 * 589824
    assert pool(gpt_oss(36), "0.25.0").need_bytes(131072) == 8713 * 589824
    assert pool(GEMMA3, "0.33.0").need_bytes(131072) == 14726 * 1310720
    assert pool(LLAMA, "0.33.0").need_bytes(131072) == 8192 * 2097152


def test_check_by_version_of_a_model_whose_first_layers_slide() -> None:
    # Up to 0.13 layers are summed, to 0.18 only the first group (here sliding) counts.
    blocks = {v: pool(GEMMA3, v).need_bytes(131072) for v in ("0.13.0", "0.18.1", "0.19.0")}
    sliding, full = 577, 8192  # blocks with T = 8192: cdiv(1023 + 8192, 16) + 1
    assert blocks["0.13.0"] == (52 * sliding + 10 * full) * 131072
    assert blocks["0.18.1"] == 10 * 131072 * sliding
    assert blocks["0.19.0"] == 10 * 131072 * (6 * sliding + full)


def test_old_versions_print_blocks() -> None:
    found = pool(LLAMA, "0.8.5")
    assert found.capacity(10240, 32768) == (163840, 5.0)


def test_no_memory_at_all() -> None:
    assert pool(LLAMA).check(-GIB, 131072).server_says == NO_MEMORY_SAYS
    # 0.29: nothing but the null block.
    assert pool(LLAMA).check(2097152, 1).server_says == NO_MEMORY_SAYS


def test_auto_length_is_the_longest_that_fits() -> None:
    answer = pool(LLAMA).check(10 * GIB, 131072, is_auto=True)
    assert answer.fits
    assert answer.max_model_len == 81904
    assert not pool(LLAMA).check(3000000, 131072, is_auto=True).fits
    assert pool(LLAMA).check(20 * GIB, 131072, is_auto=True).max_model_len == 131072


@pytest.mark.parametrize(
    ("version", "changed", "batches"),
    [
        ("0.25.1", {}, 1),
        ("0.26.0", {}, 2),
        ("0.32.0", {"async_scheduling": False}, 1),
        ("0.32.0", {"pipeline_parallel_size": 2}, 3),
        ("0.27.1", {"pipeline_parallel_size": 2}, 2),
        ("0.32.0", {"pipeline_parallel_size": 2, "env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}, 2),
        ("0.32.0", {"pipeline_parallel_size": 2, "speculative_method": "suffix"}, 2),
    ],
)
def test_batches_in_flight(version: str, changed: dict[str, Any], batches: int) -> None:
    rules = kv_rules(Version(version))
    assert concurrent_batches(settings(**changed), rules, GEMMA3) == batches


def test_model_without_a_cache() -> None:
    found = pool(model([()]))
    assert found.num_blocks(GIB) == 1
    assert found.need_bytes(8192) == 0
    assert found.check(0, 8192).fits


def test_running_request_keeps_only_its_window() -> None:
    found = pool(GEMMA3)
    # 8192 full blocks and 6 x (1024 / 16 + 1) sliding ones.
    assert found.request_bytes(131072) == (8192 + 6 * 65) * 1310720
    assert found.request_bytes(131072) < found.need_bytes(131072)


MODELS = st.sampled_from([LLAMA, GEMMA3, GPT_OSS_20B, KIMI_K2, QWEN35, NEMOTRON_56B, SCOUT])
VERSIONS = st.sampled_from(
    ["0.8.5", "0.11.0", "0.13.0", "0.14.1", "0.18.1", "0.20.2", "0.28.0", "0.33.0"]
)
LENGTHS = st.integers(1, 1 << 20)
POOLS = st.integers(0, 64 * GIB)


@given(MODELS, VERSIONS, POOLS, POOLS)
def test_more_memory_never_gives_fewer_blocks(
    spec: ModelSpec, version: str, one: int, other: int
) -> None:
    found = pool(spec, version)
    assert found.num_blocks(min(one, other)) <= found.num_blocks(max(one, other))


@given(MODELS, VERSIONS, LENGTHS, LENGTHS)
def test_longer_requests_never_need_less(
    spec: ModelSpec, version: str, one: int, other: int
) -> None:
    found = pool(spec, version)
    assert found.need_bytes(min(one, other)) <= found.need_bytes(max(one, other))


@given(MODELS, VERSIONS, POOLS)
def test_estimated_length_is_the_boundary(spec: ModelSpec, version: str, size: int) -> None:
    found = pool(spec, version)
    longest = found.estimate_max_len(size, 1 << 20)
    if longest:
        assert found.check(size, longest).fits
    if longest < 1 << 20:
        assert not found.check(size, longest + 1).fits


@given(MODELS, st.sampled_from(["0.9.0", "0.19.1", "0.20.2", "0.33.0"]), POOLS, LENGTHS)
def test_concurrent_requests_fit_the_pool(
    spec: ModelSpec, version: str, size: int, length: int
) -> None:
    found = pool(spec, version)
    _, concurrency = found.capacity(found.num_blocks(size), length)
    assert int(concurrency) * found.request_blocks(length) * found.layout.bytes_per_block <= size
    assert found.request_bytes(length) <= (
        found.request_blocks(length) * found.layout.bytes_per_block
    )


def test_float32_state_of_qwen_3_5_4b() -> None:
    # gh-69494016274, 0.29.0 on an L4: 9.1 GiB are 267,842 tokens, 8.17x of 32,768.
    spec = find_in_catalogue("Qwen/Qwen3.5-4B")
    assert spec is not None
    found = pool(spec, "0.29.0", max_model_len=32768, max_num_batched_tokens=2048)
    tokens, times = found.capacity(found.num_blocks(round(9.1 * GIB)), 32768)
    assert tokens == 267842
    assert times == pytest.approx(8.17, abs=0.005)


@pytest.mark.parametrize(
    ("version", "needed_gib", "longest"),
    [
        # vllm-project/vllm#34076, 0.15.2rc1: Qwen3-Coder-30B, stages of 16 and 32 layers, 3.18 GiB.
        ("0.15.2rc1.dev93", 24.0, 34736),
        ("0.13.0", 8.0, 104208),
        ("0.17.0", 8.0, 104208),
    ],
)
def test_need_of_a_pipeline_stage(version: str, needed_gib: float, longest: int) -> None:
    spec = model([heads(4, 128)] * 48)
    found = pool(
        spec,
        version,
        pipeline_parallel_size=2,
        max_model_len=262144,
        env={"VLLM_PP_LAYER_PARTITION": "16,32"},
    )
    assert found.need_bytes(262144) == needed_gib * GIB
    assert found.estimate_max_len(round(3.18 * GIB), 262144) == pytest.approx(longest, abs=48)
