"""What went wrong, one finding an item, worst first: the rows of every report."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from pytest_llmserve.reporting.changes import Change

Level = Literal["error", "warning"]
IN_BASELINE: Final = "in the baseline: "
"""How ``accepted`` begins for what was there when the baseline was written."""
_BADNESS = {"certain": 0, "likely": 1, "close": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All that a run found, as reports take it.

    ``facts`` hold a plain dict an item (``VerdictItem.llmserve_facts``), in any order. ``prefix``
    is the root directory's path below the repository (``""`` or ``services/chat/``): where people
    look, paths are the repository's.
    """

    facts: list[dict[str, Any]]
    changes: tuple[Change, ...] = ()
    compared_with: str = ""
    """The git ref that ``changes`` are against."""
    prefix: str = ""
    not_run: int = 0
    """Items that were collected and did not run: deselected, or stopped before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An item that failed (``error``) or is close to its limit (``warning``)."""

    id: str
    name: str
    level: Level
    certainty: str
    """``certain``, ``likely``, ``close``, ``cannot tell`` or ``fixed``."""
    file: str
    line: int
    headline: str
    message: str
    server: str = ""
    fixes: tuple[str, ...] = ()
    fingerprint: str = field(default="")
    """The same as long as file, server and invariant are; no two findings share one."""


def outcome_of(fact: dict[str, Any]) -> str:
    """What the item came to: ``passed``, ``failed`` or ``skipped``."""
    return str(fact["item"] if "item" in fact else _outcome_by_verdict(fact["verdict"]))


def _outcome_by_verdict(verdict: dict[str, Any]) -> str:
    return "failed" if verdict["is_failure"] else "passed"


def findings(checked: Checked) -> list[Finding]:
    """Failures and close calls, worst first, then by file, line and invariant."""
    counts: dict[tuple[str, ...], int] = {}
    found = []
    for fact in sorted(checked.facts, key=_order):
        level = _level(fact)
        if level is None:
            continue
        verdict, server = fact["verdict"], (fact.get("server") or {}).get("name", "")
        key = (verdict["id"], join(checked.prefix, fact["file"]), fact.get("node", server))
        counts[key] = counts.get(key, 0) + 1
        found.append(_finding(fact, checked.prefix, level, (*key, str(counts[key]))))
    return sorted(found, key=lambda f: (f.level, _BADNESS.get(f.certainty, 3)))


def _order(fact: dict[str, Any]) -> tuple[str, int, str, str]:
    place = fact["verdict"]["location"] or {"file": fact["file"], "line": 1}
    return place["file"], place["line"], fact["verdict"]["id"], fact.get("node", "")


def _level(fact: dict[str, Any]) -> Level | None:
    outcome = outcome_of(fact)
    if outcome == "failed":
        return "error"
    if outcome == "passed" and fact["verdict"]["certainty"] == "close":
        return "warning"
    return None


def _finding(fact: dict[str, Any], prefix: str, level: Level, identity: tuple[str, ...]) -> Finding:
    from hashlib import sha256  # loads OpenSSL, and most runs write no report

    verdict = fact["verdict"]
    place = verdict["location"] or {"file": fact["file"], "line": 1}
    certainty, headline, message = verdict["outcome"], verdict["headline"], verdict["message"]
    if verdict["outcome"] == "failed":
        certainty = verdict["certainty"] or "certain"
    elif verdict["outcome"] == "passed":  # a strict xfail that is fixed, an error of the run
        certainty = "fixed"
        message = fact.get("said") or headline
        headline = message.splitlines()[0]
    return Finding(
        id=verdict["id"],
        name=verdict["name"],
        level=level,
        certainty=certainty,
        file=join(prefix, place["file"]),
        line=place["line"],
        headline=headline,
        message=message,
        server=(fact.get("server") or {}).get("name", ""),
        fixes=tuple(fix["change"] for fix in verdict["fixes"]),
        fingerprint=sha256("\0".join(identity).encode()).hexdigest(),
    )


def join(prefix: str, file: str) -> str:
    """A path of the root directory as the repository names it."""
    if not prefix or PurePosixPath(file).is_absolute():
        return file
    return f"{prefix}{file}"
