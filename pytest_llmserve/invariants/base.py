"""The shape of an invariant and the three ways to answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from pytest_llmserve.units import MIB, format_gib, format_hundredths, hundredths_of_gib
from pytest_llmserve.verdict import Certainty, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.subject import Subject
    from pytest_llmserve.units import Interval
    from pytest_llmserve.verdict import Fix, Ledger, Location


_ROOTS: Final = {"gpu-memory-known": "gpu-known", "rules-known": "flags-known-to-version"}
"""Which invariant says what is missing, where it is not called alike."""


def always(subject: Subject) -> bool:
    """Applies to every server."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One statement that must hold. ``title`` states the wanted state.

    ``needs`` names the invariants that must pass for this one to be answerable: without a known
    model there is nothing to size. ``applies`` is False where nothing was declared to hold.
    """

    id: str
    name: str
    title: str
    check: Callable[[Subject], Verdict]
    needs: tuple[str, ...] = ()
    applies: Callable[[Subject], bool] = always
    is_selected_by_default: bool = True

    def judge(self, subject: Subject) -> Verdict:
        """The verdict on one server; *cannot tell* when something it needs is unknown."""
        missing = next((need for need in self.needs if need in subject.unknowns), None)
        if missing is None:
            verdict = self.check(subject)
        else:
            root, reason = _ROOTS.get(missing, missing), subject.unknowns[missing]
            verdict = cannot_tell(f"cannot tell: {reason} (see {root})", blocked_by=root)
        location = verdict.location or subject.deployment.location
        return replace(verdict, id=self.id, name=self.name, location=location)


class More(TypedDict, total=False):
    """The parts of a verdict beyond its first line."""

    location: Location | None
    margin_bytes: Interval | None
    ledger: Ledger | None
    details: tuple[str, ...]
    fixes: tuple[Fix, ...]
    evidence: dict[str, float | int | str]
    blocked_by: str | None


def passed(headline: str, **more: Unpack[More]) -> Verdict:
    """The invariant holds, at both ends of every error bar."""
    return Verdict(id="", name="", outcome=Outcome.PASSED, headline=headline, **more)


def failed(
    headline: str, certainty: Certainty = Certainty.CERTAIN, **more: Unpack[More]
) -> Verdict:
    """The invariant does not hold; ``certainty`` says at which end of the error bar."""
    return Verdict(
        id="", name="", outcome=Outcome.FAILED, headline=headline, certainty=certainty, **more
    )


def cannot_tell(headline: str, **more: Unpack[More]) -> Verdict:
    """Something that decides is unknown; ``headline`` says what, ``details`` what to declare."""
    return Verdict(id="", name="", outcome=Outcome.CANNOT_TELL, headline=headline, **more)


def certainty_of_shortage(need: Interval, available: Interval) -> Certainty | None:
    """How sure it is that ``need`` exceeds ``available``; ``None`` if it fits at both ends."""
    if need.low > available.high:
        return Certainty.CERTAIN
    if need.expected > available.expected:
        return Certainty.LIKELY
    if need.high > available.low:
        return Certainty.CLOSE
    return None


def shortage_words(certainty: Certainty, need: Interval, available: Interval) -> str:
    """``short of 1.20 GiB per GPU``; for a close call what may be missing at the far end.

    The difference is that of the two figures as they are printed.
    """
    if certainty is Certainty.CLOSE:
        return f"may be short of {_printed_difference(need.high, available.low)} per GPU"
    return f"short of {_printed_difference(need.expected, available.expected)} per GPU"


def _printed_difference(need_bytes: int, available_bytes: int) -> str:
    difference = hundredths_of_gib(need_bytes) - hundredths_of_gib(available_bytes)
    if difference == 0:
        return f"{(need_bytes - available_bytes) / MIB:.3g} MiB"
    return f"{format_hundredths(difference)} GiB"


def range_words(value: Interval, certainty: Certainty) -> str:
    """The expected GiB; for a close call both ends, since they decide."""
    if certainty is Certainty.CLOSE and not value.is_exact:
        return f"{format_gib(value.low)} to {format_gib(value.high)}"
    return format_gib(value.expected)
