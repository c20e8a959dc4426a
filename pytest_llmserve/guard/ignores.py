"""``# llmserve: ignore[LLM102] reason``: a finding accepted on its line, and rules of the policy.

A comment behind a value is about that line; one on a line of its own is about the next line that
is neither blank nor a comment. It is about findings that point at that line, and about findings of
the server that starts there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.invariants.names import NAMES, canonical_name

if TYPE_CHECKING:
    import datetime

    from pytest_llmserve.guard_rules import GuardRules, IgnoreRule
    from pytest_llmserve.verdict import Location, Verdict

_COMMENT: Final = re.compile(r"#\s*llmserve:\s*ignore\b(?:\[([^\]]*)\])?[ \t]*(.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreComment:
    """One comment: which invariants it accepts, about which line, and why."""

    invariants: tuple[str, ...]
    reason: str
    line: int
    about_line: int
    file: str = ""
    """As findings name it; empty where only lines are compared."""
    fault: str = ""
    """Why it cannot be honoured: no reason, no invariant, an unknown one."""

    def accepts(self, verdict: Verdict, server: Location | None) -> bool:
        """Whether the finding is the one on this comment's line."""
        if self.fault or verdict.name not in self.invariants:
            return False
        return any(
            place.line == self.about_line and self.file in ("", place.file)
            for place in (verdict.location, server)
            if place is not None
        )


def read_ignores(text: str, file: str = "") -> tuple[IgnoreComment, ...]:
    """Every ignore comment of a file, in the order of its lines."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        match = _COMMENT.search(line)
        if match is None:
            continue
        is_alone = not line[: match.start()].strip()
        names = [name.strip() for name in (match[1] or "").split(",") if name.strip()]
        known = tuple(filter(None, map(canonical_name, names)))
        found.append(
            IgnoreComment(
                invariants=known,
                reason=match[2].strip(),
                line=number,
                file=file,
                about_line=_next_line(lines, number) if is_alone else number,
                fault=_fault(names, match[2].strip()),
            )
        )
    return tuple(found)


def _fault(names: list[str], reason: str) -> str:
    if not names:
        return "it names no invariant: write ignore[LLM102]"
    for name in names:
        if canonical_name(name) is None:
            return f"{name!r} is no invariant; valid: {', '.join(NAMES)}"
    return "" if reason else "it gives no reason"


def _next_line(lines: list[str], number: int) -> int:
    for following in range(number, len(lines)):
        text = lines[following].strip()
        if text and not text.startswith("#"):
            return following + 1
    return number


def accepting_rule(
    rules: GuardRules, relative_file: str, server_name: str, verdict: Verdict, today: datetime.date
) -> IgnoreRule | None:
    """The rule of the policy that accepts this finding today, or ``None``."""
    for rule in rules.ignores:
        if rule.matches(relative_file, server_name, verdict.name) and not rule.is_expired(today):
            return rule
    return None
