from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_specs import listed

from pytest_llmserve.engine.exact import (
    INT64_MAX,
    add,
    cdiv,
    floordiv,
    integers,
    maximum,
    minimum,
    mul,
    sub,
)


def test_python_integers_are_unbounded() -> None:
    assert mul(2**62, 2**62, 3) == 3 * 2**124
    assert add(2**63, 2**63) == 2**64
    assert cdiv(2**100 + 1, 2) == 2**99 + 1


@pytest.mark.parametrize(
    ("dividend", "divisor", "expected"), [(0, 16, 0), (1, 16, 1), (16, 16, 1), (17, 16, 2)]
)
def test_ceiling_division(dividend: int, divisor: int, expected: int) -> None:
    assert cdiv(dividend, divisor) == expected
    assert listed(cdiv(np.array([dividend]), divisor)) == [expected]


def test_arrays_broadcast() -> None:
    product = mul(np.array([[1], [2]]), np.array([10, 20, 30]), 2)
    assert listed(product) == [[20, 40, 60], [40, 80, 120]]
    assert listed(sub(np.array([5, 7]), 2)) == [3, 5]
    assert listed(minimum(np.array([5, 7]), 6)) == [5, 6]
    assert listed(maximum(6, np.array([5, 7]))) == [6, 7]
    assert listed(floordiv(np.array([5, 7]), 2)) == [2, 3]


def test_a_product_past_int64_is_an_error() -> None:
    with pytest.raises(OverflowError, match=str(2**64)):
        mul(np.array([2**32]), np.array([2**32]))
    with pytest.raises(OverflowError, match="int64"):
        add(np.array([INT64_MAX]), 1)


def test_the_bound_alone_refuses_nothing() -> None:
    # the largest of each operand never meet: the exact products fit
    left, right = np.array([2**40, 1]), np.array([1, 2**40])
    assert listed(mul(left, right)) == [2**40, 2**40]
    assert listed(mul(left, right, np.array([0, 0]), 2**70)) == [0, 0]


def test_a_zero_does_not_hide_an_overflow_on_the_way() -> None:
    assert listed(mul(np.array([2**40]), np.array([2**40]), np.array([0]))) == [0]


def test_small_integer_types_are_widened() -> None:
    assert listed(mul(np.array([200], dtype=np.uint8), np.array([200], dtype=np.int16))) == [40000]
    with pytest.raises(OverflowError, match="does not fit into int64"):
        add(np.array([2**63], dtype=np.uint64), 0)


def test_numpy_scalars_become_python_integers() -> None:
    scalar: Any = np.int32(70_000)  # not declared, yet taken
    assert type(mul(scalar, scalar)) is int
    assert mul(scalar, scalar) == 4_900_000_000


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1], np.array([1.0]), np.array([True])])
def test_only_integers(value: Any) -> None:
    with pytest.raises(TypeError, match="tokens must"):
        integers("tokens", value)
    with pytest.raises(TypeError):
        mul(value, 2)


def test_the_error_names_the_argument_and_the_value() -> None:
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        integers("batch", 0, 1)
    with pytest.raises(ValueError, match="tokens must be at least 0, got -3"):
        integers("tokens", np.array([4, -3]))
    with pytest.raises(ValueError, match="divisor must be at least 1, got 0"):
        cdiv(np.array([1]), 0)


def test_empty_arrays() -> None:
    empty = np.array([], dtype=np.int64)
    assert listed(mul(empty, 2**80)) == []
    assert listed(add(empty, 1)) == []
