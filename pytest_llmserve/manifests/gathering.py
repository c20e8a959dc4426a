"""What one file yields while it is read: launches, problems, names, and files beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.files import read_text
from pytest_llmserve.manifests.names import Names
from pytest_llmserve.manifests.options import NO_OPTIONS, ReadOptions
from pytest_llmserve.manifests.text import SourceText
from pytest_llmserve.verdict import Location, Problem

if TYPE_CHECKING:
    from pytest_llmserve.manifests.launch import Launch
    from pytest_llmserve.verdict import ProblemKind


@dataclass(slots=True)
class Gathering:
    """The reading under construction."""

    path: Path
    file: str
    """The path as the user named it."""
    names: Names = field(default_factory=Names)
    launches: list[Launch] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    options: ReadOptions = NO_OPTIONS

    def problem(self, kind: ProblemKind, message: str, where: Location | int = 1) -> None:
        """Add a problem at a location or a line."""
        place = where if isinstance(where, Location) else Location(self.file, where)
        self.problems.append(Problem(kind, message, place))

    def text_beside(self, name: str) -> str | None:
        """The text of a file named relative to this one, or None."""
        found = self._beside(name)
        return None if found is None else found[0]

    def beside(self, name: str) -> SourceText | None:
        """A file named relative to this one; for a path of a container, its last part."""
        found = self._beside(name)
        return None if found is None else SourceText.of_lines(found[0], found[1])

    def shown_beside(self, name: str) -> str:
        """How messages name a file of the same folder."""
        return str(Path(self.file).parent / name)

    def _beside(self, name: str) -> tuple[str, str] | None:
        plain = name.removeprefix("file://")
        candidates = [plain] if not plain.startswith(("/", "~")) else []
        candidates.append(plain.rsplit("/", 1)[-1])
        for candidate in candidates:
            if not candidate or "\0" in candidate:
                continue
            path = self.path.parent / candidate
            try:
                is_there = path.is_file()
            except OSError:
                is_there = False
            shown = self.shown_beside(candidate)
            text = read_text(path, shown) if is_there else None
            if isinstance(text, str):
                return text, shown
        return None
