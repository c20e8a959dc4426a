"""What an invariant answers: a verdict with its place, its ledger and re-checked fixes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmserve.units import Interval


class Outcome(StrEnum):
    """The three answers. Unknown is never a pass."""

    PASSED = "passed"
    FAILED = "failed"
    CANNOT_TELL = "cannot tell"


class Certainty(StrEnum):
    """How sure a failure is, measured against the error bar.

    ``certain``: even the most favourable end of the interval fails. ``likely``: the expected
    value fails. ``close``: only the unfavourable end fails.
    """

    CERTAIN = "certain"
    LIKELY = "likely"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file that a person can open: path as the user named it, 1-based line."""

    file: str
    line: int
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class ProblemKind(StrEnum):
    """Why something could not be read as meant."""

    UNREADABLE = "unreadable"  # the text is broken: bad YAML, bad quoting, wrong encoding
    UNRESOLVED = "unresolved"  # a variable or template whose value is not in the files given
    REFUSED = "refused"  # the runtime itself would stop with an error here
    UNKNOWN = "unknown"  # we do not know the thing named (model, GPU, image, form)
    WARNING = "warning"  # read, but probably not what the author meant


@dataclass(frozen=True, slots=True)
class Problem:
    """One clear sentence about one place: file, line, key, value and what was expected."""

    kind: ProblemKind
    message: str
    location: Location
    key: str | None = None
    value: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One operand: its label, its figure and where the figure came from.

    ``sign`` is ``""`` for a given figure, ``"+"`` or ``"-"`` for an operand of the sum and ``"="``
    for its result.
    """

    label: str
    value: Interval
    source: str
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows that add up as printed, in one unit (``GiB`` for bytes)."""

    title: str
    rows: tuple[LedgerRow, ...]
    unit: str = "GiB"


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that was applied and re-checked, and passes.

    ``change`` is what to write (``--max-model-len 23920``); ``note`` says what stands there now
    or what the change yields.
    """

    change: str
    note: str = ""
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer of one invariant about one server. True only if it passed.

    ``headline`` stands alone and is the line that summaries, annotations and tables show.
    ``margin_bytes`` is what is left (negative: what is missing) for invariants about memory.
    ``details`` are lines printed under the ledger; ``evidence`` are figures by name for reports.
    """

    id: str
    name: str
    outcome: Outcome
    headline: str
    location: Location | None = None
    certainty: Certainty | None = None
    margin_bytes: Interval | None = None
    ledger: Ledger | None = None
    details: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    evidence: dict[str, float | int | str] = field(default_factory=dict)
    blocked_by: str | None = None
    """For *cannot tell*: the invariant that has to pass before this one can be answered."""

    def __bool__(self) -> bool:
        return self.outcome is Outcome.PASSED
