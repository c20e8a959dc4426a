"""The SARIF log has the shape of SARIF 2.1.0 (OASIS Standard, sections in the comments).

The standard's own JSON schema (``sarif-2.1.0.json`` in the npm package
@microsoft/sarif-multitool-linux 5.7.0) finds nothing wrong with ``golden/report.sarif``. Its text
is not copied here: the checks below are by hand.
"""

import re
from typing import Any, Literal

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field
from report_facts import FACTS, TOO_LONG, checked, fact, server

from pytest_llmserve.invariants.names import NAMES
from pytest_llmserve.reporting.sarif import sarif

Level = Literal["none", "note", "warning", "error"]


class Closed(BaseModel):
    """The standard's objects take no other properties, and names of exact spelling."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Message(Closed):  # 3.11
    text: str = Field(min_length=1)


class MultiformatMessage(Closed):  # 3.12
    text: str = Field(min_length=1)
    markdown: str = ""


class ReportingConfiguration(Closed):  # 3.50
    level: Level


class ReportingDescriptor(Closed):  # 3.49
    id: str
    name: str = Field(pattern=r"^[A-Za-z]+$")
    shortDescription: MultiformatMessage  # noqa: N815
    fullDescription: MultiformatMessage  # noqa: N815
    help: MultiformatMessage
    defaultConfiguration: ReportingConfiguration  # noqa: N815
    properties: dict[str, Any]


class ToolComponent(Closed):  # 3.19
    name: str
    version: str
    semanticVersion: str = Field(pattern=r"^\d+\.\d+\.\d+$")  # noqa: N815
    informationUri: str  # noqa: N815
    rules: list[ReportingDescriptor]


class Tool(Closed):  # 3.18
    driver: ToolComponent


class ArtifactLocation(Closed):  # 3.4
    uri: str = Field(pattern=r"^[A-Za-z0-9._~%!$&'()*+,;=@/-]+$")


class Region(Closed):  # 3.30
    startLine: int = Field(ge=1)  # noqa: N815


class PhysicalLocation(Closed):  # 3.29
    artifactLocation: ArtifactLocation  # noqa: N815
    region: Region


class Location(Closed):  # 3.28
    physicalLocation: PhysicalLocation  # noqa: N815


class Result(Closed):  # 3.27
    ruleId: str  # noqa: N815
    ruleIndex: int = Field(ge=0)  # noqa: N815
    level: Level
    message: Message
    locations: list[Location] = Field(min_length=1)
    partialFingerprints: dict[str, str]  # noqa: N815
    properties: dict[str, Any]


class Notification(Closed):  # 3.58
    level: Level
    message: Message


class Invocation(Closed):  # 3.20
    executionSuccessful: bool  # noqa: N815
    toolExecutionNotifications: list[Notification] = []  # noqa: N815


class Run(Closed):  # 3.14
    tool: Tool
    columnKind: Literal["utf16CodeUnits", "unicodeCodePoints"]  # noqa: N815
    invocations: list[Invocation]
    results: list[Result]


class Log(Closed):  # 3.13
    version: Literal["2.1.0"]
    schema_uri: str = Field(alias="$schema")
    runs: list[Run] = Field(min_length=1)


def log(facts: list[dict[str, Any]] | None = None, **more: Any) -> Run:
    parsed = Log.model_validate(sarif(checked(facts, **more)))
    AnyUrl(parsed.schema_uri)
    return parsed.runs[0]


def test_it_has_the_shape_of_the_standard() -> None:
    run = log(prefix="services/", not_run=2)
    AnyUrl(run.tool.driver.informationUri)
    ids = [rule.id for rule in run.tool.driver.rules]
    assert ids == sorted(set(ids))
    for result in run.results:
        assert ids[result.ruleIndex] == result.ruleId
        uri = result.locations[0].physicalLocation.artifactLocation.uri
        assert uri.startswith("services/deploy/"), "relative to the repository"


def test_the_check_of_the_shape_can_fail() -> None:
    broken = sarif(checked())
    broken["runs"][0]["results"][0]["level"] = "fatal"
    broken["runs"][0]["results"][1]["line"] = 3
    with pytest.raises(ValueError, match="2 validation errors"):
        Log.model_validate(broken)


def test_help_explains_the_rule() -> None:
    rules = {rule.id: rule for rule in log().tool.driver.rules}
    assert rules["LLM102"].name == "KvCacheFits"
    assert "bytes per token" in rules["LLM102"].help.markdown


@pytest.mark.parametrize("id_", NAMES)
def test_every_invariant_can_be_a_rule(id_: str) -> None:
    about = {**TOO_LONG, "id": id_, "name": NAMES[id_]}
    (rule,) = log([fact(server("a", "a.yaml", 1), about)]).tool.driver.rules
    assert rule.id == id_


def fingerprints(facts: list[dict[str, Any]]) -> list[str]:
    return [r.partialFingerprints["primaryLocationLineHash"] for r in log(facts).results]


def test_fingerprints_differ() -> None:
    twice = [*FACTS, *FACTS]  # two servers of one name in one file
    found = fingerprints(twice)
    assert len(found) == 8
    assert len(set(found)) == 8
    assert all(re.fullmatch(r"[0-9a-f]{64}", text) for text in found)


def test_fingerprints_stay_when_lines_and_figures_move() -> None:
    place = server("chat", "a.yaml", 3)
    moved = server("chat", "a.yaml", 30)
    other = {
        **TOO_LONG,
        "headline": "short of 1.00 GiB",
        "location": {"file": "a.yaml", "line": 99},
    }
    assert fingerprints([fact(place, TOO_LONG)]) == fingerprints([fact(moved, other)])
    renamed = server("chat-2", "a.yaml", 3)
    assert fingerprints([fact(place, TOO_LONG)]) != fingerprints([fact(renamed, TOO_LONG)])


def test_a_partial_run_says_so() -> None:
    assert log().invocations[0].toolExecutionNotifications == []
    (notice,) = log(not_run=2).invocations[0].toolExecutionNotifications
    assert "2 checks were collected and not run" in notice.message.text
