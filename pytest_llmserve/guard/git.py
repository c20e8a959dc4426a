"""The four questions asked of git; nothing is checked out, nothing in the repository changes."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TIMEOUT_S: Final = 60


class GitError(ValueError):
    """Git is not there, or does not know what was asked for; the message is its own."""


def _git(folder: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    try:
        ran = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"git {arguments[0]}: {error}") from None
    if ran.returncode:
        words = ran.stderr.decode(errors="replace").strip().splitlines() or ["failed"]
        raise GitError(f"git {arguments[0]}: {words[0]}")
    return ran.stdout


def repository_root(folder: Path) -> Path:
    """The top of the repository that a folder lies in.

    Raises:
        GitError: it lies in none.
    """
    return type(folder)(_git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n"))


def commit_of(root: Path, ref: str) -> str:
    """The commit that a ref names.

    Raises:
        GitError: it names none.
    """
    name = f"{ref}^{{commit}}"
    return _git(root, "rev-parse", "--verify", "--end-of-options", name).decode().strip()


def renames(root: Path, commit: str) -> tuple[dict[str, str], list[str]]:
    """What moved since a commit (new path to old path), and what was deleted."""
    fields = _git(root, "diff", "--name-status", "-M", "-z", commit, "--").decode(
        errors="surrogateescape"
    )
    words = iter(fields.split("\0")[:-1])
    moved: dict[str, str] = {}
    deleted: list[str] = []
    for status in words:
        path = next(words)
        if status[0] in "RC":
            moved[next(words)] = path
        elif status == "D":
            deleted.append(path)
    return moved, deleted


def list_files(root: Path, commit: str) -> Iterator[tuple[str, int, str]]:
    """Path, size in bytes and object name of every plain file of a commit."""
    listing = _git(root, "ls-tree", "-r", "-z", "-l", "--full-tree", commit).decode(
        errors="surrogateescape"
    )
    for entry in listing.split("\0")[:-1]:
        facts, _, path = entry.partition("\t")
        mode, kind, name, size = facts.split()
        if kind == "blob" and mode != "120000":  # no symbolic links
            yield path, int(size), name


def read_objects(root: Path, names: Sequence[str]) -> Iterator[bytes]:
    """The contents of objects, in one process."""
    data = _git(root, "cat-file", "--batch", stdin="".join(f"{n}\n" for n in names).encode())
    position = 0
    for _ in names:
        end = data.index(b"\n", position)
        size = int(data[position:end].split()[2])
        yield data[end + 1 : end + 1 + size]
        position = end + size + 2
