"""A ledger as text whose rows add up as printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.units import format_hundredths, hundredths_of_gib

if TYPE_CHECKING:
    from pytest_llmserve.verdict import Ledger, LedgerRow

LABEL_WIDTH = 26


def _as_printed(rows: tuple[LedgerRow, ...]) -> list[int]:
    """Rounded figures that add up.

    Each ``=`` row is the sum of the rows since the last one without a sign. Figures rounded one by
    one may miss the printed sum by a hundredth or two. In the first sum the operand with the
    widest error bar takes the difference: it is uncertain by far more than that. Later sums are of
    figures shown above, so there the result is what those add up to.
    """
    printed = [hundredths_of_gib(row.value.expected) for row in rows]
    start, is_first = 0, True
    for index, row in enumerate(rows):
        if row.sign == "":
            start = index
        if row.sign != "=":
            continue
        operands = range(start + 1, index)
        total = printed[start] + sum(_signed(rows[i], printed[i]) for i in operands)
        movable = [i for i in operands if not rows[i].value.is_exact and rows[i].value.expected]
        if is_first and movable:
            loosest = max(movable, key=lambda i: rows[i].value.high - rows[i].value.low)
            printed[loosest] += _signed(rows[loosest], printed[index] - total)
        else:
            printed[index] = total
        start, is_first = index, False
    return printed


def _signed(row: LedgerRow, hundredths: int) -> int:
    return hundredths if row.sign == "+" else -hundredths


def ledger_lines(ledger: Ledger) -> list[str]:
    """One operand a line: sign and label, GiB, source."""
    lines = [f"{ledger.title:<{LABEL_WIDTH + 2}}{ledger.unit:>7}"]
    for row, hundredths in zip(ledger.rows, _as_printed(ledger.rows), strict=True):
        label = f"{row.sign} {row.label}" if row.sign else row.label
        figure = format_hundredths(hundredths)
        lines.append(f"  {label:<{LABEL_WIDTH}}{figure:>7}   {row.source}".rstrip())
    return lines
