from __future__ import annotations

import numpy as np
import pytest
from engine_specs import listed

from pytest_llmserve.engine.paging import (
    blocks_for,
    capacity_requests,
    capacity_requests_paged,
    capacity_tokens,
    contiguous_waste_tokens,
    paged_tokens,
    paged_waste_tokens,
    paging_saving,
)

GIB = 1 << 30


def test_blocks_of_a_sequence() -> None:
    # Llama-3.1-8B, 131,072 tokens in blocks of 16: 8,192 blocks of 2 MiB (vLLM 0.32)
    assert blocks_for(131_072, 16) == 8_192
    assert listed(blocks_for(np.array([0, 1, 16, 17]), 16)) == [0, 1, 1, 2]
    assert paged_tokens(17, 16) == 32
    assert paged_waste_tokens(17, 16) == 15
    assert listed(paged_waste_tokens(np.array([16, 17, 31]), 16)) == [0, 15, 1]


def test_contiguous_reserves_the_longest_length() -> None:
    assert contiguous_waste_tokens(512, 2_048) == 1_536
    with pytest.raises(ValueError, match="max_model_len - tokens must be at least 0, got -1"):
        contiguous_waste_tokens(2_049, 2_048)


def test_what_paging_saves() -> None:
    # Llama-2-7B (524,288 B a token), three requests under a limit of 2,048 tokens
    saving = paging_saving(
        (100, 512, 2_048), block_size=16, max_model_len=2_048, bytes_per_token=524_288
    )
    assert saving.contiguous_bytes == 3 * GIB
    assert saving.used_bytes == 2_660 * 524_288
    assert saving.paged_waste_bytes == 12 * 524_288
    assert saving.contiguous_waste_bytes == (3 * 2_048 - 2_660) * 524_288
    assert saving.saved_bytes == saving.contiguous_waste_bytes - saving.paged_waste_bytes


def test_a_length_above_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="got -1"):
        paging_saving((11,), block_size=16, max_model_len=10, bytes_per_token=1)


def test_capacity_counts_whole_blocks() -> None:
    # vLLM 0.32, Llama-3.1-8B on an H100 with a 20 GiB pool: 10,240 blocks, 163,840 tokens
    assert capacity_tokens(20 * GIB, 131_072, 16) == 163_840
    assert capacity_tokens(20 * GIB + 2_097_151, 131_072, 16) == 163_840
    assert capacity_requests(40 * GIB, 16 * GIB) == 2
    assert listed(capacity_requests(np.array([15, 16, 33]) * GIB, 16 * GIB)) == [0, 1, 2]


def test_capacity_in_blocks_can_be_less_than_in_bytes() -> None:
    # 10 blocks of 16; requests of 17 tokens take 2 blocks each, though 9 would fit by bytes
    pool = 160
    assert capacity_requests(pool, 17) == 9
    assert capacity_requests_paged(pool, 17, bytes_per_token=1, block_size=16) == 5


def test_blocks_of_one_token_waste_nothing() -> None:
    saving = paging_saving((5, 7), block_size=1, max_model_len=7, bytes_per_token=2)
    assert saving.paged_waste_bytes == 0
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        paging_saving((5,), block_size=0, max_model_len=7, bytes_per_token=2)
