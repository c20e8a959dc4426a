"""The baseline: findings that a team accepted, in a sorted TOML file that cleans itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.invariants.names import IDS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_HEADER: Final = """\
# Findings that are accepted for now; each fails once it is fixed, and then goes.
# Write a reason where it says so. Made by: pytest --llmserve --llmserve-update-baseline
"""
_KEYS: Final = ("file", "server", "invariant", "figure", "reason")
UNREASONED: Final = "accepted when the baseline was written"


class BaselineError(ValueError):
    """A baseline file that cannot be used; the message names file, key and value."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """One accepted finding; ``key`` tells it from all others."""

    file: str
    server: str
    invariant: str
    figure: str = ""
    reason: str = UNREASONED

    @property
    def key(self) -> tuple[str, str, str]:
        """File, server and invariant: what stays when a figure changes."""
        return self.file, self.server, self.invariant


def read_baseline(path: Path) -> tuple[Finding, ...]:
    """The accepted findings; none where there is no file.

    Raises:
        BaselineError: it cannot be read, or an entry is wrong or stands twice.
    """
    if not path.is_file():
        return ()
    import tomllib  # only where there is a baseline

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BaselineError(f"{path.name}: cannot be read: {error}") from None
    entries = table.get("finding", [])
    if set(table) - {"finding"} or not isinstance(entries, list):
        raise BaselineError(f"{path.name}: expected [[finding]] tables and nothing else")
    found = [_finding(entry, f"{path.name}: finding {n}") for n, entry in enumerate(entries, 1)]
    keys = [finding.key for finding in found]
    for finding in found:
        if keys.count(finding.key) > 1:
            raise BaselineError(f"{path.name}: {' '.join(finding.key)} stands twice")
    return tuple(found)


def _finding(entry: Any, where: str) -> Finding:
    if not isinstance(entry, dict):
        raise BaselineError(f"{where}: expected a table")
    for key, value in entry.items():
        if key not in _KEYS:
            raise BaselineError(f"{where}: unknown key {key!r}; valid keys: {', '.join(_KEYS)}")
        if not isinstance(value, str) or not value:
            raise BaselineError(f"{where}: {key} = {value!r}: expected text")
    for key in _KEYS[:3]:
        if key not in entry:
            raise BaselineError(f"{where}: {key} is missing")
    if entry["invariant"] not in IDS:
        raise BaselineError(
            f"{where}: invariant = {entry['invariant']!r}: no invariant is called so"
        )
    return Finding(**entry)


def format_baseline(findings: Iterable[Finding]) -> str:
    """The file's text: sorted, one table a finding."""
    blocks = [_HEADER]
    for finding in sorted(findings):
        values = ((key, getattr(finding, key)) for key in _KEYS)
        lines = [f"{key} = {_quoted(value)}" for key, value in values if value]
        blocks.append("\n".join(["[[finding]]", *lines]) + "\n")
    return "\n".join(blocks)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def updated(
    old: Iterable[Finding],
    failing: Iterable[Finding],
    looked_at: Iterable[tuple[str, str, str]],
) -> list[Finding]:
    """The next baseline: what fails now, and what this run did not look at.

    A finding that stays keeps its reason; what was looked at and passes goes.
    """
    before = {finding.key: finding for finding in old}
    seen = set(looked_at)
    kept = {key: finding for key, finding in before.items() if key not in seen}
    for finding in failing:
        known = before.get(finding.key)
        reason = known.reason if known else finding.reason
        kept[finding.key] = Finding(
            file=finding.file,
            server=finding.server,
            invariant=finding.invariant,
            figure=finding.figure,
            reason=reason,
        )
    return sorted(kept.values())
