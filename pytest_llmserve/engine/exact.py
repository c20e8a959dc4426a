"""Integer arithmetic that is exact or refuses, for Python ints and numpy integer arrays alike.

Python ints are unbounded and are computed as they stand. Arrays are int64: a cheap bound on the
result (from the largest magnitude of each operand, as Python ints) proves most operations safe;
where it does not, the result is computed exactly and an element that does not fit into int64 is an
``OverflowError``, never a wrong number.
"""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    IntArray: TypeAlias = NDArray[np.integer[Any]]
    IntLike: TypeAlias = int | IntArray
    Count = TypeVar("Count", int, IntArray)  # an int for an int, an array for an array

INT64_MAX: Final = 2**63 - 1


def is_python_int(value: object) -> bool:
    """Whether the value is a Python int proper (``True`` is not a number here)."""
    return type(value) is int


def integers(name: str, value: object, minimum: int | None = 0) -> IntLike:
    """The value as a Python int or an int64 array.

    Args:
        name: what the caller calls the value; stands in the error.
        value: a Python int, a numpy integer or an array of them.
        minimum: smallest value allowed; ``None``: any.

    Raises:
        TypeError: a bool, a float or anything else that is no integer.
        ValueError: a value below ``minimum``.
        OverflowError: an unsigned array holds a value past int64.
    """
    if is_python_int(value):
        number = cast("int", value)
        if minimum is not None and number < minimum:
            raise ValueError(f"{name} must be at least {minimum}, got {number}")
        return number
    array = _int64(name, value)
    if minimum is not None and array.size and int(array.min()) < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {int(array.min())}")
    return int(array) if array.ndim == 0 else array


@overload
def mul(*factors: int) -> int: ...
@overload
def mul(*factors: IntLike) -> IntLike: ...
def mul(*factors: IntLike) -> IntLike:
    """The product of all factors, element by element with numpy's broadcasting.

    Raises:
        TypeError: a factor is no integer.
        OverflowError: an element of the result does not fit into int64 (arrays only).
    """
    return _apply("factor", factors, operator.mul, _product_bound)


@overload
def add(*terms: int) -> int: ...
@overload
def add(*terms: IntLike) -> IntLike: ...
def add(*terms: IntLike) -> IntLike:
    """The sum of all terms, element by element with numpy's broadcasting.

    Raises:
        TypeError: a term is no integer.
        OverflowError: an element of the result does not fit into int64 (arrays only).
    """
    return _apply("term", terms, operator.add, sum)


@overload
def sub(left: int, right: int) -> int: ...
@overload
def sub(left: IntLike, right: IntLike) -> IntLike: ...
def sub(left: IntLike, right: IntLike) -> IntLike:
    """``left - right``; the same errors as :func:`add`."""
    return _apply("operand", (left, right), operator.sub, sum)


@overload
def floordiv(dividend: int, divisor: int) -> int: ...
@overload
def floordiv(dividend: IntLike, divisor: IntLike) -> IntLike: ...
def floordiv(dividend: IntLike, divisor: IntLike) -> IntLike:
    """How often the positive divisor goes wholly into the non-negative dividend."""
    dividend, divisor = integers("dividend", dividend), integers("divisor", divisor, 1)
    return dividend // divisor


@overload
def cdiv(dividend: int, divisor: int) -> int: ...
@overload
def cdiv(dividend: IntLike, divisor: IntLike) -> IntLike: ...
def cdiv(dividend: IntLike, divisor: IntLike) -> IntLike:
    """Ceiling division of a non-negative dividend by a positive divisor.

    Raises:
        ValueError: a negative dividend or a divisor below one.
    """
    dividend, divisor = integers("dividend", dividend), integers("divisor", divisor, 1)
    return -(-dividend // divisor)


@overload
def minimum(left: int, right: int) -> int: ...
@overload
def minimum(left: IntLike, right: IntLike) -> IntLike: ...
def minimum(left: IntLike, right: IntLike) -> IntLike:
    """The smaller of both, element by element."""
    return _pick("minimum", left, right)


@overload
def maximum(left: int, right: int) -> int: ...
@overload
def maximum(left: IntLike, right: IntLike) -> IntLike: ...
def maximum(left: IntLike, right: IntLike) -> IntLike:
    """The larger of both, element by element."""
    return _pick("maximum", left, right)


def like(_: Count, value: IntLike) -> Count:
    """The value, typed as the argument it was made from: an int from an int."""
    return cast("Count", value)


def _pick(name: str, left: IntLike, right: IntLike) -> IntLike:
    left, right = integers("operand", left, None), integers("operand", right, None)
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right) if name == "minimum" else max(left, right)
    import numpy as np

    picked = np.minimum(left, right) if name == "minimum" else np.maximum(left, right)
    return cast("IntLike", picked)


def _apply(
    name: str,
    operands: tuple[IntLike, ...],
    combine: Callable[[Any, Any], Any],
    bound: Callable[[list[int]], int],
) -> IntLike:
    checked = [integers(name, operand, None) for operand in operands]
    if all(isinstance(operand, int) for operand in checked):
        return cast("int", reduce(combine, checked))
    if bound([_magnitude(operand) for operand in checked]) <= INT64_MAX:
        return reduce(combine, checked)
    import numpy as np

    exact = np.asarray(reduce(combine, [np.asarray(part, dtype=object) for part in checked]))
    if exact.size and not -INT64_MAX <= exact.min() <= exact.max() <= INT64_MAX:
        worst = max(abs(exact.min()), abs(exact.max()))
        raise OverflowError(f"{worst} does not fit into int64; compute it with Python integers")
    return exact.astype(np.int64)


def _product_bound(magnitudes: list[int]) -> int:
    # a zero elsewhere must not hide that a partial product overflows
    return math.prod(max(1, magnitude) for magnitude in magnitudes)


def _magnitude(operand: IntLike) -> int:
    if isinstance(operand, int):
        return abs(operand)
    return max(-int(operand.min()), int(operand.max())) if operand.size else 0


def _int64(name: str, value: object) -> NDArray[np.int64]:
    if isinstance(value, bool | float | str | bytes) or value is None:
        raise TypeError(f"{name} must be an integer, got {value!r}")
    import numpy as np

    if not isinstance(value, np.ndarray | np.integer):
        raise TypeError(f"{name} must be an int or a numpy integer array, got {value!r}")
    if value.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got an array of {value.dtype}")
    array = np.asarray(value)
    if array.dtype.kind == "u" and array.size and int(array.max()) > INT64_MAX:
        raise OverflowError(f"{name}: {int(array.max())} does not fit into int64")
    return array.astype(np.int64, copy=False)
