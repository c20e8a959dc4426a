"""Items that keep a policy honest: needed ignores, a current baseline, the fleet."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmserve._pytest.items import DeploymentFile, VerdictItem
from pytest_llmserve.invariants import server_invariants
from pytest_llmserve.invariants.names import IDS
from pytest_llmserve.manifests.launch import NO_SERVER
from pytest_llmserve.reporting.text import explain
from pytest_llmserve.verdict import Certainty, Location, Outcome, ProblemKind, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_llmserve._pytest.guarding import Guard
    from pytest_llmserve._pytest.items import ServerNode
    from pytest_llmserve.guard.ignores import IgnoreComment
    from pytest_llmserve.manifests.launch import Reading
    from pytest_llmserve.policy import Policy
    from pytest_llmserve.servers.policies import Policies
    from pytest_llmserve.servers.server import Server
    from pytest_llmserve.verdict import Problem


def _named(name: str, verdict: Verdict) -> Verdict:
    from dataclasses import replace

    return replace(verdict, id=IDS[name], name=name)


def _answer(name: str, faults: list[str], holds: str, location: Location | None) -> Verdict:
    """Failed with the first fault as its line, or passed."""
    if not faults:
        headline, outcome, certainty = holds, Outcome.PASSED, None
    else:
        headline, outcome, certainty = faults[0], Outcome.FAILED, Certainty.CERTAIN
    return Verdict(
        id=IDS[name],
        name=name,
        outcome=outcome,
        headline=headline,
        certainty=certainty,
        location=location,
        details=tuple(f"also {fault}" for fault in faults[1:]),
    )


class CommentsItem(VerdictItem):
    """LLM401 for a file: each ignore comment has a reason, is allowed and accepts a finding."""

    def __init__(self, *, policy: Policy, nodes: list[ServerNode], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.policy = policy
        self._nodes = nodes

    def decide(self) -> tuple[Verdict, str]:
        """Failed at the first comment that should go."""
        file = self.getparent(DeploymentFile)
        comments = file.guard.comments(self.path) if file is not None else ()
        found = [(c, fault) for c in comments if (fault := self._fault(c))]
        faults = [f"line {c.line}: this ignore comment is not honoured: {why}" for c, why in found]
        place = Location(self.file_name, found[0][0].line) if found else None
        holds = f"{len(comments)} ignore comments are needed"
        verdict = _answer("ignores-needed", faults, holds, place)
        return verdict, explain(verdict)

    def _fault(self, comment: IgnoreComment) -> str:
        if not self.policy.guard.allow_ignores:
            return f"{self.policy.origin} forbids them (allow_ignores = false)"
        if comment.fault:
            return comment.fault
        wanted = set(comment.invariants)
        for node in self._nodes:
            for invariant in server_invariants():
                if invariant.name in wanted and node.server.subjects:
                    verdict = node.server.judge(invariant)
                    is_found = self.policy.is_failure(verdict) and comment.accepts(
                        verdict, node.server.location
                    )
                    if is_found:
                        wanted.discard(invariant.name)
        ids = ", ".join(IDS[name] for name in comment.invariants if name in wanted)
        return f"nothing fails {ids} there" if ids else ""


class PolicyFile(pytest.File):
    """The policy's own file: what holds over all the files that it declares."""

    policies: Policies
    guard: Guard
    policy: Policy

    @property
    def display(self) -> str:
        """The file as messages name it."""
        return self.policy.origin

    def collect(self) -> Iterator[pytest.Item]:
        """An item for each statement."""
        rules = self.policy.guard
        if rules.ignores:
            yield self._item("ignores-needed", self.check_ignores)
        if (self.policy.base_dir / rules.baseline).is_file() and not self.guard.updates_baseline:
            yield self._item("baseline-current", self.check_baseline)
        if rules.shares or rules.quota or rules.pairs or rules.same:
            yield from self._fleet_items()

    def _fleet_items(self) -> Iterator[pytest.Item]:
        from pytest_llmserve.guard.fleet import check_pair, check_quota, check_same, check_share

        rules = self.policy.guard
        for share in rules.shares:
            check = partial(check_share, share=share)
            yield self._item("shared-gpu-fits", check, ",".join(share.servers))
        if rules.quota is not None:
            yield self._item("gpus-within-quota", partial(check_quota, quota=rules.quota))
        for pair in rules.pairs:
            check = partial(check_pair, pair=pair)
            yield self._item("pair-agrees", check, f"{pair.prefill},{pair.decode}")
        for same in rules.same:
            check = partial(check_same, same=same)
            yield self._item("environments-agree", check, ",".join(same.files))

    def _item(
        self, name: str, check: Callable[[dict[str, list[Server]]], Verdict], suffix: str = ""
    ) -> pytest.Item:
        label = f"{name}[{suffix}]" if suffix else name
        item: PolicyItem = PolicyItem.from_parent(
            self, name=label, invariant_name=name, check=check
        )
        return item

    @cached_property
    def _readings(self) -> dict[Path, Reading]:
        from pytest_llmserve.manifests.reader import read_file

        relative, options = self.policy.relative, self.policy.reading
        paths = self.policy.declared_files()
        return {p: read_file(p, display=relative(p), options=options) for p in paths}

    @cached_property
    def unread(self) -> tuple[Problem, ...]:
        """What of the declared files is not understood: servers may be missing in the fleet."""
        return tuple(
            problem
            for reading in self._readings.values()
            for problem in reading.problems
            if problem.kind is not ProblemKind.WARNING and problem.key != NO_SERVER
        )

    @cached_property
    def fleet(self) -> dict[str, list[Server]]:
        """The servers of every declared file, by the file as the policy names it."""
        assembler = self.policies.assembler(self.policy)
        fleet: dict[str, list[Server]] = {}
        for path, reading in self._readings.items():
            servers = [assembler.from_launch(launch, path) for launch in reading.launches]
            fleet[self.policy.relative(path)] = servers
        return fleet

    def check_ignores(self, fleet: dict[str, list[Server]]) -> Verdict:
        """Whether each rule of the policy accepts something that does fail."""
        faults = []
        for rule in self.policy.guard.ignores:
            invariant = next(i for i in server_invariants() if i.name == rule.invariant)
            is_needed = any(
                rule.matches(file, server.name, rule.invariant)
                and server.subjects
                and self.policy.is_failure(server.judge(invariant))
                for file, servers in fleet.items()
                for server in servers
            )
            if not is_needed:
                faults.append(f"ignore {rule} accepts nothing: no such finding is left")
        return _answer("ignores-needed", faults, "every ignore of the policy is needed", None)

    def check_baseline(self, fleet: dict[str, list[Server]]) -> Verdict:
        """Whether each entry is about an invariant of a server that is still there."""
        from pytest_llmserve.guard.baseline import BaselineError, read_baseline

        path = self.policy.base_dir / self.policy.guard.baseline
        try:
            findings = read_baseline(path)
        except BaselineError as error:
            return _answer("baseline-current", [str(error)], "", Location(path.name, 1))
        faults = [
            f"{f.file} {f.server} {f.invariant}: stale, {why}"
            for f in findings
            if (why := self._stale(fleet, f.file, f.server))
        ]
        holds = f"{len(findings)} accepted findings are about servers that are there"
        return _answer("baseline-current", faults, holds, Location(path.name, 1))

    def _stale(self, fleet: dict[str, list[Server]], file: str, server: str) -> str:
        if file in fleet:
            is_there = any(s.name == server for s in fleet[file])
            return "" if is_there else "the file starts no such server any more"
        if not (self.policy.base_dir / file).is_file():
            return "the file is gone"
        return "" if not self.policy.files else "the policy declares the file no more"


class PolicyItem(VerdictItem):
    """One statement of the policy over all its servers."""

    parent: PolicyFile

    def __init__(
        self,
        *,
        invariant_name: str,
        check: Callable[[dict[str, list[Server]]], Verdict],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._invariant_name = invariant_name
        self._check = check
        self.policy = self.parent.policy

    @property
    def file_name(self) -> str:
        """The policy's file, or the one that the verdict names."""
        return self.parent.display

    def decide(self) -> tuple[Verdict, str]:
        """The verdict over the declared files; without any, nothing can be told."""
        if self.policy.files:
            verdict = _named(self._invariant_name, self._check(self.parent.fleet))
            if verdict.id >= "LLM500" and verdict.outcome is Outcome.PASSED and self.parent.unread:
                problem = self.parent.unread[0]
                verdict = Verdict(
                    id=verdict.id,
                    name=verdict.name,
                    outcome=Outcome.CANNOT_TELL,
                    headline=f"cannot tell: a declared file is not read whole: {problem}",
                    location=problem.location,
                )
        else:
            verdict = Verdict(
                id=IDS[self._invariant_name],
                name=self._invariant_name,
                outcome=Outcome.CANNOT_TELL,
                headline=f"cannot tell: {self.policy.origin} declares no files to look at",
            )
        return verdict, explain(verdict)
