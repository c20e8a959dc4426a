"""What the policy allows and adds when files are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnForm:
    """A team's own YAML form: paths (``deploy.engine.args``, ``*`` for every entry)."""

    file: str
    """Glob of the files that have this form, below the policy."""
    argv: str
    """Path of the argument list or string."""
    servers: str = ""
    """Path of the mappings that are servers; the other paths start there. Empty: the document."""
    name: str = ""
    model: str = ""
    image: str = ""
    env: str = ""
    gpu: str = ""
    gpu_count: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """``render``: the tools that may be run (``helm``, ``kustomize``); ``forms``: own ones."""

    render: frozenset[str] = frozenset()
    forms: tuple[OwnForm, ...] = ()
    base_dir: Path = field(default_factory=Path, compare=False)
    """Where the globs of ``forms`` start."""

    def form_of(self, path: Path) -> OwnForm | None:
        """The own form of a file."""
        if not self.forms:
            return None
        is_below = path.is_relative_to(self.base_dir)
        name = (path.relative_to(self.base_dir) if is_below else path).as_posix()
        return next((form for form in self.forms if fnmatch(name, form.file)), None)


NO_OPTIONS = ReadOptions()
