"""What accepts a finding in this session, and the base it is compared with."""

from __future__ import annotations

import datetime
import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmserve.guard.baseline import Finding, format_baseline, read_baseline, updated
from pytest_llmserve.guard.ignores import IgnoreComment, accepting_rule, read_ignores
from pytest_llmserve.manifests.known_names import has_known_name

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmserve.guard.base_tree import BaseTree
    from pytest_llmserve.policy import Policy
    from pytest_llmserve.servers.server import Server
    from pytest_llmserve.verdict import Location, Verdict


class Guard:
    """Ignores, baselines and the base of one session; each is read once."""

    def __init__(self, *, root: Path, base: BaseTree | None, updates_baseline: bool) -> None:
        self._root = root
        self.base = base
        self.updates_baseline = updates_baseline
        self._today = datetime.date.today()
        self._comments: dict[Path, tuple[IgnoreComment, ...]] = {}
        self._baselines: dict[Path, dict[tuple[str, str, str], Finding]] = {}

    def deleted_servers(self) -> list[tuple[str, str]]:
        """File and name of every server whose file is gone since the base."""
        if self.base is None:
            return []
        return [(path, name) for path in self.base.deleted for name in self._of_deleted(path)]

    def _of_deleted(self, path: str) -> list[str]:
        assert self.base is not None
        if not has_known_name(PurePosixPath(path)):
            return []
        return sorted(self.base.servers_at(path) or ())

    def comments(self, file: Path) -> tuple[IgnoreComment, ...]:
        """The ignore comments of a file."""
        if file not in self._comments:
            try:
                data = file.read_bytes()
            except OSError:
                data = b""
            found: tuple[IgnoreComment, ...] = ()
            if b"llmserve:" in data:
                found = read_ignores(data.decode(errors="replace"), self._display(file))
            self._comments[file] = found
        return self._comments[file]

    def _display(self, file: Path) -> str:
        """The file as findings name it."""
        if file.is_relative_to(self._root):
            return file.relative_to(self._root).as_posix()
        return str(file)

    def accepted_finding(
        self, policy: Policy, file: Path, server: str, invariant: str
    ) -> Finding | None:
        """The baseline's entry about an invariant of a server, if it has one.

        Raises:
            BaselineError: the baseline cannot be used.
        """
        accepted = self._baselines.get(policy.base_dir)
        if accepted is None:
            path = policy.base_dir / policy.guard.baseline
            accepted = {finding.key: finding for finding in read_baseline(path)}
            self._baselines[policy.base_dir] = accepted
        if not accepted:
            return None
        return accepted.get((policy.relative(file), server, invariant))

    def ignored(self, policy: Policy, file: Path, server: Server, verdict: Verdict) -> str | None:
        """Why a finding is ignored, or ``None``: a comment on its line, or a rule of the policy."""
        place: Location | None = server.location
        if policy.guard.allow_ignores:
            for comment in self.comments(file):
                if comment.accepts(verdict, place):
                    return f"{comment.reason} (line {comment.line})"
        rule = accepting_rule(
            policy.guard, policy.relative(file), server.name, verdict, self._today
        )
        if rule is None:
            return None
        until = f", until {rule.until}" if rule.until else ""
        return f"{rule.reason} ({policy.origin}{until})"

    def expired(self, policy: Policy, file: Path, server: str, verdict: Verdict) -> str | None:
        """The policy's rule that accepted this finding until its date, in words."""
        for rule in policy.guard.ignores:
            is_about = rule.matches(policy.relative(file), server, verdict.name)
            if is_about and rule.is_expired(self._today):
                return f"was ignored until {rule.until}: {rule.reason} ({policy.origin})"
        return None


def open_guard(config: pytest.Config) -> Guard:
    """The guard that the options ask for.

    Raises:
        pytest.UsageError: no such ref, or a baseline would be written in CI.
    """
    updates = config.option.llmserve_update_baseline
    if updates and os.environ.get("CI"):
        raise pytest.UsageError(
            "--llmserve-update-baseline: not in CI, where nobody would read what it accepts"
        )
    base: BaseTree | None = None
    if ref := config.option.llmserve_compare:
        from pytest_llmserve.guard.base_tree import BaseTree
        from pytest_llmserve.guard.git import GitError

        try:
            base = BaseTree(
                config.invocation_params.dir, ref, allow_network=config.option.llmserve_hub
            )
        except GitError as error:
            raise pytest.UsageError(f"--llmserve-compare {ref}: {error}") from None
        config.add_cleanup(base.close)
    return Guard(root=config.rootpath, base=base, updates_baseline=updates)


def has_statements(policy: Policy) -> bool:
    """Whether a policy says anything over its servers together."""
    rules = policy.guard
    statements = (rules.ignores, rules.shares, rules.quota, rules.pairs, rules.same)
    return any(statements) or (policy.base_dir / rules.baseline).is_file()


def write_baselines(facts: list[dict[str, Any]]) -> list[str]:
    """Write each baseline that the run looked at; the paths that changed."""
    from pytest_llmserve.reporting.files import write_text

    by_path: dict[str, tuple[list[Finding], list[tuple[str, str, str]]]] = {}
    for fact in facts:
        if (where := fact.get("baseline")) is None:
            continue
        verdict = fact["verdict"]
        finding = Finding(
            file=where["file"],
            server=where["server"],
            invariant=verdict["name"],
            figure=verdict["headline"],
        )
        failing, looked_at = by_path.setdefault(where["path"], ([], []))
        looked_at.append(finding.key)
        if where["is_finding"]:
            failing.append(finding)
    written = []
    for text, (failing, looked_at) in sorted(by_path.items()):
        path = _path(text)
        findings = updated(read_baseline(path), failing, looked_at)
        if findings or path.exists():
            write_text(path, format_baseline(findings))
            written.append(f"{path.name}: {len(findings)} accepted findings")
    return written


def _path(text: str) -> Path:
    from pathlib import Path

    return Path(text)
