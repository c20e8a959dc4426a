"""Page bytes of each cache kind: figures that vLLM 0.32.0 computed on a stand-in GPU, or worked
by hand from its source where said."""

from __future__ import annotations

from typing import Any

import pytest
from planning import heads, latent, llama_8b, model, settings, state

from pytest_llmserve.engine.kv_formats import KvDtypeError
from pytest_llmserve.models.spec import IndexerCache, ModelSpec, SharedCache, StateCache
from pytest_llmserve.runtimes.vllm.kv_specs import StateRow, TokenRow, layer_rows


def rows(
    spec: ModelSpec, kv_cache_dtype: str = "auto", **changed: Any
) -> list[TokenRow | StateRow]:
    found = layer_rows(
        spec, settings(kv_cache_dtype=kv_cache_dtype, **changed), kv_cache_dtype=kv_cache_dtype
    )
    return [row for _, row in found]


def bytes_of_rows(spec: ModelSpec, kv_cache_dtype: str = "auto", **changed: Any) -> list[int]:
    """Bytes of a token in each row; no row is a state."""
    found = rows(spec, kv_cache_dtype, **changed)
    tokens = [row.bytes_per_token for row in found if isinstance(row, TokenRow)]
    assert len(tokens) == len(found)
    return tokens


def token_bytes(spec: ModelSpec, kv_cache_dtype: str = "auto", **changed: Any) -> int:
    (row,) = set(rows(spec, kv_cache_dtype, **changed))
    assert isinstance(row, TokenRow)
    return row.bytes_per_token


@pytest.mark.parametrize(
    ("kv_cache_dtype", "page_of_16"),
    [
        ("auto", 65536),
        ("fp8", 32768),
        ("fp8_e5m2", 32768),
        ("int8_per_token_head", 33792),
    ],
)
def test_page_of_llama_8b_by_cache_dtype(kv_cache_dtype: str, page_of_16: int) -> None:
    assert 16 * token_bytes(llama_8b(), kv_cache_dtype) == page_of_16


@pytest.mark.parametrize(
    ("preset", "slot"),
    [
        ("turboquant_k8v4", 196),
        ("turboquant_4bit_nc", 134),
        ("turboquant_k3v4_nc", 118),
        ("turboquant_3bit_nc", 102),
    ],
)
def test_turboquant_leaves_two_layers_at_each_end(preset: str, slot: int) -> None:
    found = bytes_of_rows(llama_8b(), preset)
    assert found == [4096] * 2 + [8 * slot] * 28 + [4096] * 2


def test_float32_model_doubles_its_cache() -> None:
    # gemma-2-9b on a T4 falls back to float32: page 262144 for 8 heads of 256.
    assert 16 * token_bytes(model([heads(8, 256)]), dtype="float32") == 262144


@pytest.mark.parametrize(("tp", "page_of_16"), [(1, 65536), (8, 8192), (16, 8192)])
def test_more_ranks_than_kv_heads_keep_one_head_each(tp: int, page_of_16: int) -> None:
    assert 16 * token_bytes(llama_8b(), tensor_parallel_size=tp) == page_of_16


@pytest.mark.parametrize(("kv_cache_dtype", "each"), [("auto", 1152), ("fp8", 576)])
def test_mla_is_whole_on_every_rank(kv_cache_dtype: str, each: int) -> None:
    assert token_bytes(model([latent()]), kv_cache_dtype, tensor_parallel_size=8) == each


def test_packed_mla_row() -> None:
    assert token_bytes(model([latent()]), "fp8_ds_mla") == 656


def test_mla_disabled_is_plain_attention_of_all_heads() -> None:
    # 128 heads / TP 8, key and value of 128 + 64, bf16 (0.33, read).
    found = token_bytes(model([latent()]), tensor_parallel_size=8, env={"VLLM_MLA_DISABLE": "1"})
    assert found == 16 * 2 * 192 * 2


def test_indexer_of_sparse_mla_is_132_bytes_whatever_the_dtype() -> None:
    # GLM-5.1: page of 64 tokens 8448 B beside 73728 B.
    spec = model([(latent(), IndexerCache(index_head_dim=128))])
    assert bytes_of_rows(spec) == [1152, 132]
    assert bytes_of_rows(spec, "fp8") == [576, 132]


def test_index_keys_of_minimax_m3_are_bf16() -> None:
    spec = model([(heads(4, 128), IndexerCache(index_head_dim=128))])
    assert bytes_of_rows(spec, "fp8")[1] == 256


def test_layers_that_share_a_cache_have_none() -> None:
    own = heads(2, 256)
    found = layer_rows(
        model([own, SharedCache(attention=own), own]), settings(), kv_cache_dtype="auto"
    )
    assert [index for index, _ in found] == [0, 2]


def test_minicpm3_pads_values_to_the_keys() -> None:
    spec = model([heads(40, 96, v_head_dim=64)], model_type="minicpm3")
    assert token_bytes(spec) == 40 * (96 + 96) * 2


def state_of(cache: StateCache, **changed: Any) -> int:
    (row,) = rows(model([cache]), **changed)
    assert isinstance(row, StateRow)
    return row.state_bytes


QWEN3_NEXT = state("gdn", (3, 8192), (32, 128, 128))
# NVIDIA-Nemotron-3-Nano-30B: 64 heads of 64, 8 groups of state 128, kernel 4, float32 state.
NEMOTRON_NANO = state("mamba2", (3, 4096 + 2 * 8 * 128), (64, 64, 128), recurrent_bits=32)


def test_gated_delta_net_state() -> None:
    # Worked: conv (3, 8192) bf16 and recurrent (32, 128, 128) bf16.
    assert state_of(QWEN3_NEXT) == 49152 + 1048576


def test_draft_tokens_add_convolution_rows() -> None:
    assert state_of(QWEN3_NEXT, num_speculative_tokens=2) == 49152 + 2 * 8192 * 2 + 1048576


def test_stated_state_dtype_wins_over_the_config() -> None:
    assert state_of(NEMOTRON_NANO) == 3 * 6144 * 2 + 64 * 64 * 128 * 4
    assert state_of(NEMOTRON_NANO, mamba_ssm_cache_dtype="float16") == 3 * 6144 * 2 + 64 * 64 * 256


def test_mamba2_repeats_groups_that_tp_does_not_divide() -> None:
    # mamba2-780m at TP 8: one group of 128, 48 heads of 64; the page vLLM 0.32.0 computed.
    cache = state("mamba2", (3, 3072 + 2 * 128), (48, 64, 128))
    assert state_of(cache) == 806400
    assert state_of(cache, tensor_parallel_size=8) == 102144


def test_unknown_cache_dtype_is_said() -> None:
    with pytest.raises(KvDtypeError, match="int3"):
        rows(llama_8b(), "int3")


def test_skipped_layers_keep_the_dtype_of_the_model() -> None:
    # --kv-cache-dtype-skip-layers takes positions and sliding_window (0.19).
    spec = model([heads(8, 128, 1024), heads(8, 128)] * 2)
    found = bytes_of_rows(spec, "fp8", kv_skip_layers=("1",))
    assert found == [2048, 4096, 2048, 2048]
    found = bytes_of_rows(spec, "fp8", kv_skip_layers=("sliding_window",))
    assert found == [4096, 2048, 4096, 2048]
    with pytest.raises(KvDtypeError, match="skip-layers odd"):
        rows(spec, "fp8", kv_skip_layers=("odd",))
