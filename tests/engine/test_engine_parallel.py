from __future__ import annotations

from typing import Any

import pytest

from pytest_llmserve.engine.parallel import (
    Rank,
    ShardingError,
    divide,
    local_shape,
    padded_vocab_rows,
    stage_layers,
)
from pytest_llmserve.models.spec import Group, Shard, Weight


def weight(rows: int, cols: int, shard: Shard, **more: Any) -> Weight:
    group = more.pop("group", Group.MLP)
    return Weight(name="w", group=group, rows=rows, cols=cols, shard=shard, **more)


def shape(of: Weight, **rank: Any) -> tuple[int, int, int]:
    local = local_shape(of, Rank(**rank))
    return local.rows, local.cols, local.copies


@pytest.mark.parametrize(
    ("num_layers", "stages", "expected"),
    [
        # vLLM 0.32 builds: 61 layers -> 31 + 30, 27 -> 14 + 13
        (61, 2, [31, 30]),
        (27, 2, [14, 13]),
        (80, 4, [20, 20, 20, 20]),
        # the remainder goes to the stages before the last, never to it
        (22, 4, [5, 6, 6, 5]),
        (23, 4, [6, 6, 6, 5]),
    ],
)
def test_layers_of_each_stage(num_layers: int, stages: int, expected: list[int]) -> None:
    found = stage_layers(num_layers, stages)
    assert [len(stage) for stage in found] == expected
    assert [index for stage in found for index in stage] == list(range(num_layers))


def test_a_partition_of_the_users() -> None:
    assert [list(s) for s in stage_layers(4, 2, (1, 3))] == [[0], [1, 2, 3]]
    with pytest.raises(ValueError, match="1,2 must have 2 entries that add up to 4 layers"):
        stage_layers(4, 2, (1, 2))
    with pytest.raises(ValueError, match="must have 2 entries"):
        stage_layers(4, 2, (4,))


def test_column_and_row() -> None:
    assert shape(weight(64, 32, Shard.COLUMN), tensor_parallel_size=4) == (16, 32, 1)
    assert shape(weight(64, 32, Shard.ROW), tensor_parallel_size=4) == (64, 8, 1)
    assert shape(weight(64, 32, Shard.REPLICATED), tensor_parallel_size=4) == (64, 32, 1)


def test_what_does_not_divide_is_named() -> None:
    with pytest.raises(ShardingError, match="w output 64 is not divisible by 3") as caught:
        shape(weight(64, 32, Shard.COLUMN), tensor_parallel_size=3)
    assert (caught.value.size, caught.value.divisor) == (64, 3)
    with pytest.raises(ShardingError, match="w input 32 is not divisible by 3"):
        shape(weight(64, 32, Shard.ROW), tensor_parallel_size=3)


def test_kv_heads_are_copied_beyond_their_number() -> None:
    kv = weight(8 * 128, 4096, Shard.KV, kv_heads=8)
    rows = [shape(kv, tensor_parallel_size=tp)[0] for tp in (1, 2, 8, 16)]
    assert rows == [1024, 512, 128, 128]
    with pytest.raises(ShardingError, match="w KV heads 8 is not divisible by 3"):
        shape(kv, tensor_parallel_size=3)
    with pytest.raises(ShardingError, match="w KV heads 8 is not divisible by 12"):
        shape(kv, tensor_parallel_size=12)


def test_vocabulary_is_padded_to_64() -> None:
    assert padded_vocab_rows(32_000, 1) == 32_000
    assert padded_vocab_rows(50_257, 1) == 50_304
    assert padded_vocab_rows(50_257, 8) == 6_288
    with pytest.raises(ShardingError, match=r"vocabulary .* 50304 is not divisible by 5"):
        padded_vocab_rows(50_257, 5)


def test_experts_are_cut_or_dealt_whole() -> None:
    gate = weight(2048, 7168, Shard.COLUMN, copies=256, group=Group.EXPERTS)
    assert shape(gate, tensor_parallel_size=8) == (256, 7168, 256)
    assert shape(gate, tensor_parallel_size=8, has_expert_parallel=True) == (2048, 7168, 32)
    # TP 8 x DP 2: sixteen ranks share the experts
    assert shape(gate, tensor_parallel_size=8, expert_ranks=16) == (128, 7168, 256)
    # 256 = 24 x 10 + 16: the first ranks hold one more
    dealt = shape(gate, tensor_parallel_size=8, expert_ranks=24, has_expert_parallel=True)
    assert dealt == (2048, 7168, 11)


def test_vision_towers_can_be_copied() -> None:
    tower = weight(64, 32, Shard.COLUMN, group=Group.VISION)
    assert shape(tower, tensor_parallel_size=4) == (16, 32, 1)
    assert shape(tower, tensor_parallel_size=4, is_vision_replicated=True) == (64, 32, 1)


def test_ranks_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Rank(tensor_parallel_size=0)
    with pytest.raises(ValueError, match="pipeline stage 2 is not one of 2"):
        Rank(pipeline_parallel_size=2, pipeline_stage=2)


def test_divide() -> None:
    assert divide("hidden size", 4096, 8) == 512
    with pytest.raises(ShardingError, match="hidden size 4096 is not divisible by 6"):
        divide("hidden size", 4096, 6)
