from __future__ import annotations

import numpy as np
import pytest
from engine_specs import listed

from pytest_llmserve.engine.positions import Reach

REACHES = [
    Reach(),
    Reach("window", 1),
    Reach("window", 4),
    Reach("chunk", 1),
    Reach("chunk", 4),
    Reach("top", 3),
]


def read_one_by_one(reach: Reach, position: int) -> int:
    match reach.kind:
        case "full":
            return position
        case "chunk":
            start = (position - 1) // reach.limit * reach.limit
            return position - start
        case _:
            return len(range(1, position + 1)[-reach.limit :])


@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_closed_forms_equal_counting(reach: Reach) -> None:
    attended = [read_one_by_one(reach, position) for position in range(1, 31)]
    pairs = np.cumsum(attended)
    positions = np.arange(1, 31)
    assert [reach.attended(int(p)) for p in positions] == attended
    assert listed(reach.attended(positions)) == attended
    assert [reach.pairs(int(p)) for p in positions] == pairs.tolist()
    assert listed(reach.pairs(positions)) == pairs.tolist()
    prefixes = np.cumsum(pairs)
    assert [reach.pairs_of_all_prefixes(int(p)) for p in positions] == prefixes.tolist()


@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_nothing_is_read_before_the_first_token(reach: Reach) -> None:
    assert reach.pairs(0) == reach.pairs_of_all_prefixes(0) == 0
    assert listed(reach.attended(np.array([0]))) == [0]


def test_what_a_cache_keeps() -> None:
    assert [r.held(10) for r in REACHES] == [10, 1, 4, 1, 4, 10]


def test_large_counts_are_exact_or_refused() -> None:
    tokens = np.array([3_000_000_000])
    assert listed(Reach().pairs(tokens)) == [3_000_000_000 * 3_000_000_001 // 2]
    with pytest.raises(OverflowError):
        Reach().pairs(np.array([2**33]))
    assert Reach().pairs(2**33) == 2**32 * (2**33 + 1)
