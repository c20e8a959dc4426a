import re

from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.reporting.ledger import ledger_lines
from pytest_llmserve.units import GIB, Interval
from pytest_llmserve.verdict import Ledger, LedgerRow

FIGURE = re.compile(r"(-?\d+\.\d\d)(?:   |$)")


def hundredths(line: str) -> int:
    match = FIGURE.search(line)
    assert match, line
    return round(float(match[1]) * 100)


def test_a_ledger_line_has_label_figure_and_source() -> None:
    rows = (
        LedgerRow("usable", Interval.exact(16 * GIB), "0.90 x framework total"),
        LedgerRow("weights", Interval.exact(15 * GIB), "8.03e9 params x 2 B", "-"),
        LedgerRow("left for KV cache", Interval.exact(GIB), "", "="),
    )
    assert ledger_lines(Ledger("per GPU", rows)) == [
        "per GPU                         GiB",
        "  usable                      16.00   0.90 x framework total",
        "  - weights                   15.00   8.03e9 params x 2 B",
        "  = left for KV cache          1.00",
    ]


sizes = st.integers(0, 200 * GIB)


def test_later_sums_are_of_the_figures_shown() -> None:
    """3.856 and 8.8125 differ by 4.956; as printed, 8.81 - 3.86 is 4.95."""
    left = Interval(2 * GIB, round(3.8564 * GIB), 5 * GIB)
    need = Interval.exact(round(8.8125 * GIB))
    rows = (
        LedgerRow("usable", Interval.exact(20 * GIB), ""),
        LedgerRow("runtime", Interval.exact(20 * GIB) - left, "", "-"),
        LedgerRow("left", left, "", "="),
        LedgerRow("need", need, ""),
        LedgerRow("left", left, "", "-"),
        LedgerRow("short by", need - left, "", "="),
    )
    figures = [hundredths(line) for line in ledger_lines(Ledger("", rows))[1:]]
    assert figures == [2000, 1614, 386, 881, 386, 495]


@given(sizes, st.lists(st.tuples(sizes, sizes), min_size=1, max_size=5))
def test_rows_add_up_as_printed(start: int, operands: list[tuple[int, int]]) -> None:
    rows = [LedgerRow("usable", Interval.exact(start), "")]
    total = Interval.exact(start)
    for low, width in operands:
        value = Interval(low, low + width // 2, low + width)
        rows.append(LedgerRow("part", value, "", "-"))
        total = total - value
    rows.append(LedgerRow("left", total, "", "="))
    first, *parts, last = [hundredths(line) for line in ledger_lines(Ledger("", tuple(rows)))[1:]]
    assert first - sum(parts) == last
    for row, printed in zip(rows[1:-1], parts, strict=True):
        assert abs(printed * GIB / 100 - row.value.expected) <= (len(rows) / 2 + 1) * GIB / 100
