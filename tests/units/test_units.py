import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.units import (
    GIB,
    Interval,
    UnitError,
    format_bytes,
    format_gib,
    format_seconds,
    hundredths_of_gib,
    parse_bytes,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "value_bytes"),
    [
        ("16Gi", 16 * 2**30),
        ("16GiB", 16 * 2**30),
        ("80GB", 80 * 10**9),
        ("80 G", 80 * 10**9),
        ("512Mi", 512 * 2**20),
        ("1024", 1024),
        ("1.5GiB", 3 * 2**29),
        ("1e9", 10**9),
        ("1_000kb", 10**6),
    ],
)
def test_sizes(text: str, value_bytes: int) -> None:
    assert parse_bytes(text) == value_bytes


@pytest.mark.parametrize("text", ["", "GiB", "16 gibs", "-1GiB", "0.3B", "1..2G", "sixteen"])
def test_no_size(text: str) -> None:
    with pytest.raises(UnitError, match=r"16GiB|valid|whole number"):
        parse_bytes(text)


@given(st.integers(0, 2**70))
def test_sizes_round_trip(value_bytes: int) -> None:
    assert parse_bytes(format_bytes(value_bytes)) == value_bytes


@pytest.mark.parametrize(
    ("text", "value_s"), [("50ms", 0.05), ("1.5s", 1.5), ("200us", 2e-4), ("2min", 120.0)]
)
def test_durations(text: str, value_s: float) -> None:
    assert parse_seconds(text) == value_s


@pytest.mark.parametrize("text", ["50", "50 m", "ms", "-1s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(UnitError):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("value_s", "text"),
    [(0.0418, "41.8 ms"), (1.5, "1.5 s"), (0.0002, "200 us"), (2000.0, "2000 s"), (0.0, "0 us")],
)
def test_durations_as_people_read_them(value_s: float, text: str) -> None:
    assert format_seconds(value_s) == text


def test_gib_with_two_decimals() -> None:
    assert format_gib(16 * GIB) == "16.00"
    assert format_gib(-GIB // 2) == "-0.50"
    assert hundredths_of_gib(GIB + GIB // 200 + 1) == 101


spread = st.tuples(*[st.integers(-(10**12), 10**12)] * 3).map(lambda t: Interval(*sorted(t)))


@given(spread, spread)
def test_intervals_hold_every_combination(a: Interval, b: Interval) -> None:
    for x in a:
        for y in b:
            assert (a + b).low <= x + y <= (a + b).high
            assert (a - b).low <= x - y <= (a - b).high


def test_an_interval_is_in_order() -> None:
    with pytest.raises(ValueError, match="not an interval"):
        Interval(2, 1, 3)
    assert Interval.exact(5).is_exact
