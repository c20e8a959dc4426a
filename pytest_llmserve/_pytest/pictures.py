"""``--llmserve-report plots=DIR``: written in the process that collected the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmserve._pytest.items import ServerNode

if TYPE_CHECKING:
    from pathlib import Path


def register(config: pytest.Config, folders: list[Path]) -> None:
    """Draw at the end of the session.

    Raises:
        pytest.UsageError: matplotlib is not installed.
    """
    from pytest_llmserve.plots.write import NO_MATPLOTLIB, is_available

    if not is_available():
        raise pytest.UsageError(f"--llmserve-report plots={folders[0]}: {NO_MATPLOTLIB}")
    config.pluginmanager.register(Pictures(config, folders), "llmserve-pictures")


class Pictures:
    """Exists only where pictures were asked for."""

    def __init__(self, config: pytest.Config, folders: list[Path]) -> None:
        self._config = config
        self._folders = folders
        self._said: list[str] = []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Every xdist worker has collected all servers: the first one draws."""
        worker = getattr(self._config, "workerinput", {}).get("workerid", "gw0")
        if worker != "gw0" or self._config.option.collectonly:
            return
        from pytest_llmserve.plots.write import write_plots

        nodes = {i.parent: None for i in session.items if isinstance(i.parent, ServerNode)}
        subjects = [subject for node in nodes for subject in node.server.subjects]
        for folder in self._folders if subjects else ():
            try:
                write_plots(self._config.invocation_params.dir / folder, subjects)
            except OSError as error:
                self._said.append(f"report: {folder} cannot be written: {error.strerror}")
                session.exitstatus = session.exitstatus or pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Where they are."""
        if not hasattr(self._config, "workerinput") and not self._config.option.collectonly:
            for line in self._said or [f"report: {folder}" for folder in self._folders]:
                terminalreporter.line(line)
