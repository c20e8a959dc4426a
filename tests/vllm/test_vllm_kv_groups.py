"""Groups of layers: counts and page sizes that vLLM computed on a stand-in GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from planning import gemma_3_27b, gpt_oss, heads, latent, llama_8b, model, pool, state

from pytest_llmserve.models.spec import IndexerCache, ModelSpec
from pytest_llmserve.runtimes.vllm.kv_groups import KvLayoutError


def groups(
    spec: ModelSpec, version: str = "0.32.0", **changed: Any
) -> tuple[dict[tuple[int, str, int, int], int], int]:
    found = pool(spec, version, **changed).layout
    counted = Counter((g.num_layers, g.kind, g.block_size, g.page_bytes) for g in found.groups)
    return dict(counted), found.bytes_per_block


# Layers in the order of the config: full where the pattern says.
OLMO3 = model([heads(8, 128) if i % 4 == 3 else heads(8, 128, 4096) for i in range(64)])
# MiMo-V2-Flash: 9 full layers with 4 KV heads, 39 sliding with 8; keys of 192, values of 128.
MIMO_FULL = {0, 5, 11, 17, 23, 29, 35, 41, 47}
MIMO = model(
    [
        heads(4, 192, v_head_dim=128) if i in MIMO_FULL else heads(8, 192, 128, v_head_dim=128)
        for i in range(48)
    ]
)
# Gemma-4-26B-A4B: 25 sliding layers of 8 x 256, 5 full ones of 2 x 512.
GEMMA4 = model([heads(2, 512) if i % 6 == 5 else heads(8, 256, 1024) for i in range(30)])
GLM52 = model(
    [(IndexerCache(index_head_dim=128), latent()) if i < 21 else latent() for i in range(78)]
)
GDN = state("gdn", (3, 8192), (32, 128, 128))
QWEN3_NEXT = model([GDN, GDN, GDN, heads(2, 256)] * 12)
HYMBA = model([(heads(2, 128), GDN)] * 44)


@pytest.mark.parametrize(
    ("spec", "changed", "expected"),
    [
        (llama_8b(), {}, {(32, "full", 16, 65536): 1}),
        (
            gemma_3_27b(),
            {},
            {
                (9, "sliding", 16, 131072): 4,
                (8, "sliding", 16, 131072): 2,
                (10, "full", 16, 131072): 1,
            },
        ),
        (gpt_oss(24), {}, {(12, "sliding", 16, 32768): 1, (12, "full", 16, 32768): 1}),
        (OLMO3, {}, {(16, "sliding", 16, 65536): 3, (16, "full", 16, 65536): 1}),
        (
            MIMO,
            {},
            {
                (9, "full", 32, 81920): 1,
                (8, "sliding", 16, 81920): 4,
                (7, "sliding", 16, 81920): 1,
            },
        ),
        (GEMMA4, {}, {(5, "sliding", 16, 131072): 5, (5, "full", 32, 131072): 1}),
        (
            GEMMA4,
            {"tensor_parallel_size": 8, "kv_cache_dtype": "fp8"},
            {(5, "sliding", 128, 65536): 5, (5, "full", 64, 65536): 1},
        ),
        (GLM52, {}, {(99, "mixed", 64, 5928192): 1}),
        (QWEN3_NEXT, {}, {(12, "mamba", 544, 1114112): 3, (12, "full", 544, 1114112): 1}),
        (HYMBA, {}, {(44, "full", 1072, 1097728): 1, (44, "mamba", 1072, 1097728): 1}),
    ],
)
def test_groups(
    spec: ModelSpec, changed: dict[str, Any], expected: dict[tuple[int, str, int, int], int]
) -> None:
    assert groups(spec, **changed)[0] == expected


def test_a_block_has_a_page_for_each_layer_of_the_largest_group() -> None:
    assert groups(gemma_3_27b())[1] == 10 * 131072
    assert groups(QWEN3_NEXT)[1] == 12 * 1114112
    assert groups(GLM52)[1] == 5928192


@pytest.mark.parametrize(
    ("version", "sizes"), [("0.11.2", [7, 10, 7]), ("0.12.0", [7, 10, 7]), ("0.18.0", [10, 14])]
)
def test_near_sizes_share_groups_by_version(version: str, sizes: list[int]) -> None:
    # 14 sliding, 10 full: 1.4 is below the ratio of 0.18 (1.5) and above that of 0.12 (1.25).
    spec = model([heads(8, 64, 128), heads(8, 64)] * 10 + [heads(8, 64, 128)] * 4)
    found = [g.num_layers for g in pool(spec, version).layout.groups]
    assert sorted(found) == sorted(sizes)


def test_one_layer_more_does_not_halve_the_groups_since_0_12() -> None:
    spec = model([*[heads(8, 64, 128), heads(8, 64)] * 12, heads(8, 64)])
    assert [g.num_layers for g in pool(spec, "0.11.2").layout.groups] == [12, 7, 6]
    assert [g.num_layers for g in pool(spec, "0.12.0").layout.groups] == [12, 13]


def test_without_the_hybrid_manager_windows_count_in_full() -> None:
    off: dict[str, Any] = {"disable_hybrid_kv_cache_manager": True}
    assert groups(gemma_3_27b(), **off) == ({(62, "full", 16, 131072): 1}, 62 * 131072)
    # Figures of vLLM 0.32.0 for these two: pages of unequal size stay, in one mixed group.
    assert groups(GEMMA4, **off)[0] == {(30, "mixed", 16, 3604480): 1}
    assert groups(MIMO, **off)[0] == {(48, "mixed", 16, 3563520): 1}


def test_only_windows_stay_windows_without_the_hybrid_manager() -> None:
    spec = model([heads(32, 96, 262144)] * 32)
    off = groups(spec, disable_hybrid_kv_cache_manager=True)
    assert off[0] == {(32, "sliding", 16, 196608): 1}


def test_states_cannot_do_without_the_hybrid_manager() -> None:
    with pytest.raises(KvLayoutError, match="Failed to promote local KV cache specs"):
        groups(QWEN3_NEXT, disable_hybrid_kv_cache_manager=True)


def test_pages_that_do_not_divide_are_padded_since_0_27() -> None:
    spec = model([heads(8, 64, 128), heads(5, 64)] * 4)
    with pytest.raises(KvLayoutError, match="not divisible"):
        groups(spec, "0.26.0")
    assert groups(spec, "0.27.0")[0] == {
        (4, "sliding", 16, 32768): 1,
        (4, "full", 16, 32768): 1,
    }


CHUNKED = model(
    [heads(8, 128) if i % 4 == 3 else heads(8, 128, 8192, kind="chunked") for i in range(48)]
)


def test_chunked_layers_group_like_windows() -> None:
    # Llama-4-Scout on 0.32.0.
    assert groups(CHUNKED)[0] == {(12, "chunked", 16, 65536): 3, (12, "full", 16, 65536): 1}


def test_a_draft_layer_joins_the_grouping() -> None:
    # Qwen3-Next + MTP: 3 x 12 states and 13 full layers, 13 pages a block (0.32.0).
    found = pool(QWEN3_NEXT, speculative_method="mtp", num_speculative_tokens=2).layout
    assert [g.num_layers for g in found.groups] == [12, 12, 12, 13]
    assert found.bytes_per_block == 13 * found.groups[0].page_bytes


def test_a_stage_holds_its_own_layers_only() -> None:
    # gemma-3-27b in two stages: 26 sliding and 5 full on the first (0.32.0).
    found = pool(gemma_3_27b(), pipeline_parallel_size=2).layout
    counts: Counter[str] = Counter()
    for spec, count in found.layers:
        counts[spec.kind] += count
    assert counts == {"sliding": 26, "full": 5}
    assert sum(g.num_layers for g in found.groups) == 31
