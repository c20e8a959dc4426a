"""``Server``: what invariants, assertions and reports are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmserve.verdict import Certainty, Outcome, Verdict

if TYPE_CHECKING:
    from pytest_llmserve.invariants.base import Invariant
    from pytest_llmserve.manifests.launch import Launch
    from pytest_llmserve.policy import Policy
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server role; one subject for each kind of GPU that it may be scheduled on.

    ``not_planned`` says why nothing can be judged (a runtime whose rules are not known here);
    there are no subjects then.
    """

    name: str
    location: Location | None
    policy: Policy
    subjects: tuple[Subject, ...] = ()
    launch: Launch | None = None
    not_planned: str = ""

    def judge(self, invariant: Invariant) -> Verdict:
        """The worst verdict over the kinds of GPU: every one of them has to pass."""
        return self.worst(invariant)[0]

    def worst(self, invariant: Invariant) -> tuple[Verdict, Subject]:
        """The worst verdict and the subject it is about."""
        judged = [(invariant.judge(subject), subject) for subject in self.subjects]
        return max(judged, key=lambda pair: badness(pair[0]))


_CERTAINTIES = (None, Certainty.CLOSE, Certainty.LIKELY, Certainty.CERTAIN)


def badness(verdict: Verdict) -> int:
    """Order of verdicts: passed, close, cannot tell, likely, certain."""
    if verdict.outcome is Outcome.PASSED:
        return 0
    if verdict.outcome is Outcome.CANNOT_TELL:
        return 2
    return (3, 1, 4, 5)[_CERTAINTIES.index(verdict.certainty)]
