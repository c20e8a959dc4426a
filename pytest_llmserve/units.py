"""Bytes, seconds and rates: integers inside, words at the border.

``gb`` is 10^9 bytes and ``gib`` is 2^30. Everything is kept as an integer number of bytes; a
figure that is measured and not computed is an :class:`Interval`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40
KB: Final = 10**3
MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12

# Kubernetes writes 16Gi and 16G, people write 16GiB and 16GB: four spellings, two meanings.
_BYTE_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    "k": KB,
    "kb": KB,
    "m": MB,
    "mb": MB,
    "g": GB,
    "gb": GB,
    "t": TB,
    "tb": TB,
    "ki": KIB,
    "kib": KIB,
    "mi": MIB,
    "mib": MIB,
    "gi": GIB,
    "gib": GIB,
    "ti": TIB,
    "tib": TIB,
}
_SECOND_UNITS: Final[dict[str, Fraction]] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_NUMBER: Final = r"[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_QUANTITY: Final = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]*)\s*")


class UnitError(ValueError):
    """Text that is not a quantity of the expected kind; the message says what was expected."""


def _quantity(text: str, kind: str, example: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"{text!r} is not {kind} (expected e.g. {example})")
    return Fraction(Decimal(match[1].replace("_", ""))), match[2]


def parse_bytes(text: str) -> int:
    """Bytes in ``16Gi``, ``16GiB`` (2^30 each), ``80G``, ``80GB`` (10^9 each) or ``1024``.

    Raises:
        UnitError: the text is no size, its unit is unknown, or it is no whole number of bytes.
    """
    number, unit = _quantity(text, "a size in bytes", "'16GiB', '80GB', '512Mi' or '1073741824'")
    factor = _BYTE_UNITS.get(unit.lower())
    if factor is None:
        known = "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB (also Ki, Mi, Gi, Ti, K, M, G, T)"
        raise UnitError(f"{text!r}: unknown unit {unit!r}; valid: {known}")
    value = number * factor
    if value.denominator != 1:
        raise UnitError(f"{text!r} is not a whole number of bytes")
    return int(value)


def format_bytes(value_bytes: int) -> str:
    """The shortest spelling that :func:`parse_bytes` reads back as the same integer."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = _BYTE_UNITS[unit.lower()]
        if value_bytes and value_bytes % factor == 0:
            return f"{value_bytes // factor}{unit}"
    return f"{value_bytes}B"


def hundredths_of_gib(value_bytes: int) -> int:
    """GiB in whole hundredths, rounded half away from zero: what two decimals show."""
    sign = -1 if value_bytes < 0 else 1
    return sign * ((abs(value_bytes) * 200 + GIB) // (2 * GIB))


def format_hundredths(hundredths: int) -> str:
    """``1635`` as ``16.35``."""
    sign = "-" if hundredths < 0 else ""
    return f"{sign}{abs(hundredths) // 100}.{abs(hundredths) % 100:02d}"


def format_gib(value_bytes: int) -> str:
    """GiB with two decimals, as a person reads them: ``16.00``."""
    return format_hundredths(hundredths_of_gib(value_bytes))


def parse_seconds(text: str) -> float:
    """Seconds in ``50ms``, ``1.5s``, ``200us`` or ``2min``.

    Raises:
        UnitError: the text is no duration or has no unit.
    """
    number, unit = _quantity(text, "a duration", "'50ms', '1.5s' or '200us'")
    factor = _SECOND_UNITS.get(unit)
    if factor is None:
        raise UnitError(f"{text!r}: unknown unit {unit!r}; valid: {', '.join(_SECOND_UNITS)}")
    return float(number * factor)


def format_seconds(value_s: float) -> str:
    """A duration with three or four digits and the unit that suits it: ``41.8 ms``."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value_s >= factor or unit == "us":
            scaled = value_s / factor
            return f"{scaled:.0f} {unit}" if scaled >= 1000 else f"{scaled:.3g} {unit}"
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True, order=False)
class Interval:
    """A figure with its error bar, ``low <= expected <= high``, all in one unit (bytes mostly).

    A computed figure is exact: its width is zero. Adding and subtracting assume the worst, that
    all errors point the same way.
    """

    low: int
    expected: int
    high: int

    def __post_init__(self) -> None:
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"not an interval: {self.low} <= {self.expected} <= {self.high}")

    @classmethod
    def exact(cls, value: int) -> Interval:
        """A figure without error."""
        return cls(value, value, value)

    @property
    def is_exact(self) -> bool:
        """Whether the error bar has no width."""
        return self.low == self.high

    def __add__(self, other: Interval) -> Interval:
        expected = self.expected + other.expected
        return Interval(self.low + other.low, expected, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        expected = self.expected - other.expected
        return Interval(self.low - other.high, expected, self.high - other.low)

    def scaled_up(self, factor: Fraction) -> Interval:
        """Each bound times a non-negative factor, rounded up to whole units."""
        if factor < 0:
            raise ValueError(f"factor must not be negative, got {factor}")
        low, expected, high = (-(-v * factor.numerator // factor.denominator) for v in self)
        return Interval(low, expected, high)

    def __iter__(self) -> Iterator[int]:
        yield from (self.low, self.expected, self.high)


ZERO: Final = Interval.exact(0)
