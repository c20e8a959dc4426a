"""Reports for where people look: Markdown, GitHub, GitLab, SARIF, JUnit."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from plugin_files import FITS, LENGTH_LINE, TOO_LONG, pod, write

from pytest_llmserve.reporting.kinds import KINDS

NAMES = {
    "json": "report.json",
    "markdown": "report.md",
    "comment": "comment.md",
    "gitlab": "quality.json",
    "sarif": "report.sarif",
}


@pytest.fixture(autouse=True)
def not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    reports = [f"--llmserve-report={kind}=out/{name}" for kind, name in NAMES.items()]
    return pytester.runpytest("--llmserve", *reports, *arguments)


def written(pytester: pytest.Pytester) -> dict[str, str]:
    return {kind: (pytester.path / "out" / name).read_text() for kind, name in NAMES.items()}


def test_every_kind_is_tried_here() -> None:
    assert set(NAMES) <= set(KINDS)


def test_help_lists_the_kinds(pytester: pytest.Pytester) -> None:
    text = " ".join(pytester.runpytest("--help").stdout.str().split())
    kinds = text.partition("write a report; kinds: ")[2].partition(" --llmserve-")[0]
    assert [kind for kind in (*KINDS, "plots") if kind not in kinds] == []


def test_each_report_names_file_and_line(pytester: pytest.Pytester) -> None:
    write(pytester, deploy__chat_yaml=TOO_LONG, deploy__fine_yaml=FITS)
    result = run(pytester, "deploy")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for name in NAMES.values():
        result.stdout.fnmatch_lines([f"report: out/{name}"])
    texts = written(pytester)
    assert "A partial run" not in texts["markdown"]
    where = f"deploy/chat.yaml:{LENGTH_LINE}"
    assert f"`{where}`" in texts["markdown"]
    assert "deploy/fine.yaml" in texts["markdown"]
    assert texts["comment"].startswith("<!-- pytest-llmserve -->\n")
    assert f"`{where}`" in texts["comment"]
    (entry,) = json.loads(texts["gitlab"])
    assert entry["location"] == {"path": "deploy/chat.yaml", "lines": {"begin": LENGTH_LINE}}
    assert (entry["check_name"], entry["severity"]) == ("LLM102 kv-cache-fits", "critical")
    (found,) = json.loads(texts["sarif"])["runs"][0]["results"]
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "deploy/chat.yaml"
    assert place["region"]["startLine"] == LENGTH_LINE


def everything(pytester: pytest.Pytester, *arguments: str) -> dict[str, Any]:
    """All that a GitHub job would take from a run of one partial selection."""
    step, junit = pytester.path / "step.md", pytester.path / "junit.xml"
    step.write_text("# Before\n")
    result = run(pytester, "deploy", "-k", "kv or known", f"--junitxml={junit}", *arguments)
    return {
        **written(pytester),
        "step": step.read_text(),
        "junit": properties(junit),
        "annotations": annotated(result),
    }


def test_all_is_the_same_under_xdist(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        pytester,
        deploy__b_yaml=FITS + "---\n" + pod(131072, name="another"),
        deploy__a_yaml=TOO_LONG,
        deploy__c_yaml=pod(node="restartPolicy: Never"),
    )
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "step.md"))
    alone = everything(pytester)
    assert everything(pytester, "-n", "2") == alone
    assert len(json.loads(alone["gitlab"])) == 3
    assert len(alone["annotations"]) == 3
    assert alone["step"] == "# Before\n" + alone["markdown"]
    assert "A partial run: " in alone["markdown"]


def test_paths_are_those_of_the_repository(pytester: pytest.Pytester) -> None:
    """pytest's root directory may lie below the checkout; platforms know only the checkout."""
    write(pytester, services__chat__chat_yaml=TOO_LONG, services__chat__pytest_ini="[pytest]\n")
    (pytester.path / ".git").mkdir()
    run(pytester, "--rootdir=services/chat", "services/chat/chat.yaml")
    texts = written(pytester)
    assert json.loads(texts["gitlab"])[0]["location"]["path"] == "services/chat/chat.yaml"
    assert f"`services/chat/chat.yaml:{LENGTH_LINE}`" in texts["markdown"]


def test_nothing_found_is_an_empty_report(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=FITS)
    assert run(pytester, "chat.yaml").ret == pytest.ExitCode.OK
    texts = written(pytester)
    assert json.loads(texts["gitlab"]) == []
    assert json.loads(texts["sarif"])["runs"][0]["results"] == []
    assert "all is well" in texts["comment"]


def test_nothing_checked_is_never_green(pytester: pytest.Pytester) -> None:
    (pytester.path / "deploy").mkdir()
    assert run(pytester, "deploy").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "nothing was checked" in written(pytester)["comment"]


def test_a_report_that_cannot_be_written_is_an_error(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=FITS)
    (pytester.path / "taken").write_text("a file, no folder")
    result = pytester.runpytest("--llmserve", "--llmserve-report=gitlab=taken/a.json", "chat.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["report: taken/a.json cannot be written: *"])
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_full_step_summary_is_left_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above 1 MiB GitHub would drop all of it."""
    write(pytester, chat_yaml=TOO_LONG)
    step = pytester.path / "step.md"
    step.write_text("x" * ((1 << 20) - 1100))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    run(pytester, "chat.yaml")
    assert step.stat().st_size < 1 << 20


def annotated(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("::")]


def test_annotations_on_github(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    write(pytester, chat_yaml=TOO_LONG)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = pytester.runpytest("--llmserve", "chat.yaml")
    (line,) = annotated(result)
    title = "LLM102 kv-cache-fits%3A chat"
    assert line.startswith(f"::error file=chat.yaml,line={LENGTH_LINE},title={title}::LLM102 short")
    assert "%0A" in line


def test_no_annotations_elsewhere_or_beside_the_plugin_that_makes_them(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(pytester, chat_yaml=TOO_LONG)
    assert annotated(pytester.runpytest("--llmserve", "chat.yaml")) == []
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    pytester.makepyfile(pytest_github_actions_annotate_failures="")
    result = pytester.runpytest(
        "--llmserve", "chat.yaml", "-p", "pytest_github_actions_annotate_failures"
    )
    assert annotated(result) == []


def properties(path: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, Any]] = {}
    for case in ET.parse(path).getroot().iter("testcase"):
        pairs = [(p.get("name"), p.get("value")) for p in case.iter("property")]
        assert len(pairs) == len(dict(pairs)), "each property once"
        found[f"{case.get('classname')} {case.get('name')}"] = {
            str(name): value for name, value in pairs
        }
    return found


def test_junit_has_the_figures(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=TOO_LONG)
    pytester.runpytest(
        "--llmserve", "chat.yaml", "--junitxml=a.xml", "--llmserve-report=json=a.json"
    )
    alone = properties(pytester.path / "a.xml")
    report = json.loads((pytester.path / "a.json").read_text())
    fits = alone["chat.yaml.chat kv-cache-fits"]
    margin = next(
        v["margin_bytes"] for v in report["servers"][0]["verdicts"] if v["name"] == "kv-cache-fits"
    )
    assert fits["llmserve.id"] == "LLM102"
    assert fits["llmserve.outcome"] == "failed"
    assert fits["llmserve.certainty"] == "certain"
    assert fits["llmserve.location"] == f"chat.yaml:{LENGTH_LINE}"
    assert fits["llmserve.margin_bytes"] == str(margin["expected"])
    assert alone["chat.yaml readable"]["llmserve.outcome"] == "passed"


@pytest.mark.parametrize(
    ("arguments", "is_whole"), [((), False), (("-v",), True)], ids=["short", "verbose"]
)
def test_the_whole_ledger_only_with_v(
    pytester: pytest.Pytester, arguments: tuple[str, ...], is_whole: bool
) -> None:
    write(pytester, chat_yaml=FITS)
    result = pytester.runpytest("--llmserve", "chat.yaml", *arguments)
    section = result.stdout.str().partition("= llmserve =")[2]
    assert ("- weights" in section) is is_whole
    assert ("GiB usable = " in section) is not is_whole


def test_more_than_twenty_servers_are_summed_up(pytester: pytest.Pytester) -> None:
    many = "---\n".join(pod(name=f"chat-{n}") for n in range(21))
    write(pytester, many_yaml=many, long_yaml=TOO_LONG)
    result = pytester.runpytest("--llmserve", "many.yaml", "long.yaml", "-q")
    result.stdout.fnmatch_lines(
        ["long.yaml:11 chat: kv-cache-fits failed", "21 more servers are fine (-v shows all)"]
    )
    assert "chat-3" not in result.stdout.str().partition("= llmserve =")[2]
