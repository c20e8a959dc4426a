"""Which policy holds for a file: the nearest one above it, up to the root directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmserve.servers.assemble import Assembler


class Policies:
    """Policies by folder, each read once, each with its assembler."""

    def __init__(self, root: Path, *, allow_network: bool = False) -> None:
        self._root = root
        self._allow_network = allow_network
        self._by_folder: dict[Path, Policy] = {}
        self._assemblers: dict[Path, Assembler] = {}

    def for_folder(self, folder: Path) -> Policy:
        """The nearest policy at or above a folder; an empty one if there is none.

        Raises:
            PolicyError: the policy is wrong.
        """
        if folder not in self._by_folder:
            self._by_folder[folder] = self._read(folder)
        return self._by_folder[folder]

    def assembler(self, policy: Policy) -> Assembler:
        """The one assembler of a policy: models and parts are looked up once."""
        from pytest_llmserve.servers.assemble import Assembler

        if policy.base_dir not in self._assemblers:
            self._assemblers[policy.base_dir] = Assembler(policy, allow_network=self._allow_network)
        return self._assemblers[policy.base_dir]

    def _read(self, folder: Path) -> Policy:
        if has_policy_file(folder):
            from pytest_llmserve.policy_file import read_policy

            policy = read_policy(folder, root=self._root)
            if policy is not None:
                return policy
        if folder == self._root or folder == folder.parent or self._root not in folder.parents:
            return Policy(base_dir=folder)
        return self.for_folder(folder.parent)


def has_policy_file(folder: Path) -> bool:
    """Whether the folder may hold a policy; told without importing the reader."""
    if (folder / "llmserve.toml").is_file():
        return True
    pyproject = folder / "pyproject.toml"
    return pyproject.is_file() and b"llmserve" in pyproject.read_bytes()
