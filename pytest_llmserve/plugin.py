"""The pytest plugin: options, marker and fixtures. Imports nothing of ours until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.assertions import LlmServe
    from pytest_llmserve.policy import Policy
    from pytest_llmserve.verdict import Verdict

MARKER = (
    "llmserve(model=None, gpu=None, gpu_count=None, version=None, **flags): what the 'llmserve' "
    "fixture's calls use where the test gives nothing itself"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all prefixed, in one group."""
    group = parser.getgroup("llmserve", "serving invariants of LLM deployments")
    group.addoption(
        "--llmserve",
        action="store_true",
        help="check deployment files: those named on the command line, found below named "
        "folders, or declared in llmserve.toml or [tool.llmserve]",
    )
    group.addoption(
        "--llmserve-report",
        action="append",
        default=[],
        metavar="KIND=PATH",
        help="write a report; kinds: json, markdown, comment (the body of a pull-request comment), "
        "gitlab (code quality), sarif, plots (a folder)",
    )
    group.addoption(
        "--llmserve-compare",
        metavar="REF",
        help="hold each server against the same files at a git ref: what changed, and by how much",
    )
    group.addoption(
        "--llmserve-update-baseline",
        action="store_true",
        help="accept what fails now: write it into the policy's baseline (never in CI)",
    )
    group.addoption(
        "--llmserve-explain",
        metavar="ID",
        help="print what an invariant means, its formula and how to fix it, and exit; an id, a "
        "name, or 'all'",
    )
    group.addoption(
        "--llmserve-hub",
        action="store_true",
        help="allow looking up unknown models on the Hugging Face hub (extra 'hub')",
    )


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Explain and be done, as ``--fixtures`` lists and is."""
    if config.option.llmserve_explain is None:
        return None
    from pytest_llmserve._pytest.explaining import print_explanation

    return print_explanation(config.option.llmserve_explain)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the collecting plugin if it is asked for."""
    config.addinivalue_line("markers", MARKER)
    if config.option.llmserve:
        from pytest_llmserve._pytest.session import register

        register(config)
    elif config.option.llmserve_report:
        raise pytest.UsageError("--llmserve-report needs --llmserve: nothing is checked without it")


@pytest.fixture(scope="module")
def llmserve_policy(request: pytest.FixtureRequest) -> Policy:
    """The policy nearest above the test's file; override it to test against another."""
    from pytest_llmserve.servers.policies import Policies

    try:
        return Policies(request.config.rootpath).for_folder(request.path.parent)
    except ValueError as error:  # PolicyError, told in its own words
        raise pytest.UsageError(str(error)) from None


@pytest.fixture
def llmserve_gpu() -> str | None:
    """The GPU that the ``llmserve`` fixture uses where a test names none; override to choose."""
    return None


@pytest.fixture
def llmserve(
    request: pytest.FixtureRequest, llmserve_policy: Policy, llmserve_gpu: str | None
) -> LlmServe:
    """Serving invariants bound to the policy: ``llmserve.server(...)``, ``llmserve.read(path)``.

    Every assertion of :mod:`pytest_llmserve` is a method, with the policy's facts and those of
    ``@pytest.mark.llmserve(...)`` as defaults.
    """
    from pytest_llmserve.assertions import LlmServe

    marker = request.node.get_closest_marker("llmserve")
    defaults = dict(marker.kwargs) if marker else {}
    return LlmServe(llmserve_policy, llmserve_gpu, defaults)


@pytest.fixture
def kv_cache_fits(llmserve: LlmServe) -> Callable[..., Verdict]:
    """``kv_cache_fits(...)`` bound to the policy: a verdict that is true if the KV cache fits."""
    return llmserve.kv_cache_fits
