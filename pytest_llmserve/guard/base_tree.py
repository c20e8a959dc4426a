"""The deployment files as they are at another git ref, read and planned by the same road."""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from pytest_llmserve.guard.git import (
    commit_of,
    list_files,
    read_objects,
    renames,
    repository_root,
)
from pytest_llmserve.manifests.known_names import SUFFIXES, has_known_name
from pytest_llmserve.manifests.reader import read_file
from pytest_llmserve.servers.policies import Policies

if TYPE_CHECKING:
    from pytest_llmserve.servers.server import Server

MAX_BYTES: Final = 1 << 20
"""Larger files are no deployment files; weights and media of a repository are never copied."""
_SUFFIXES: Final = frozenset((*SUFFIXES, ".json", ".toml", ".env", ".conf", ".cfg", ".csv", ""))
"""Of files that may start servers, and of what they and the policies read."""


class BaseTree:
    """Servers of a repository at a ref. Close it: the copy lies in a temporary folder."""

    def __init__(self, folder: Path, ref: str, *, allow_network: bool = False) -> None:
        """Copies the small text files of the ref.

        Raises:
            GitError: no repository, or no such ref.
        """
        self.ref = ref
        self.root = repository_root(folder).resolve()
        commit = commit_of(self.root, ref)
        self._moved, self.deleted = renames(self.root, commit)
        self._copy = tempfile.TemporaryDirectory(prefix="llmserve-base-")
        self.copy_root = Path(self._copy.name).resolve()
        wanted = [
            (path, name)
            for path, size, name in list_files(self.root, commit)
            if size <= MAX_BYTES and _is_text(path)
        ]
        contents = read_objects(self.root, [name for _, name in wanted])
        for (path, _), data in zip(wanted, contents, strict=True):
            target = self.copy_root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        self._policies = Policies(self.copy_root, allow_network=allow_network)

    def close(self) -> None:
        """Remove the copy."""
        self._copy.cleanup()

    def servers(self, file: Path) -> dict[str, Server] | None:
        """The servers that the file started at the ref, by name; ``None``: it was not there.

        A file that could not be read then has no servers: there is nothing to compare with.
        """
        if not file.is_relative_to(self.root):
            return None
        path = file.relative_to(self.root).as_posix()
        return self.servers_at(self._moved.get(path, path))

    def servers_at(self, base_path: str) -> dict[str, Server] | None:
        """The servers of a path of the ref itself."""
        copy = self.copy_root / base_path
        if not copy.is_file():
            return None
        assembler = self._policies.assembler(self._policies.for_folder(copy.parent))
        options = assembler.policy.reading
        reading = read_file(copy, display=f"{self.ref}:{base_path}", options=options)
        return {launch.name: assembler.from_launch(launch, copy) for launch in reading.launches}


def _is_text(path: str) -> bool:
    name = PurePosixPath(path)
    is_known = name.suffix.lower() in _SUFFIXES or has_known_name(name)
    return is_known or name.name.startswith(".env")
