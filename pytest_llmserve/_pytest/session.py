"""One checking session: which files are collected, what is counted, summarised and written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmserve._pytest.guarding import Guard, has_statements, open_guard, write_baselines
from pytest_llmserve._pytest.items import DeploymentFile, ServerNode, VerdictItem
from pytest_llmserve.manifests.known_names import has_known_name
from pytest_llmserve.reporting.kinds import KINDS, write_report
from pytest_llmserve.servers.policies import Policies
from pytest_llmserve.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_llmserve._pytest.upkeep import PolicyFile
    from pytest_llmserve.reporting.findings import Checked

_MENTIONS_A_SERVER = re.compile(
    rb"vllm|sglang|trtllm|text-generation-(?:launcher|inference)|llama-server|ollama"
    rb"|kaito\.sh|LLMInferenceService|kserve\.io|llm_configs|servingEngineSpec|modelArtifacts"
    rb"|NIMService|kustomize\.config\.k8s\.io",
    re.IGNORECASE,
)
POLICY_NAMES = ("llmserve.toml", "pyproject.toml")
WORKER_KEY = "llmserve_collected"
PLOTS = "plots"


def register(config: pytest.Config) -> None:
    """Start checking: validate options and policies, add the declared files.

    Raises:
        pytest.UsageError: an option or a policy is wrong.
    """
    reports = [_report_option(text) for text in config.option.llmserve_report]
    if folders := [path for kind, path in reports if kind == PLOTS]:
        from pytest_llmserve._pytest.pictures import register as register_pictures

        register_pictures(config, folders)
        reports = [(kind, path) for kind, path in reports if kind != PLOTS]
    policies = Policies(config.rootpath, allow_network=config.option.llmserve_hub)
    session = CheckingSession(config, policies, reports, open_guard(config))
    try:
        session.prepare_arguments()
    except ValueError as error:  # PolicyError
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(session, "llmserve-session")
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(XdistCounter(session), "llmserve-xdist")


def _report_option(text: str) -> tuple[str, Path]:
    kind, separator, path = text.partition("=")
    if kind not in (*KINDS, PLOTS) or not separator or not path:
        valid = ", ".join(f"{k}=PATH" for k in (*KINDS, PLOTS))
        raise pytest.UsageError(f"--llmserve-report {text}: expected one of: {valid}")
    return kind, Path(path)


class CheckingSession:
    """The plugin object that exists only with ``--llmserve``."""

    def __init__(
        self,
        config: pytest.Config,
        policies: Policies,
        reports: list[tuple[str, Path]],
        guard: Guard,
    ) -> None:
        self.config = config
        self.policies = policies
        self.guard = guard
        self.reports = reports
        self.collected = 0
        self.facts: list[dict[str, Any]] = []
        self._unwritten: list[str] = []
        self._written: list[str] = []
        self.is_worker = hasattr(config, "workerinput")

    def prepare_arguments(self) -> None:
        """Read the policies that hold for the arguments; add declared files where none is named."""
        config = self.config
        is_named = config.args_source is pytest.Config.ArgsSource.ARGS
        folders = [_folder_of(argument, config.invocation_params.dir) for argument in config.args]
        for folder in [config.rootpath, *folders]:
            policy = self.policies.for_folder(folder)
            if missing := policy.empty_patterns():
                raise ValueError(
                    f"{policy.origin}: files = {missing[0]!r}: no such file below {policy.base_dir}"
                )
        if not is_named:
            policy = self.policies.for_folder(config.rootpath)
            declared = policy.declared_files()
            if policy.origin and has_statements(policy):
                declared.append(policy.base_dir / Path(policy.origin).name)
            covered = [Path(config.invocation_params.dir, a.split("::")[0]) for a in config.args]
            config.args += [
                str(path)
                for path in declared
                if not any(path == c or c in path.parents for c in covered)
            ]

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.File | None:
        """Take a file that is named, declared, or in a named folder and mentions a server."""
        if file_path.name in POLICY_NAMES:
            return self._policy_file(file_path, parent)
        if file_path.suffix == ".py" or not self._is_wanted(file_path, parent):
            return None
        node: DeploymentFile = DeploymentFile.from_parent(parent, path=file_path)
        node.policies, node.guard = self.policies, self.guard
        return node

    def _policy_file(self, path: Path, parent: pytest.Collector) -> PolicyFile | None:
        """A policy that says something over its servers together."""
        try:
            policy = self.policies.for_folder(path.parent)
        except ValueError:
            return None  # each file below tells it
        is_this = policy.base_dir == path.parent and Path(policy.origin).name == path.name
        if not is_this or not has_statements(policy):
            return None
        from pytest_llmserve._pytest.upkeep import PolicyFile

        node: PolicyFile = PolicyFile.from_parent(parent, path=path)
        node.policies, node.guard, node.policy = self.policies, self.guard, policy
        return node

    def _is_wanted(self, path: Path, parent: pytest.Collector) -> bool:
        if parent.session.isinitpath(path):
            return True
        try:
            policy = self.policies.for_folder(path.parent)
        except ValueError:
            return has_known_name(path)  # collecting it tells what is wrong with the policy
        if policy.files:
            return policy.declares(path)
        return has_known_name(path) and _mentions_a_server(path)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count what is checked, so that checking nothing is noticed."""
        self.collected += isinstance(item, VerdictItem)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell each server which of its invariants run: a failing root silences the rest."""
        for item in session.items:
            if isinstance(item.parent, ServerNode):
                item.parent.selected.add(item.name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Hang the figures on the report: that is how they travel from xdist's workers."""
        report = yield
        if call.when == "call" and isinstance(item, VerdictItem):
            # What raised while it was decided would raise again, here.
            if call.excinfo is None or item._decided is not None:
                node = item.nodeid.partition("::")[2]
                facts = {**item.llmserve_facts(), "node": node, "item": report.outcome}
                if report.failed and facts["verdict"]["outcome"] == Outcome.PASSED:
                    facts["said"] = report.longreprtext  # an expected failure that is fixed
                # execnet carries no integer above 2^31: between processes the figures are JSON.
                report.llmserve = json.dumps(facts) if self.is_worker else facts  # type: ignore[attr-defined]
            if report.skipped and isinstance(report.longrepr, tuple):
                path, line, _ = item.reportinfo()  # not the line of ours that called skip
                report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather figures, on the controller or in the only process."""
        if not self.is_worker and (facts := getattr(report, "llmserve", None)):
            self.facts.append(json.loads(facts) if isinstance(facts, str) else facts)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write reports; never green on nothing."""
        if self.is_worker:
            self.config.workeroutput[WORKER_KEY] = self.collected  # type: ignore[attr-defined]
            return
        if session.config.option.collectonly:
            return
        if not self.collected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        self._finish_guard(session)
        for kind, path in self.reports:
            try:
                write_report(kind, self.config.invocation_params.dir / path, self.checked())
            except OSError as error:
                self._unwritten.append(f"report: {path} cannot be written: {error.strerror}")
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _finish_guard(self, session: pytest.Session) -> None:
        """Name the servers whose file is gone since the base; write the baseline if asked."""
        if self.guard.base is not None and self.facts:
            self.facts[0]["deleted"] = self.guard.deleted_servers()
        if self.guard.updates_baseline:
            try:
                self._written = write_baselines(self.facts)
            except OSError as error:
                self._unwritten.append(
                    f"baseline: {error.filename} cannot be written: {error.strerror}"
                )
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def checked(self) -> Checked:
        """All that was found, as reports take it."""
        from pytest_llmserve.reporting.changes import changes_of, compared_with
        from pytest_llmserve.reporting.files import repository_prefix
        from pytest_llmserve.reporting.findings import Checked

        prefix = repository_prefix(self.config.rootpath)
        return Checked(
            facts=self.facts,
            changes=tuple(changes_of(self.facts, prefix)),
            compared_with=compared_with(self.facts),
            prefix=prefix,
            not_run=self._not_run,
        )

    @property
    def _not_run(self) -> int:
        return max(0, self.collected - len(self.facts))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """How much was checked, and a line per server."""
        if self.is_worker or self.config.option.collectonly:
            return
        from pytest_llmserve.reporting.changes import comparison_lines
        from pytest_llmserve.reporting.summary import summary_lines

        is_verbose = self.config.get_verbosity() > 0
        lines = summary_lines(self.facts, is_verbose=is_verbose, not_run=self._not_run)
        terminalreporter.section("llmserve")
        for line in lines:
            terminalreporter.line(line)
        for line in [*comparison_lines(self.facts), *self._written]:
            terminalreporter.line(line)
        for line in self._unwritten or [f"report: {path}" for _, path in self.reports]:
            terminalreporter.line(line)
        self._annotate(terminalreporter)

    def _annotate(self, terminalreporter: pytest.TerminalReporter) -> None:
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return
        from pytest_llmserve.reporting.annotations import annotation_lines, are_wanted

        plugins = {name for name, plugin in self.config.pluginmanager.list_name_plugin() if plugin}
        if are_wanted(os.environ, plugins):
            for line in annotation_lines(self.checked()):
                terminalreporter.line(line)


class XdistCounter:
    """Takes over what xdist's workers collected, each the same; exists only beside xdist."""

    def __init__(self, session: CheckingSession) -> None:
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker is done."""
        counted = getattr(node, "workeroutput", {}).get(WORKER_KEY, 0)
        self._session.collected = max(self._session.collected, counted)


def _folder_of(argument: str, invocation_dir: Path) -> Path:
    path = (invocation_dir / argument.split("::")[0]).resolve()
    return path if path.is_dir() else path.parent


def _mentions_a_server(path: Path) -> bool:
    """Whether the text speaks of a serving program at all; unreadable files are looked into."""
    try:
        return _MENTIONS_A_SERVER.search(path.read_bytes()) is not None
    except OSError:
        return True
