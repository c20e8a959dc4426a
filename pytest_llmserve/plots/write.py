"""PNG files of the servers of a session."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pytest_llmserve.plots.draw import capacity_map, roofline, vram_bars

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from pytest_llmserve.subject import Subject

NO_MATPLOTLIB: Final = "pictures need matplotlib: pip install 'pytest-llmserve[plot]'"
MOST_TOGETHER: Final = 8
"""Servers on one roofline or in one picture of bars; more would not be readable."""


def is_available() -> bool:
    """Whether matplotlib is installed; it is not imported."""
    return find_spec("matplotlib") is not None


def write_plots(folder: Path, subjects: Sequence[Subject]) -> list[Path]:
    """``roofline-N.png`` and ``vram-N.png`` for every few servers, a capacity map for each.

    Returns:
        The files written; a picture of which nothing can be told is left out.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for number, start in enumerate(range(0, len(subjects), MOST_TOGETHER), start=1):
        some = subjects[start : start + MOST_TOGETHER]
        for name, figure in (("roofline", roofline(some)), ("vram", vram_bars(some))):
            written += _save(folder / f"{name}-{number}.png", figure)
    taken: set[str] = set()
    for subject in subjects:
        stem = _stem(subject, taken)
        written += _save(folder / f"{stem}.png", capacity_map(subject))
    return written


def _save(path: Path, figure: Figure | None) -> list[Path]:
    if figure is None:
        return []
    figure.savefig(path)
    return [path]


def _stem(subject: Subject, taken: set[str]) -> str:
    """``capacity-chat-h100-sxm-80gb``, numbered where two servers are called alike."""
    gpu = subject.deployment.gpu
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", subject.deployment.name).strip("-.")
    stem = f"capacity-{words}-{gpu.id if gpu else 'unknown'}"
    number = 1
    while (found := stem if number == 1 else f"{stem}-{number}") in taken:
        number += 1
    taken.add(found)
    return found
