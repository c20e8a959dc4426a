"""``gitlab=PATH``: GitLab's code quality report.

Format: docs.gitlab.com, "Code Quality", report format (description, check_name, fingerprint,
severity, location.path, location.lines.begin). The fingerprint carries neither line nor figure:
GitLab would show every edit as one finding fixed and another one new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.reporting.files import write_json
from pytest_llmserve.reporting.findings import findings

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmserve.reporting.findings import Checked

SEVERITY: Final = {"certain": "critical", "close": "minor"}


def code_quality(checked: Checked) -> list[dict[str, Any]]:
    """One entry a finding."""
    return [
        {
            "description": f"{f.server}: {f.headline}" if f.server else f.headline,
            "check_name": f"{f.id} {f.name}",
            "fingerprint": f.fingerprint,
            "severity": SEVERITY.get(f.certainty, "major"),
            "location": {"path": f.file, "lines": {"begin": f.line}},
        }
        for f in findings(checked)
    ]


def write_gitlab(path: Path, checked: Checked) -> None:
    """Write the report; an empty list says that nothing was found."""
    write_json(path, code_quality(checked))
