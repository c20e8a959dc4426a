"""Deployment files as pytest collects them: a file, its servers, an item per invariant."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmserve.invariants import server_invariants
from pytest_llmserve.reporting.text import explain, headline
from pytest_llmserve.servers.facts import brief_facts, verdict_facts
from pytest_llmserve.verdict import Certainty, Outcome, ProblemKind, Verdict

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

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

    @cached_property
    def display(self) -> str:
        """The path relative to the root directory, where it lies below it."""
        if self.path.is_relative_to(self.config.rootpath):
            return self.path.relative_to(self.config.rootpath).as_posix()
        return str(self.path)

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """A ``readable`` item, and a collector for each server."""
        from pytest_llmserve.manifests.reader import read_file

        reading = read_file(self.path, display=self.display)
        try:
            policy = self.policies.for_folder(self.path.parent)
        except ValueError as error:  # PolicyError, told in its own words
            raise self.CollectError(str(error)) from None
        yield ReadableItem.from_parent(self, name="readable", reading=reading, policy=policy)
        assembler = self.policies.assembler(policy)
        for launch in reading.launches:
            server = assembler.from_launch(launch, self.path)
            yield ServerNode.from_parent(self, name=server.name, server=server)


class ServerNode(pytest.Collector):
    """One server role of a file."""

    def __init__(self, *, server: Server, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.server = server
        self.selected: set[str] = set()
        """Invariants of this server that really run in this session."""
        self._facts: dict[str, Any] | None = None

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
                yield InvariantItem.from_parent(self, name=invariant.name, invariant=invariant)

    @property
    def facts(self) -> dict[str, Any]:
        """What summary and reports say of the server, made once."""
        if self._facts is None:
            if self.config.option.llmserve_report:
                from pytest_llmserve.servers.full_facts import full_facts

                self._facts = full_facts(self.server)
            else:
                self._facts = brief_facts(self.server)
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
        if verdict.outcome is Outcome.CANNOT_TELL:
            if self.policy.allows_cannot_tell(verdict):
                pytest.skip(f"allowed by the policy: {headline(verdict)}")
            if self._fails_at_root(verdict):
                pytest.skip(verdict.headline)
        if self.policy.is_failure(verdict):
            raise VerdictFailure(text)
        if verdict.certainty is Certainty.CLOSE:
            self.warn(LlmServeWarning(text))

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

    def decide(self) -> tuple[Verdict, str]:
        """The worst verdict over the kinds of GPU the server may run on."""
        verdict, subject = self.parent.server.worst(self.invariant)
        return verdict, explain(verdict, subject.deployment)

    def llmserve_facts(self) -> dict[str, Any]:
        """The verdict and its server."""
        return {**super().llmserve_facts(), "server": self.parent.facts}


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
        return {**super().llmserve_facts(), "ignored": list(self.reading.ignored)}


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
