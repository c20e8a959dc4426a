from __future__ import annotations

from typing import Any

import engine_specs as specs
import numpy as np
import pytest

from pytest_llmserve.engine.attention import (
    KvDtypeError,
    cache_token_bytes,
    cached_tokens,
    kv_bytes,
    kv_bytes_per_request,
    kv_bytes_per_token,
    kv_head_token_bytes,
    request_bytes,
    state_bytes,
)
from pytest_llmserve.engine.kv_formats import latent_token_bytes
from pytest_llmserve.engine.parallel import ShardingError
from pytest_llmserve.models.spec import (
    IndexerCache,
    KvCache,
    SharedCache,
    StateCache,
    StateTensor,
)

GIB = 1 << 30


def test_closed_form_of_the_reference_models() -> None:
    # Llama-2-7B: 32 layers, 32 KV heads of 128, FP16; Llama-3.1-70B: 80 layers, 8 KV heads of 128.
    assert kv_bytes(32, 32, 128, 2_048) == 1_073_741_824
    assert kv_bytes(80, 8, 128, 131_072) == 42_949_672_960
    assert kv_bytes(80, 8, 128, 131_072, 4, 1) == 2 * 42_949_672_960


def test_closed_form_on_arrays_and_its_errors() -> None:
    tokens = np.array([1, 2_048, 131_072])
    expected = [kv_bytes(80, 8, 128, int(t)) for t in tokens]
    assert specs.listed(kv_bytes(80, 8, 128, tokens)) == expected
    with pytest.raises(OverflowError):
        kv_bytes(80, 8, 128, np.array([2**45]))
    assert kv_bytes(80, 8, 128, 2**45) == 327_680 * 2**45
    with pytest.raises(ValueError, match="tokens must be at least 0"):
        kv_bytes(80, 8, 128, -1)
    with pytest.raises(TypeError, match="batch"):
        kv_bytes(80, 8, 128, 1, batch=1.5)  # type: ignore[call-overload]  # refused


def test_models_equal_the_closed_form() -> None:
    assert kv_bytes_per_request(specs.llama_2_7b(), 2_048) == 1_073_741_824
    assert kv_bytes_per_request(specs.llama_31_70b(), 131_072) == 42_949_672_960


def test_bytes_per_token_that_vllm_allots() -> None:
    # vLLM 0.32 and 0.33, page bytes / block size x layers.
    assert kv_bytes_per_token(specs.llama_31_8b()) == 131_072
    assert kv_bytes_per_request(specs.llama_31_8b(), 131_072) == 16 * GIB
    assert kv_bytes_per_token(specs.llama_31_70b(), "auto", 8) == 40_960
    # 8 KV heads: a ninth rank and beyond holds a copy
    assert kv_bytes_per_token(specs.llama_31_70b(), "auto", 16) == 40_960


def test_mla_is_whole_on_every_rank() -> None:
    v3 = specs.deepseek_v3_caches()
    assert kv_bytes_per_token(v3) == 61 * 1_152 == 70_272
    assert kv_bytes_per_token(v3, "auto", 8) == 70_272
    assert kv_bytes_per_token(v3, "fp8") == 35_136
    v32 = specs.deepseek_v3_caches(has_indexer=True)
    assert kv_bytes_per_token(v32, "fp8_ds_mla") == 61 * (656 + 132) == 48_068
    assert kv_bytes_per_token(v32) == 61 * (1_152 + 132)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        # K and V of one head of 128, one token, one layer: vLLM 0.32 pages / (block x heads).
        ("auto", 512),
        ("bfloat16", 512),
        ("fp8", 256),
        ("fp8_e5m2", 256),
        ("int8", 256),
        ("int8_per_token_head", 264),
        ("fp8_per_token_head", 264),
        ("int4_per_token_head", 136),
        ("nvfp4", 144),
        ("turboquant_k8v4", 196),
        ("turboquant_4bit_nc", 134),
        ("turboquant_k3v4_nc", 118),
        ("turboquant_3bit_nc", 102),
    ],
)
def test_bytes_of_a_head_by_kv_dtype(dtype: str, expected: int) -> None:
    assert kv_head_token_bytes(128, 128, dtype, 16) == expected


def test_scales_are_counted_in_whole_groups() -> None:
    # nvfp4: one byte for 16 elements; indexer keys: a float32 for 128
    assert kv_head_token_bytes(256, 256, "nvfp4", 16) == 2 * (128 + 16)
    assert kv_head_token_bytes(136, 136, "nvfp4", 16) == 2 * (68 + 9)
    assert cache_token_bytes(IndexerCache(index_head_dim=128 * 3)) == 384 + 12
    assert cache_token_bytes(IndexerCache(index_head_dim=129)) == 129 + 8


def test_float32_models_cache_float32() -> None:
    assert kv_head_token_bytes(128, 128, "auto", 32) == 1_024


def test_key_and_value_heads_may_differ() -> None:
    # MiMo-V2-Flash: keys of 192, values of 128
    assert kv_head_token_bytes(192, 128, "auto", 16) == 640


def test_an_unknown_kv_dtype_names_the_valid_ones() -> None:
    with pytest.raises(KvDtypeError, match=r"'fp16'.*attention heads.*auto, float16, bfloat16"):
        kv_head_token_bytes(128, 128, "fp16", 16)
    with pytest.raises(KvDtypeError, match=r"'fp8_ds_mla'.*attention heads"):
        kv_bytes_per_token(specs.llama_31_8b(), "fp8_ds_mla")
    with pytest.raises(KvDtypeError, match=r"'nvfp4'.*MLA.*nvfp4_ds_mla"):
        kv_bytes_per_token(specs.deepseek_v3_caches(), "nvfp4")


def test_packed_mla_rows_exist_for_one_shape() -> None:
    assert latent_token_bytes(512, 64, "nvfp4_ds_mla", 16) == 352
    with pytest.raises(KvDtypeError, match="not 256 and 32"):
        latent_token_bytes(256, 32, "fp8_ds_mla", 16)


def test_windows_stop_growing() -> None:
    gemma = specs.gemma_3_27b()
    assert kv_bytes_per_token(gemma) == 62 * 16 * 512
    per_layer = 16 * 512
    expected = per_layer * (10 * 131_072 + 52 * 1_024)
    assert kv_bytes_per_request(gemma, 131_072) == expected
    assert kv_bytes_per_request(gemma, 1_000) == 62 * per_layer * 1_000


def test_states_do_not_grow() -> None:
    model = specs.qwen3_next_caches()
    # vLLM 0.32: conv 49,152 B + recurrent 1,048,576 B a layer in bf16
    assert request_bytes(model).fixed_bytes == 36 * 1_097_728
    assert kv_bytes_per_request(model, 1_000) == 36 * 1_097_728 + 12 * 2_048 * 1_000
    assert kv_bytes_per_request(model, 0) == 36 * 1_097_728


def test_width_of_a_state() -> None:
    tensors = (
        StateTensor(shape=(3, 64), sharded_axis=1, role="conv"),
        StateTensor(shape=(8, 16, 32), sharded_axis=0, role="recurrent", dtype_bits=32),
    )
    cache = StateCache(kind="mamba2", tensors=tensors)
    assert state_bytes(cache) == 3 * 64 * 2 + 8 * 16 * 32 * 4
    assert state_bytes(cache, recurrent_dtype_bits=16) == 3 * 64 * 2 + 8 * 16 * 32 * 2
    plain = StateCache(
        kind="gdn", tensors=(StateTensor(shape=(8, 16), sharded_axis=0, role="recurrent"),)
    )
    assert state_bytes(plain, conv_dtype_bits=32) == 8 * 16 * 4  # follows the convolution
    assert state_bytes(cache, tensor_parallel_size=4) * 4 == state_bytes(cache)
    with pytest.raises(ShardingError, match="mamba2 conv state 64 is not divisible by 5"):
        state_bytes(cache, tensor_parallel_size=5)


def test_pages_of_mixed_models() -> None:
    # vLLM 0.32, blocks of 16 tokens: gpt-oss-120b (8 KV heads of 64) 32,768 B a page,
    # Gemma-3-27B (16 of 128) 131,072 B
    oss = KvCache(kind="full", num_heads=64, num_kv_heads=8, head_dim=64, v_head_dim=64)
    assert 16 * cache_token_bytes(oss) == 32_768
    gemma = specs.gemma_3_27b().layer_groups[0].layer.caches[0]
    assert 16 * cache_token_bytes(gemma) == 131_072


def test_shared_caches_take_nothing() -> None:
    inner = KvCache(kind="full", num_heads=8, num_kv_heads=2, head_dim=256, v_head_dim=256)
    shared = SharedCache(attention=inner)
    assert cache_token_bytes(inner) == 2_048
    assert cache_token_bytes(shared) == 0
    assert cached_tokens(shared, 100) == 0


def test_indexer_keys_beside_plain_heads_are_16_bit() -> None:
    # MiniMax-M3: 128 elements of bf16 a token; DeepSeek V3.2: 128 of fp8 and a float32 scale
    assert cache_token_bytes(IndexerCache(index_head_dim=128), is_latent_layer=False) == 256
    assert cache_token_bytes(IndexerCache(index_head_dim=128)) == 132


def test_tokens_that_a_layer_keeps() -> None:
    shape: dict[str, Any] = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "v_head_dim": 64}
    full = KvCache(kind="full", **shape)
    sliding = KvCache(kind="sliding", window=128, **shape)
    assert cached_tokens(full, 1_000) == 1_000
    kept = cached_tokens(sliding, np.array([1, 128, 129, 1_000]))
    assert specs.listed(kept) == [1, 128, 128, 128]


def test_pipeline_stages_add_up_to_the_whole() -> None:
    gemma = specs.gemma_3_27b()
    stages = [kv_bytes_per_token(gemma, stage=s) for s in (range(31), range(31, 62))]
    assert sum(stages) == kv_bytes_per_token(gemma)


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown dtype 'int8'.*bfloat16"):
        request_bytes(specs.replaced(specs.llama_2_7b(), dtype="int8"))
