"""A ledger as text whose rows add up as printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.units import format_hundredths, hundredths_of_gib

if TYPE_CHECKING:
    from pytest_llmserve.verdict import Ledger, LedgerRow

LABEL_WIDTH = 26


def _as_printed(rows: tuple[LedgerRow, ...]) -> list[int]:
    """Rounded figures, with the roundings' remainder put on the row that is least exact.

    Each ``=`` row is the sum of the rows since the one before it (which starts the next sum).
    Every figure rounded by itself may miss the printed sum by a hundredth or two; a measured term
    is uncertain by far more than that, so it takes the difference.
    """
    printed = [hundredths_of_gib(row.value.expected) for row in rows]
    start = 0
    for index, row in enumerate(rows):
        if row.sign == "":
            start = index
        if row.sign != "=":
            continue
        total = printed[start] + sum(
            printed[i] if rows[i].sign == "+" else -printed[i] for i in range(start + 1, index)
        )
        operands = [i for i in range(start + 1, index) if rows[i].value.expected]
        if (difference := printed[index] - total) and operands:
            loosest = max(operands, key=lambda i: rows[i].value.high - rows[i].value.low)
            printed[loosest] += difference if rows[loosest].sign == "+" else -difference
        start = index
    return printed


def ledger_lines(ledger: Ledger) -> list[str]:
    """One operand a line: sign and label, GiB, source."""
    lines = [f"{ledger.title:<{LABEL_WIDTH + 2}}{ledger.unit:>7}"]
    for row, hundredths in zip(ledger.rows, _as_printed(ledger.rows), strict=True):
        label = f"{row.sign} {row.label}" if row.sign else row.label
        figure = format_hundredths(hundredths)
        lines.append(f"  {label:<{LABEL_WIDTH}}{figure:>7}   {row.source}".rstrip())
    return lines
