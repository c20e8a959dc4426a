"""Deployment files as pytest collects them: a file, its servers, an item per invariant."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmserve.invariants import server_invariants
from pytest_llmserve.reporting.findings import IN_BASELINE
from pytest_llmserve.reporting.text import explain, headline
from pytest_llmserve.servers.facts import brief_facts, verdict_facts
from pytest_llmserve.verdict import Certainty, Outcome, ProblemKind, Verdict

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from pytest_llmserve._pytest.guarding import Guard
    from pytest_llmserve.guard.baseline import Finding
    from pytest_llmserve.invariants.base import Invariant
    from pytest_llmserve.manifests.launch import Reading
    from pytest_llmserve.policy import Policy
    from pytest_llmserve.servers.policies import Policies
    from pytest_llmserve.servers.server import Server


class LlmServeWarning(pytest.PytestWarning):
    """A finding that is close to its limit, within the error bar."""


class VerdictFailure(AssertionError):  # noqa: N818  (named for what it carries)
    """A verdict that fails its item; the text is the whole message."""


class DeploymentFile(pytest.File):
    """One deployment file: an item for its reading, then its servers."""

    policies: Policies
    guard: Guard
    gone: Sequence[str] = ()
    """Servers that the file started at the base and starts no more."""

    @cached_property
    def display(self) -> str:
        """The path relative to the root directory, where it lies below it."""
        if self.path.is_relative_to(self.config.rootpath):
            return self.path.relative_to(self.config.rootpath).as_posix()
        return str(self.path)

    @contextlib.contextmanager
    def _telling(self, where: str = "") -> Iterator[None]:
        """Tell a wrong policy or GPU folder in its own words."""
        try:
            yield
        except ValueError as error:  # PolicyError, GpuCatalogueError
            raise self.CollectError(f"{where}{error}") from None

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """A ``readable`` item, and a collector for each server."""
        from pytest_llmserve.manifests.reader import read_file

        with self._telling():
            policy = self.policies.for_folder(self.path.parent)
        reading = read_file(self.path, display=self.display, options=policy.reading)
        base = self.guard.base
        before = None
        if base is not None:
            with self._telling(f"at {base.ref}: "):
                before = base.servers(self.path)
        is_asked_for = self.session.isinitpath(self.path) or policy.declares(self.path)
        if reading.is_bare and not is_asked_for and not before:
            return  # one of a folder's files that only speaks of a server
        yield ReadableItem.from_parent(self, name="readable", reading=reading, policy=policy)
        assembler = self.policies.assembler(policy)
        with self._telling():
            assembler.parts()
        nodes: list[ServerNode] = []
        for launch in reading.launches:
            server = assembler.from_launch(launch, self.path)
            node: ServerNode = ServerNode.from_parent(self, name=server.name, server=server)
            if base is not None:
                node.compare((before or {}).get(server.name), base.ref)
            nodes.append(node)
        self.gone = sorted(set(before or ()) - {node.server.name for node in nodes})
        yield from nodes
        if self.guard.comments(self.path):
            from pytest_llmserve._pytest.upkeep import CommentsItem

            yield CommentsItem.from_parent(self, name="ignores-needed", policy=policy, nodes=nodes)


class ServerNode(pytest.Collector):
    """One server role of a file."""

    def __init__(self, *, server: Server, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.server = server
        self.selected: set[str] = set()
        """Invariants of this server that really run in this session."""
        self._facts: dict[str, Any] | None = None
        self._change: dict[str, Any] | None = None

    @property
    def file(self) -> DeploymentFile:
        """The file that starts the server."""
        assert isinstance(self.parent, DeploymentFile)
        return self.parent

    def compare(self, base: Server | None, ref: str) -> None:
        """Hold the server against what it was at a ref; ``None``: it was not there."""
        from pytest_llmserve.guard.changes import attach_base, change_facts

        if base is not None:
            attach_base(self.server, base, ref)
        self._change = change_facts(self.server, base, ref)

    def collect(self) -> Iterator[pytest.Item]:
        """An item for each invariant that applies."""
        if self.server.not_planned:
            yield NotPlannedItem.from_parent(self, name="readable", policy=self.server.policy)
            return
        extra = self.server.policy.extend_select
        for invariant in server_invariants():
            if not (invariant.is_selected_by_default or invariant.name in extra):
                continue
            if any(invariant.applies(subject) for subject in self.server.subjects):
                item: InvariantItem = InvariantItem.from_parent(
                    self, name=invariant.name, invariant=invariant
                )
                item.expect_what_is_accepted()
                yield item

    @property
    def facts(self) -> dict[str, Any]:
        """What summary and reports say of the server, made once."""
        if self._facts is None:
            if self.config.option.llmserve_report:
                from pytest_llmserve.servers.full_facts import full_facts

                self._facts = full_facts(self.server)
            else:
                self._facts = brief_facts(self.server)
            if self._change is not None:
                self._facts["change"] = self._change
        return self._facts


class VerdictItem(pytest.Item):
    """An item whose outcome is a verdict."""

    policy: Policy

    def decide(self) -> tuple[Verdict, str]:
        """The verdict and its message."""
        raise NotImplementedError

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._decided: tuple[Verdict, str] | None = None

    @property
    def file_name(self) -> str:
        """The file as messages name it."""
        file = self.getparent(DeploymentFile)
        assert file is not None
        return file.display

    def decided(self) -> tuple[Verdict, str]:
        """The verdict, decided once."""
        if self._decided is None:
            self._decided = self.decide()
        return self._decided

    def runtest(self) -> None:
        """Pass, fail, or skip what is allowed to be unknown or fails at its root already."""
        verdict, text = self.decided()
        self._tell_junit(verdict)
        if verdict.outcome is Outcome.CANNOT_TELL and self.policy.allows_cannot_tell(verdict):
            pytest.skip(f"allowed by the policy: {headline(verdict)}")
        if not self.policy.is_failure(verdict):
            if verdict.certainty is Certainty.CLOSE:
                self.warn(LlmServeWarning(text))
            return
        if (reason := self.ignored()) is not None:
            pytest.skip(f"ignored: {reason}: {headline(verdict)}")
        if self._fails_at_root(verdict):
            pytest.skip(verdict.headline)
        self.fail_or_accept(text)

    def ignored(self) -> str | None:
        """Why a failing verdict is ignored, if it is."""
        return None

    def fail_or_accept(self, text: str) -> None:
        """Fail with the whole message."""
        raise VerdictFailure(text)

    def _tell_junit(self, verdict: Verdict) -> None:
        """Figures as properties of the test case; as text, which any process may carry."""
        from pytest_llmserve.reporting.properties import verdict_properties

        others = [p for p in self.user_properties if not p[0].startswith("llmserve.")]
        self.user_properties = [*others, *verdict_properties(verdict)]

    def _fails_at_root(self, verdict: Verdict) -> bool:
        return (
            verdict.blocked_by is not None
            and isinstance(self.parent, ServerNode)
            and verdict.blocked_by in self.parent.selected
            and verdict.blocked_by not in self.policy.allow_cannot_tell
        )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """Our own text for a verdict; pytest's for everything else."""
        if isinstance(excinfo.value, VerdictFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """The file and the 0-based line that the verdict is about."""
        path, line = self.path, 1
        with contextlib.suppress(Exception):  # whatever is wrong shows when the item runs
            location = self.decided()[0].location
            if location is not None:
                line = location.line
                if location.file != self.file_name:
                    other = self.config.rootpath / location.file
                    path = other if other.exists() else path
        return path, line - 1, self.nodeid.partition("::")[2].replace("::", " ")

    def llmserve_facts(self) -> dict[str, Any]:
        """What the reports need, in plain types that travel between processes."""
        verdict, text = self.decided()
        return {
            "file": self.file_name,
            "verdict": verdict_facts(verdict, text, is_failure=self.policy.is_failure(verdict)),
        }


class InvariantItem(VerdictItem):
    """One invariant about one server."""

    parent: ServerNode

    def __init__(self, *, invariant: Invariant, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.invariant = invariant
        self.policy = self.parent.server.policy
        self._accepted: Finding | None = None

    def expect_what_is_accepted(self) -> None:
        """A finding of the baseline is expected to fail, strictly: fixed, it has to go.

        Raises:
            CollectError: the baseline cannot be used.
        """
        guard = self.parent.file.guard
        name = self.parent.server.name
        try:
            found = guard.accepted_finding(self.policy, self.path, name, self.invariant.name)
        except ValueError as error:  # BaselineError, told in its own words
            raise self.parent.CollectError(str(error)) from None
        self._accepted = found
        if found is not None and not guard.updates_baseline:
            reason = f"in {self.policy.guard.baseline}: {found.reason}"
            self.add_marker(pytest.mark.xfail(strict=True, reason=reason, raises=VerdictFailure))

    def ignored(self) -> str | None:
        """By a comment on its line, or by a rule of the policy."""
        guard, server = self.parent.file.guard, self.parent.server
        return guard.ignored(self.policy, self.path, server, self.decided()[0])

    def fail_or_accept(self, text: str) -> None:
        """Fail, unless this run writes the baseline."""
        if self.parent.file.guard.updates_baseline:
            pytest.xfail("accepted into the baseline")
        server = self.parent.server.name
        verdict = self.decided()[0]
        expired = self.parent.file.guard.expired(self.policy, self.path, server, verdict)
        raise VerdictFailure(f"{text}\n  {expired}" if expired else text)

    def decide(self) -> tuple[Verdict, str]:
        """The worst verdict over the kinds of GPU the server may run on."""
        verdict, subject = self.parent.server.worst(self.invariant)
        return verdict, explain(verdict, subject.deployment)

    def llmserve_facts(self) -> dict[str, Any]:
        """The verdict, why it is accepted if it is, and its server."""
        verdict, text = self.decided()
        is_failure = self.policy.is_failure(verdict)
        accepted = self.ignored() if is_failure else None
        guard = self.parent.file.guard
        facts: dict[str, Any] = {"file": self.file_name, "server": self.parent.facts}
        if guard.updates_baseline:
            facts["baseline"] = {
                "path": str(self.policy.base_dir / self.policy.guard.baseline),
                "file": self.policy.relative(self.path),
                "server": self.parent.server.name,
                "is_finding": is_failure and accepted is None and verdict.blocked_by is None,
            }
        if is_failure and accepted is None and self._accepted is not None:
            accepted = f"{IN_BASELINE}{self._accepted.reason}"
        facts["verdict"] = verdict_facts(verdict, text, is_failure=is_failure, accepted=accepted)
        return facts


class ReadableItem(VerdictItem):
    """LLM001: the file is read, whole, and it starts a server."""

    def __init__(self, *, reading: Reading, policy: Policy, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reading = reading
        self.policy = policy

    def decide(self) -> tuple[Verdict, str]:
        """Failed for broken text, *cannot tell* for what is not understood."""
        problems = [p for p in self.reading.problems if p.kind is not ProblemKind.WARNING]
        if not problems:
            count = len(self.reading.launches)
            verdict = Verdict(
                id="LLM001",
                name="readable",
                outcome=Outcome.PASSED,
                headline=f"{count} server{'' if count == 1 else 's'}",
            )
            return verdict, explain(verdict)
        broken = any(p.kind is ProblemKind.UNREADABLE for p in problems)
        first, *others = problems
        verdict = Verdict(
            id="LLM001",
            name="readable",
            outcome=Outcome.FAILED if broken else Outcome.CANNOT_TELL,
            certainty=Certainty.CERTAIN if broken else None,
            headline=first.message,
            location=first.location,
            details=tuple(f"also {p}" for p in others),
        )
        return verdict, explain(verdict)

    def llmserve_facts(self) -> dict[str, Any]:
        """The verdict, and what in the file is no server."""
        file = self.parent
        gone = list(file.gone) if isinstance(file, DeploymentFile) else []
        return {**super().llmserve_facts(), "ignored": list(self.reading.ignored), "gone": gone}


class NotPlannedItem(VerdictItem):
    """A server of a runtime whose rules are not known here: never a pass."""

    parent: ServerNode

    def __init__(self, *, policy: Policy, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.policy = policy

    def decide(self) -> tuple[Verdict, str]:
        """*Cannot tell*, and why."""
        server = self.parent.server
        verdict = Verdict(
            id="LLM001",
            name="readable",
            outcome=Outcome.CANNOT_TELL,
            headline=f"cannot tell: {server.name} is {server.not_planned}",
            location=server.location,
        )
        return verdict, explain(verdict)
