"""``sarif=PATH``: SARIF 2.1.0 (OASIS Standard), as GitHub code scanning takes it.

URIs are relative to the repository: alerts on absolute ones attach to nothing. Each result has a
fingerprint of its own: of two alike, the second would vanish. An item that was collected and did
not run is told, so that a partial run is not taken for a clean one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pytest_llmserve import __version__
from pytest_llmserve.invariants.explanations import explanation
from pytest_llmserve.reporting.files import write_json
from pytest_llmserve.reporting.findings import findings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_llmserve.reporting.findings import Checked, Finding

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINTS: Final = ("llmserve/v1", "primaryLocationLineHash")
"""GitHub knows only the second name, and would hash the line's text without it."""


def sarif(checked: Checked) -> dict[str, Any]:
    """The log: one run, a rule an invariant that found something, a result a finding."""
    found = findings(checked)
    ids = sorted({f.id for f in found})
    rules = [_rule(next(f for f in found if f.id == id_)) for id_ in ids]
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "pytest-llmserve",
                "version": __version__,
                "semanticVersion": __version__,
                "informationUri": "https://pypi.org/project/pytest-llmserve/",
                "rules": rules,
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(checked)],
        "results": _results(found, ids),
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(finding: Finding) -> dict[str, Any]:
    text = explanation(finding.id)
    return {
        "id": finding.id,
        "name": "".join(word.capitalize() for word in finding.name.split("-")),
        "shortDescription": {"text": text.statement},
        "fullDescription": {"text": text.statement},
        "help": {"text": text.markdown, "markdown": text.markdown},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["llm-serving"]},
    }


def _invocation(checked: Checked) -> dict[str, Any]:
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if checked.not_run:
        words = f"partial run: {checked.not_run} checks were collected and not run"
        invocation["toolExecutionNotifications"] = [
            {"level": "warning", "message": {"text": words}}
        ]
    return invocation


def _results(found: Sequence[Finding], ids: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "ruleId": f.id,
            "ruleIndex": ids.index(f.id),
            "level": f.level,
            "message": {"text": f"{f.server}: {f.headline}" if f.server else f.headline},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(f.file)},
                        "region": {"startLine": f.line},
                    }
                }
            ],
            "partialFingerprints": dict.fromkeys(FINGERPRINTS, f.fingerprint),
            "properties": {"certainty": f.certainty, "fixes": list(f.fixes)},
        }
        for f in found
    ]


def write_sarif(path: Path, checked: Checked) -> None:
    """Write the log."""
    write_json(path, sarif(checked))
