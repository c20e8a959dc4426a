"""The rows of ``accuracy.py``: what was measured, over how many, against which target."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    """One target; ``measured`` stays empty where the corpus has nothing to measure."""

    label: str
    target: str
    measured: str = ""
    n: int = 0
    is_met: bool | None = None
    misses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "target": self.target,
            "measured": self.measured,
            "n": self.n,
            "met": self.is_met,
            "misses": self.misses,
            "notes": self.notes,
        }


@dataclass
class Tally:
    """Answers of one kind: right, wrong (with where), and those that could not be told."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    untold: Counter[str] = field(default_factory=Counter)

    def add(self, *, is_right: bool, where: str) -> None:
        if is_right:
            self.right += 1
        else:
            self.wrong.append(where)

    @property
    def answered(self) -> int:
        return self.right + len(self.wrong)

    @property
    def total(self) -> int:
        return self.answered + self.untold.total()

    def row(
        self,
        label: str,
        target: str,
        least: float,
        *,
        none_wrong: bool = False,
        of_told: bool = False,
    ) -> Row:
        """The share of right answers among all; ``none_wrong``: the rest must be untold.

        ``of_told``: the target is about the answers alone.
        """
        row = Row(label, target, n=self.total, misses=self.wrong)
        if not self.total:
            return row
        share = self.right / self.total
        row.measured = f"{share:.2%} right, {len(self.wrong)} wrong"
        if self.untold:
            row.measured += f", {self.untold.total()} cannot tell"
            row.notes = [f"cannot tell: {n} x {why}" for why, n in self.untold.most_common()]
        if of_told:
            share = self.right / self.answered if self.answered else 1.0
        row.is_met = share >= least and not (none_wrong and self.wrong)
        return row


def mean_row(label: str, target: str, values: list[float], most: float) -> Row:
    """The mean of absolute errors, as a share."""
    row = Row(label, target, n=len(values))
    if values:
        mean = sum(map(abs, values)) / len(values)
        row.measured = f"{mean:.2%} mean, {max(map(abs, values)):.2%} worst"
        row.is_met = mean <= most
    return row


def table(rows: list[Row]) -> str:
    """The rows as text, one line each."""
    width = max(len(row.label) for row in rows)
    targets = max(len(row.target) for row in rows)
    lines = [f"{'on':{width}}  {'n':>5}  {'target':{targets}}  met   measured"]
    for row in rows:
        met = {None: "-", True: "yes", False: "NO"}[row.is_met]
        measured = row.measured or "nothing to measure"
        lines.append(f"{row.label:{width}}  {row.n:5}  {row.target:{targets}}  {met:4}  {measured}")
    return "\n".join(lines)
