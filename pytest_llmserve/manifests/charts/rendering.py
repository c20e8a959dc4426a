"""Charts and overlays through the user's own ``helm`` and ``kubectl`` or ``kustomize``.

Nothing is run unless the policy says ``render = ["helm"]`` or ``["kustomize"]``. A binary that is
absent, fails or takes too long leaves the servers unknown: that is told, and never a pass.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.secrets import masked_text
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmserve.manifests.gathering import Gathering
    from pytest_llmserve.verdict import Location

TIMEOUT_S: Final = 30
_MAX_BYTES: Final = 10_000_000


def chart_folder(path: Path) -> Path | None:
    """The folder with ``Chart.yaml`` that a values file or template belongs to."""
    for folder in (path.parent, path.parent.parent):
        if (folder / "Chart.yaml").is_file():
            return folder
    return None


def helm_output(gathering: Gathering, chart: Path, place: Location) -> str | None:
    """``helm template`` of a chart with this file's values; None with a problem told."""
    values = ["--values", str(gathering.path)] if _is_values(gathering.path) else []
    commands = [["helm", "template", "release", str(chart), *values]]
    return _run(commands, "helm", gathering, place)


def kustomize_output(gathering: Gathering, place: Location) -> str | None:
    """``kubectl kustomize`` (or ``kustomize build``) of this file's folder."""
    folder = str(gathering.path.parent)
    commands = [["kustomize", "build", folder], ["kubectl", "kustomize", folder]]
    return _run(commands, "kustomize", gathering, place)


def _is_values(path: Path) -> bool:
    return "values" in path.name and path.suffix in (".yaml", ".yml")


def _run(commands: list[list[str]], tool: str, gathering: Gathering, place: Location) -> str | None:
    command = next((c for c in commands if shutil.which(c[0])), None)
    shown = " or ".join(f"`{c[0]}`" for c in commands)
    if command is None:
        _tell(f"render allows {tool}, but there is no {shown} on this machine", gathering, place)
        return None
    text = " ".join(command[:2])
    try:
        done = subprocess.run(  # the user's own binary, allowed by the policy
            command, capture_output=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        _tell(f"`{text}` took longer than {TIMEOUT_S} s", gathering, place)
        return None
    except OSError as error:
        _tell(f"`{text}` could not be run: {error.strerror}", gathering, place)
        return None
    if done.returncode != 0:
        rows = done.stderr.decode("utf-8", "replace").strip().split("\n")
        reason = masked_text(rows[-1])[:200]
        _tell(f"`{text}` failed with status {done.returncode}: {reason}", gathering, place)
        return None
    if len(done.stdout) > _MAX_BYTES:
        _tell(f"`{text}` wrote more than {_MAX_BYTES / 1e6:.0f} MB", gathering, place)
        return None
    return done.stdout.decode("utf-8", "replace")


def _tell(message: str, gathering: Gathering, place: Location) -> None:
    gathering.problems.append(
        Problem(ProblemKind.UNKNOWN, f"{message}: the servers are not known", place, key="render")
    )
