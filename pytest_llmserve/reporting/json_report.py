"""``--llmserve-report json=PATH``: the schema, kept stable, and its writer.

``schema_version`` grows by one when a key changes its meaning or goes away; new keys may appear
within a version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pytest_llmserve import __version__
from pytest_llmserve.reporting.files import write_text
from pytest_llmserve.reporting.summary import grouped_servers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_llmserve.reporting.findings import Checked

SCHEMA_VERSION: Literal[1] = 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Place(_Record):
    """A file, relative to the root directory, and a 1-based line."""

    file: str
    line: int


class Range(_Record):
    """An estimate; ``low == high`` where the figure is exact."""

    low: int
    expected: int
    high: int


class FloatRange(_Record):
    """An estimate of a ratio."""

    low: float
    expected: float
    high: float


class SourcedRange(Range):
    """Bytes per GPU and where the figure came from."""

    source: str


class RuntimeInfo(_Record):
    """The serving program; ``is_assumed``: its version is not stated, the newest known is taken."""

    name: str
    version: str
    is_assumed: bool
    source: str


class ModelInfo(_Record):
    """The name in the file, and the shape it was resolved to (``None``: not known)."""

    ref: str
    id: str | None
    source: str | None


class GpuInfo(_Record):
    """The part, and how many one instance has; ``alternatives``: all that may be scheduled."""

    id: str | None
    source: str
    count: int | None
    count_source: str
    alternatives: list[str]


class SettingInfo(_Record):
    """A value after defaults and where it came from."""

    value: Any
    source: str
    location: Place | None


class LedgerInfo(_Record):
    """Bytes on the fullest GPU of an instance; ``kv_available`` is the budget less the rest."""

    gpu_total: SourcedRange
    budget: SourcedRange
    weights: SourcedRange
    activations: SourcedRange
    graphs: SourcedRange
    non_torch: SourcedRange
    kv_available: SourcedRange
    graphs_in_budget: bool


class KvGroupInfo(_Record):
    """Layers whose blocks are handed out together."""

    num_layers: int
    kind: str
    block_size: int
    page_bytes: int


class KvInfo(_Record):
    """The pool as the runtime prints it; ``request_bytes``: what one full request really holds."""

    bytes_per_token: int
    block_size: int
    bytes_per_block: int
    groups: list[KvGroupInfo]
    num_blocks: Range
    capacity_tokens: Range
    max_concurrency: FloatRange
    max_model_len: int
    request_bytes: int
    need_bytes: int
    estimated_max_len: Range


class RooflineInfo(_Record):
    """Floors and bounds of decode at batch 1 and of prefill of one chunk, per instance."""

    ridge_flop_per_byte: float
    decode_intensity_flop_per_byte: float
    decode_bound: str
    tpot_floor_s: float
    prefill_tokens: int
    prefill_intensity_flop_per_byte: float
    prefill_bound: str
    ttft_floor_s: float


class FixInfo(_Record):
    """A change that was re-checked and passes."""

    change: str
    note: str


class VerdictInfo(_Record):
    """The answer of one invariant; ``headline`` stands alone, ``message`` is all of it.

    ``accepted``: why a failing one fails no test (an ignore, the baseline).
    """

    id: str
    name: str
    outcome: Literal["passed", "failed", "cannot tell"]
    certainty: Literal["certain", "likely", "close"] | None
    is_failure: bool
    accepted: str | None = None
    """Why a failing verdict fails no test: an ignore or the baseline, with the reason."""
    headline: str
    location: Place | None
    margin_bytes: Range | None
    fixes: list[FixInfo]
    evidence: dict[str, float | int | str]
    blocked_by: str | None
    message: str


class Figures(_Record):
    """What a reviewer compares, per GPU on the fullest one; ``None`` where it cannot be told."""

    gpus: str
    runtime: str
    needed_bytes: int | None
    budget_bytes: int | None
    kv_left_bytes: int | None
    capacity_tokens: int | None
    max_model_len: int | None
    longest_context: int | None
    requests_at_once: int | None


class SettingChangeInfo(_Record):
    """A setting that differs; ``source`` is where its new value came from."""

    name: str
    old: str
    new: str
    source: str


class ChangeInfo(_Record):
    """The server before (``None``: it was not there) and after, and the settings that differ."""

    ref: str
    status: Literal["new", "same", "changed"]
    base: Figures | None
    head: Figures | None
    settings: list[SettingChangeInfo]


class ServerInfo(_Record):
    """One server role."""

    name: str
    source: Place | None
    form: str
    replicas: int | None
    is_deployed: bool
    runtime: RuntimeInfo
    model: ModelInfo | None
    gpu: GpuInfo
    settings: dict[str, SettingInfo]
    ledger: LedgerInfo | None
    kv: KvInfo | None
    roofline: RooflineInfo | None
    unknown: list[str]
    change: ChangeInfo | None = None
    verdicts: list[VerdictInfo]


class FileInfo(_Record):
    """One file and what was said of reading it."""

    file: str
    verdict: VerdictInfo
    ignored: list[str] = Field(default_factory=list)


class JsonReport(_Record):
    """The whole report."""

    schema_version: Literal[1] = SCHEMA_VERSION
    tool: str = "pytest-llmserve"
    tool_version: str = __version__
    files: list[FileInfo]
    servers: list[ServerInfo]


def make_json_report(facts: Iterable[dict[str, Any]]) -> JsonReport:
    """The report over everything that was checked, in the order of files and lines."""
    facts = list(facts)
    files = [
        {"file": f["file"], "verdict": f["verdict"], "ignored": f.get("ignored", [])}
        for f in sorted(facts, key=lambda f: (f["file"], f["verdict"]["id"], f.get("node", "")))
        if "server" not in f
    ]
    servers = [
        {**server, "verdicts": [fact["verdict"] for fact in of_server]}
        for server, of_server in grouped_servers(facts)
    ]
    return JsonReport.model_validate({"files": files, "servers": servers})


def write_json_report(path: Path, checked: Checked) -> None:
    """Write the report, making its folder."""
    write_text(path, make_json_report(checked.facts).model_dump_json(indent=2) + "\n")
