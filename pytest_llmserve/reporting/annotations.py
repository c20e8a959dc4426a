"""GitHub's annotations: a line on stdout for each finding that its pull request then shows.

GitHub keeps 10 errors and 10 warnings of a step, the first ones: the worst are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.reporting.findings import findings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.reporting.findings import Checked, Finding

MOST: Final = 10
OTHERS: Final = (
    "pytest_github_actions_annotate_failures",
    "pytest-github-actions-annotate-failures",
)
"""Plugins that annotate by themselves, as pytest names them."""


def are_wanted(environ: Mapping[str, str], plugins: set[str]) -> bool:
    """Whether this is a GitHub job in which nobody else annotates."""
    return environ.get("GITHUB_ACTIONS") == "true" and plugins.isdisjoint(OTHERS)


def annotation_lines(checked: Checked) -> list[str]:
    """At most ten errors and ten warnings, worst first."""
    found = findings(checked)
    errors = [f for f in found if f.level == "error"][:MOST]
    warnings = [f for f in found if f.level == "warning"][:MOST]
    return [_command(f) for f in errors + warnings]


def _command(finding: Finding) -> str:
    title = f"{finding.id} {finding.name}"
    if finding.server:
        title += f": {finding.server}"
    place = f"file={_property(finding.file)},line={finding.line},title={_property(title)}"
    return f"::{finding.level} {place}::{_data(finding.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
