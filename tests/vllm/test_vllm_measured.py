"""Measured terms against start-up logs that anyone can read.

GiB as the logs print them: H100 rows are vLLM 0.19.0 of the llm-d campaign (April 2026) and the
llm-d planner page (0.11), the others name their GitHub thread.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from planning import gpu, heads, latent, llama_8b, model, settings

from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.models.spec import Experts, IndexerCache, ModelSpec
from pytest_llmserve.runtimes.vllm.measured import (
    activation_bytes,
    graph_bytes,
    non_torch_bytes,
    shares_of_bar,
    sum_of,
)
from pytest_llmserve.runtimes.vllm.plan import make_plan
from pytest_llmserve.units import GIB, ZERO, Interval

LLAMA = llama_8b()
V11, V19, V32 = Version("0.11.0"), Version("0.19.0"), Version("0.32.0")
MOE = Experts(num_experts=32, num_experts_per_tok=4, moe_intermediate_size=2880)


def dense(vocab: int, hidden: int, mlp: int, **more: Any) -> ModelSpec:
    return model(
        [heads(8, 128)], vocab_size=vocab, hidden_size=hidden, intermediate_sizes=(mlp,), **more
    )


@pytest.mark.parametrize(
    ("spec", "version", "changed", "logged_gib"),
    [
        (dense(151936, 5120, 25600), V11, {}, 5.64),  # Qwen3-32B
        (dense(151936, 1024, 3072), V11, {}, 5.56),  # Qwen3-0.6B
        (dense(128256, 8192, 28672), V11, {}, 4.84),  # Llama-3.3-70B-FP8
        (
            dense(151936, 4096, 12288),  # Qwen3-8B-FP8, gh-34681159919
            Version("0.10.2"),
            {"max_num_seqs": 256, "max_num_batched_tokens": 2048},
            1.40,
        ),
        (dense(128256, 4096, 14336), V19, {}, 1.89),  # Llama-3.1-8B
        (dense(32016, 4096, 11008), V19, {}, 0.77),  # CodeLlama-7B
        (dense(152064, 3584, 18944), V19, {}, 2.21),  # Qwen2.5-7B
        (dense(100352, 5120, 17920), V19, {}, 1.52),  # phi-4
        (
            dense(262208, 5376, 21504, model_type="gemma3", is_multimodal=True),
            V19,
            {},
            3.99,
        ),
        (dense(201088, 2880, 2880, experts=MOE), V19, {}, 2.87),  # gpt-oss-20b
        (dense(128256, 8192, 28672), V19, {"tensor_parallel_size": 2}, 1.96),
    ],
)
def test_logged_peak_is_inside(
    spec: ModelSpec, version: Version, changed: dict[str, int], logged_gib: float
) -> None:
    found = activation_bytes(settings(**changed), version, spec)
    assert found.low <= logged_gib * GIB <= found.high
    assert found.expected == pytest.approx(logged_gib * GIB, abs=0.35 * GIB)


def test_stage_that_does_not_sample_has_less() -> None:
    # Llama-3.1-8B in two stages, 0.19.0: 1.10 GiB.
    found = activation_bytes(settings(), V19, LLAMA, is_sampling_stage=False)
    assert found.low <= 1.10 * GIB <= found.high
    assert found.expected < activation_bytes(settings(), V19, LLAMA).expected


def test_sparse_mla_workspace_is_counted() -> None:
    spec = model([(latent(), IndexerCache(index_head_dim=128))])
    plain = model([latent()])
    for length, factor in ((131072, 5), (819200, 2)):
        stated = settings(max_model_len=length)
        more = activation_bytes(stated, V32, spec).expected
        less = activation_bytes(stated, V32, plain).expected
        assert more - less == factor * length * 1152


def test_encoder_pass_only_where_the_tower_is_loaded() -> None:
    spec = dense(248320, 2560, 9216, model_type="qwen3_5", is_multimodal=True)
    text_only = activation_bytes(settings(language_model_only=True), V32, spec)
    assert activation_bytes(settings(), V32, spec).high > text_only.high


@pytest.mark.parametrize(
    ("version", "tp", "logged_gib"),
    [
        (V11, 1, 0.13),
        (V19, 1, 0.25),
        (V11, 2, 1.38),
        (V19, 2, 2.07),
        (V19, 4, 2.21),
        (V32, 4, 0.95),
    ],
)
def test_logged_non_torch_is_inside(version: Version, tp: int, logged_gib: float) -> None:
    found = non_torch_bytes(settings(tensor_parallel_size=tp), version)
    assert found.low <= logged_gib * GIB <= found.high


@pytest.mark.parametrize(
    ("layers", "experts", "logged_gib"),
    [
        (36, None, 0.68),  # Qwen3-8B-FP8
        (28, None, 0.10),  # Qwen3-0.6B
        (24, MOE, 0.39),  # gpt-oss-20b
        (36, MOE, 1.03),  # gpt-oss-120b
        (48, MOE, 2.37),  # Qwen3-Next-80B-A3B
        (78, MOE, 4.99),  # GLM-5.2-NVFP4, the estimate that was subtracted
    ],
)
def test_logged_graphs_are_inside(layers: int, experts: Experts | None, logged_gib: float) -> None:
    spec = model([heads(8, 128)], experts=experts)
    found = graph_bytes(settings(), spec, layers)
    assert found.low <= logged_gib * GIB <= found.high


def test_no_graphs_when_eager() -> None:
    assert graph_bytes(settings(has_cuda_graphs=False), LLAMA, 32) == ZERO


@given(
    st.integers(1, 4096),
    st.integers(1, 65536),
    st.sampled_from(["0.8.5", "0.16.0", "0.17.0", "0.23.0", "0.33.0"]),
)
def test_larger_batches_never_take_less(seqs: int, tokens: int, version: str) -> None:
    def peak(**changed: Any) -> Interval:
        return activation_bytes(settings(**changed), Version(version), LLAMA)

    base = peak(max_num_seqs=seqs, max_num_batched_tokens=tokens)
    assert base.low >= 0
    # Never narrower than what one command swings from boot to boot.
    assert base.high - base.low >= 0.25 * GIB
    for more in (
        peak(max_num_seqs=seqs + 64, max_num_batched_tokens=tokens),
        peak(max_num_seqs=seqs, max_num_batched_tokens=tokens + 512),
    ):
        assert all(a <= b for a, b in zip(base, more, strict=True))


intervals = st.builds(
    lambda expected, below, above: Interval(expected - below, expected, expected + above),
    *[st.integers(0, 1 << 40)] * 3,
)


@given(st.lists(intervals, min_size=1, max_size=4))
def test_shares_add_up_to_the_bar_of_the_sum(terms: list[Interval]) -> None:
    shares = shares_of_bar(terms)
    whole = sum_of(terms)
    assert sum(share.expected for share in shares) == whole.expected
    for end in ("low", "high"):
        added = sum(getattr(share, end) for share in shares)
        # Rounded outwards, a byte a term.
        assert abs(added - getattr(whole, end)) <= 2 * len(terms) + whole.high * 1e-12
    for share, term in zip(shares, terms, strict=True):
        assert term.low - 1 <= share.low <= share.expected <= share.high <= term.high + 1


def test_errors_that_are_independent_add_up_like_deviations() -> None:
    assert sum_of([Interval(-3, 0, 30), Interval(6, 10, 50)]) == Interval(5, 10, 60)


@pytest.mark.parametrize(
    ("share", "logged_gib"),
    [(0.9, 48.66), (0.95, 55.65)],
)
def test_data_parallel_experts_take_more(share: float, logged_gib: float) -> None:
    # Two reports of 0.10.1: Qwen3-Coder-480B-FP8, DP 8 with expert parallelism on H20 141 GB
    # (139.8 GiB, 8,192 tokens and 1,024 sequences each).
    spec = find_in_catalogue("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8")
    wide = {"data_parallel_size": 8, "enable_expert_parallel": True, "max_model_len": 262144}
    found = make_plan(
        settings(**wide, gpu_memory_utilization=share),
        version=Version("0.10.1"),
        model=spec,
        gpu=gpu(total_gib=139.8),
    ).vram
    assert found is not None
    assert found.kv_available_bytes.low <= logged_gib * GIB <= found.kv_available_bytes.high
    assert found.kv_available_bytes.expected == pytest.approx(logged_gib * GIB, abs=2 * GIB)
