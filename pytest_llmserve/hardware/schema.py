"""The schema of one part's TOML file, for a team's own parts and for the tests over ours."""

from __future__ import annotations

import datetime  # noqa: TC003  (pydantic evaluates the annotations)
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from pytest_llmserve.hardware.errors import GpuCatalogueError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

Status = Literal[
    "two-source", "single-source", "derived", "conflict", "unverified", "measured-only"
]
"""How well a figure is known: two independent sources agree, one has it, it is arithmetic, sources
conflict (the trusted one is taken), it is recalled and not re-read, or it was only measured."""

Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]
Positive = Annotated[int, Field(gt=0)]


def _is_share(text: str) -> str:
    try:
        is_share = 0 < Fraction(text) <= 1
    except (ValueError, ZeroDivisionError):
        is_share = False
    if not is_share or "/" not in text:
        raise ValueError("expected a share above 0 and at most 1, such as '1/8'")
    return text


Share = Annotated[str, AfterValidator(_is_share)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Figure(_Table):
    status: Status = "single-source"
    source: str = ""
    note: str = ""


class Bytes(_Figure):
    """A size with its error bar, in bytes."""

    low_bytes: Positive
    expected_bytes: Positive
    high_bytes: Positive

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low_bytes <= self.expected_bytes <= self.high_bytes:
            raise ValueError("expected low_bytes <= expected_bytes <= high_bytes")
        return self


class MemoryReading(_Figure):
    """One reading of the memory size: ``by`` says whose (``framework``, ``nvidia-smi``…)."""

    by: str
    bytes: Positive


class Memory(_Table):
    """What is on the box, and what the framework reports of it (``torch`` total memory)."""

    kind: str = ""
    marketed_bytes: Positive
    note: str = ""
    readings: list[MemoryReading] = []
    framework_total: Bytes | None = None


class Bandwidth(_Figure):
    """Memory bandwidth: an upper bound, and the figure to expect where sources differ."""

    bytes_per_s: Positive
    safe_bytes_per_s: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.safe_bytes_per_s is not None and self.safe_bytes_per_s > self.bytes_per_s:
            raise ValueError("expected safe_bytes_per_s to be at most bytes_per_s")
        return self


class Peak(_Figure):
    """Dense operations per second of one dtype, never with sparsity."""

    value: Positive


class Link(_Figure):
    """GPU-to-GPU fabric, one direction."""

    bytes_per_s: Positive


class Pcie(_Figure):
    """The slot: generation, lanes, and bytes per second in one direction."""

    kind: str
    bytes_per_s: Positive | None = None


class Power(_Figure):
    """Rated board power."""

    watts: Positive


class Mig(_Table):
    """One MIG profile; shares are of the whole device."""

    profile: Annotated[str, Field(pattern=r"^[1-7]g\.[0-9]+gb$")]
    max_count: Positive
    memory_fraction: Share
    compute_fraction: Share
    memory: Bytes | None = None
    note: str = ""


class Price(_Figure):
    """List prices of one device (of one package, where that holds several), USD per hour."""

    low_usd_per_hour: Annotated[float, Field(gt=0)]
    high_usd_per_hour: Annotated[float, Field(gt=0)]
    oldest_date: datetime.date | None = None


class Aliases(_Table):
    """What the part is called, by who calls it so."""

    nvml: list[str] = []
    """As ``nvidia-smi`` and ``torch`` print it; the ``nvidia.com/gpu.product`` label follows."""
    gke: list[str] = []
    karpenter: list[str] = []
    coreweave: list[str] = []
    amd_device_id: list[str] = []
    written: list[str] = []
    """Labels that people write and no driver prints."""
    short: list[str] = []
    ambiguous: list[str] = []
    """Names that could also mean another part: refused, with the list of what they may mean."""


class Part(_Table):
    """One part: figures per device as a framework sees it, SI base units."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    name: Annotated[str, Field(min_length=1)]
    vendor: Annotated[str, Field(min_length=1)]
    architecture: str
    compute_capability: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")] | None = None
    gfx: Annotated[str, Field(pattern=r"^gfx[0-9a-f]+$")] | None = None
    devices_per_unit: Positive = 1
    is_unified_memory: bool = False
    is_boost_guarded: bool = False
    note: str = ""
    aliases: Aliases = Aliases()
    memory: Memory
    bandwidth: Bandwidth | None = None
    dense_flops_per_s: dict[Dtype, Peak] = {}
    link: Link | None = None
    pcie: Pcie | None = None
    power: Power | None = None
    mig: list[Mig] = []
    price: Price | None = None
    sources: dict[str, str] = {}

    @model_validator(mode="after")
    def _profiles_differ(self) -> Self:
        names = [row.profile for row in self.mig]
        if len(names) != len(set(names)):
            raise ValueError("expected each MIG profile once")
        return self


def check_part(path: Path, table: dict[str, Any]) -> Part:
    """The table as a part.

    Raises:
        GpuCatalogueError: the first thing that breaks the schema, or an id that is not the stem.
    """
    try:
        part = Part.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in first["loc"] if step != "[key]")
        value = None if first["type"] == "missing" else first["input"]
        raise GpuCatalogueError(path, key, value, _expected(first["type"], first["msg"])) from None
    if part.id != path.stem:
        raise GpuCatalogueError(path, "id", part.id, f"{path.stem!r}, as the file is called")
    return part


def _expected(kind: str, message: str) -> str:
    if kind == "missing":
        return "a value"
    if kind == "extra_forbidden":
        return "no such key"
    text = message.removeprefix("Value error, ").removeprefix("expected ")
    return text.removeprefix("Input should be ")
