"""``--llmserve-explain``: an invariant's text, and nothing else happens."""

from __future__ import annotations

import sys

import pytest

from pytest_llmserve.invariants.explanations import explanation
from pytest_llmserve.invariants.names import IDS, NAMES, canonical_name

ALL = "all"


def print_explanation(about: str) -> int:
    """Write the text of one invariant, or of all of them, to standard output.

    Raises:
        pytest.UsageError: no invariant has this id or name.
    """
    name = canonical_name(about)
    if name is None and about != ALL:
        valid = "\n".join(f"  {id_} {name}" for id_, name in NAMES.items())
        raise pytest.UsageError(
            f"--llmserve-explain {about}: no invariant is called so; valid: {ALL}, or\n{valid}"
        )
    ids = list(NAMES) if name is None else [IDS[name]]
    sys.stdout.write("\n".join(explanation(id_).markdown for id_ in ids))
    return int(pytest.ExitCode.OK)
