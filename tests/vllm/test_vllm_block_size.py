"""Block sizes by backend, GPU and version, and the enlarged blocks of hybrids.

Outside figures: what vLLM 0.14.1 to 0.32.0 computed on a stand-in GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version
from planning import gpu, heads, latent, llama_8b, model, pool, settings, state

from pytest_llmserve.models.spec import IndexerCache, ModelSpec
from pytest_llmserve.runtimes.vllm.block_size import (
    attention_block_size,
    effective_kv_cache_dtype,
)
from pytest_llmserve.runtimes.vllm.version_rules import kv_rules

if TYPE_CHECKING:
    from pytest_llmserve.hardware.spec import GpuSpec

B200 = gpu((10, 0))
A100 = gpu((8, 0))
H100 = gpu((9, 0))
SPARSE = model([(latent(), IndexerCache(index_head_dim=128))])
MLA = model([latent()])


def block(spec: ModelSpec, card: GpuSpec = H100, version: str = "0.32.0", **changed: Any) -> int:
    return attention_block_size(settings(**changed), kv_rules(Version(version)), spec, card)


@pytest.mark.parametrize(
    ("spec", "card", "version", "tokens"),
    [
        (llama_8b(), H100, "0.32.0", 16),
        (llama_8b(), B200, "0.32.0", 16),
        (MLA, H100, "0.32.0", 16),
        (MLA, H100, "0.19.1", 16),
        (MLA, A100, "0.32.0", 16),
        (MLA, H100, "0.17.1", 64),
        (MLA, A100, "0.17.1", 16),
        (MLA, B200, "0.17.1", 64),
        (MLA, B200, "0.32.0", 32),
        (SPARSE, H100, "0.32.0", 64),
        (SPARSE, B200, "0.32.0", 64),
    ],
)
def test_backend_decides(spec: ModelSpec, card: GpuSpec, version: str, tokens: int) -> None:
    assert block(spec, card, version) == tokens


def test_user_decides_over_the_backend() -> None:
    assert block(llama_8b(), block_size=128) == 128


def test_named_backend() -> None:
    assert block(MLA, attention_backend="CUTLASS_MLA") == 128
    assert block(MLA, attention_backend="FLASHMLA") == 64
    assert block(MLA, attention_backend="TRITON_MLA") == 16


def test_wide_heads_with_fp8_cache_on_hopper_only() -> None:
    spec = model([heads(4, 512)])
    assert block(spec, kv_cache_dtype="fp8_e4m3") == 64
    assert block(spec, B200, kv_cache_dtype="fp8_e4m3") == 16
    assert block(spec) == 16


def test_turboquant_and_minimax_sparse_attention() -> None:
    assert block(llama_8b(), kv_cache_dtype="turboquant_k8v4") == 32
    assert block(model([(heads(4, 128), IndexerCache(index_head_dim=128))])) == 128


def test_sparse_mla_on_hopper_packs_any_fp8() -> None:
    assert effective_kv_cache_dtype(settings(kv_cache_dtype="fp8"), SPARSE, H100) == "fp8_ds_mla"
    assert effective_kv_cache_dtype(settings(kv_cache_dtype="fp8"), SPARSE, B200) == "fp8"
    assert effective_kv_cache_dtype(settings(), SPARSE, H100) == "auto"
    assert effective_kv_cache_dtype(settings(kv_cache_dtype="fp8"), MLA, H100) == "fp8"


# Qwen3.5-35B-A3B: 2 KV heads of 256; state conv (3, 8192) bf16 and (32, 128, 128) float32.
QWEN35 = model(
    [*[state("gdn", (3, 8192), (32, 128, 128), recurrent_bits=32)] * 3, heads(2, 256)] * 10
)
# Nemotron-H-56B: 256 heads of 64, 8 groups of state 256, 8 KV heads of 128.
MAMBA2 = state(
    "mamba2", (3, 16384 + 2 * 8 * 256), (256, 64, 256), recurrent_bits=32, chunk_size=128
)
NEMOTRON_56B = model([*[MAMBA2] * 54, *[heads(8, 128)] * 10])
# LFM2.5-VL-1.6B: states smaller than an attention page.
LFM2 = model([*[state("short_conv", (2, 2048), (0,))] * 10, *[heads(8, 64)] * 6])


@pytest.mark.parametrize(
    ("spec", "version", "changed", "tokens", "page"),
    [
        (QWEN35, "0.32.0", {}, 1056, 2162688),
        (QWEN35, "0.32.0", {"tensor_parallel_size": 4}, 528, 540672),
        (QWEN35, "0.32.0", {"tensor_parallel_size": 8}, 272, 278528),
        (QWEN35, "0.32.0", {"kv_cache_dtype": "fp8"}, 2096, 2146304),
        (QWEN35, "0.32.0", {"block_size": 64}, 1088, 2228224),
        (NEMOTRON_56B, "0.32.0", {}, 4128, 16908288),
        (NEMOTRON_56B, "0.28.0", {}, 4128, 16908288),
        (NEMOTRON_56B, "0.27.1", {}, 4224, 17301504),
        (NEMOTRON_56B, "0.14.1", {}, 4224, 17301504),
        (NEMOTRON_56B, "0.14.1", {"enable_prefix_caching": False}, 4128, 16908288),
        (LFM2, "0.32.0", {}, 16, 32768),
    ],
)
def test_hybrid_block_holds_a_whole_state(
    spec: ModelSpec, version: str, changed: dict[str, Any], tokens: int, page: int
) -> None:
    groups = pool(spec, version, **changed).layout.groups
    assert {group.page_bytes for group in groups} == {page}
    assert next(g.block_size for g in groups if g.kind == "full") == tokens


def test_state_block_is_the_context_where_prefixes_are_not_cached() -> None:
    groups = pool(QWEN35, max_model_len=16384, enable_prefix_caching=False).layout.groups
    assert {g.block_size for g in groups if g.kind == "mamba"} == {16384}
    assert {g.block_size for g in groups if g.kind == "full"} == {1056}


def test_model_without_attention_pads_nothing() -> None:
    # mamba2-780m: page 806400, block = context, one block a request.
    spec = model([state("mamba2", (3, 3072 + 2 * 128), (48, 64, 128))] * 48)
    found = pool(spec, max_model_len=2048)
    (group,) = found.layout.groups
    assert (group.block_size, group.page_bytes) == (2048, 806400)
    assert found.num_blocks(40 << 30) == 1109
    assert found.capacity(1109, 2048) == (2271232, 1109.0)
