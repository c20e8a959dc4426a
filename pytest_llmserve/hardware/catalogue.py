"""The shipped parts, one TOML each in ``gpus/``, and the parts a team describes itself.

Shipped files go straight from ``tomllib`` to :class:`GpuSpec`: the test suite validates each with
the schema (``schema.py``), so that a look-up need not import pydantic. A team's own files are
always validated.
"""

from __future__ import annotations

import tomllib
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.hardware.errors import GpuCatalogueError
from pytest_llmserve.hardware.spec import GpuPrice, GpuSpec, MigProfile
from pytest_llmserve.units import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping

GPUS: Final = Path(__file__).parent / "gpus"


@cache
def gpu_ids() -> tuple[str, ...]:
    """The ids of all shipped parts, sorted."""
    return tuple(sorted(path.stem for path in GPUS.glob("*.toml")))


@cache
def load_gpu(gpu_id: str) -> GpuSpec:
    """The shipped part with exactly this id (``h100-sxm-80gb``).

    Raises:
        KeyError: no such part is shipped; to understand other spellings is ``resolve_gpu``'s work.
    """
    if not gpu_id.replace("-", "").isalnum():
        raise KeyError(gpu_id)
    try:
        text = (GPUS / f"{gpu_id}.toml").read_text(encoding="utf-8")
    except OSError:
        raise KeyError(gpu_id) from None
    return spec_of(tomllib.loads(text), source=f"catalogue {gpu_id}")


def load_user_gpus(folder: Path) -> dict[str, GpuSpec]:
    """Each part described by a ``*.toml`` in the folder, under its id and under all its aliases.

    The files have the schema of the shipped ones; the file's stem is the part's id. A part of the
    team's own hides a shipped one of the same name.

    Raises:
        GpuCatalogueError: the folder or a file cannot be read, a file breaks the schema, or two
            files claim one name.
    """
    if not folder.is_dir():
        raise GpuCatalogueError(folder, "", None, "a folder with one TOML file for each part")
    found: dict[str, GpuSpec] = {}
    owner: dict[str, Path] = {}
    for path in sorted(folder.glob("*.toml")):
        table = read_part(path)
        spec = spec_of(table, source=str(path))
        for name in (spec.id, *_own_names(table)):
            if owner.setdefault(name, path) != path:
                expected = f"a name that {owner[name].name} does not claim too"
                raise GpuCatalogueError(path, "aliases", name, expected)
            found[name] = spec
    return found


def read_part(path: Path) -> dict[str, Any]:
    """One part's file as a table that keeps to the schema.

    Raises:
        GpuCatalogueError: it cannot be read, is no TOML or breaks the schema.
    """
    from pytest_llmserve.hardware.schema import check_part

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GpuCatalogueError(path, "", error.strerror, "a file that can be read") from None
    except UnicodeDecodeError as error:
        raise GpuCatalogueError(path, "", f"byte {error.start}", "UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise GpuCatalogueError(path, "", str(error), "TOML") from None
    check_part(path, table)
    return table


def spec_of(table: Mapping[str, Any], *, source: str) -> GpuSpec:
    """The part that a table which keeps to the schema describes."""
    memory, bandwidth = table["memory"], table.get("bandwidth", {})
    capability = table.get("compute_capability")
    peaks = {dtype: figure["value"] for dtype, figure in table.get("dense_flops_per_s", {}).items()}
    upper = bandwidth.get("bytes_per_s")
    return GpuSpec(
        id=table["id"],
        name=table["name"],
        vendor=table["vendor"],
        architecture=table["architecture"],
        compute_capability=None if capability is None else _capability(capability),
        memory_total_bytes=_interval(memory.get("framework_total")),
        memory_marketed_bytes=memory["marketed_bytes"],
        hbm_bytes_per_s=upper,
        hbm_safe_bytes_per_s=bandwidth.get("safe_bytes_per_s", upper),
        dense_flops_per_s=MappingProxyType(peaks),
        link_bytes_per_s=table.get("link", {}).get("bytes_per_s"),
        memory_kind=memory.get("kind", ""),
        pcie_bytes_per_s=table.get("pcie", {}).get("bytes_per_s"),
        price=_price(table.get("price"), table.get("devices_per_unit", 1)),
        is_unified_memory=table.get("is_unified_memory", False),
        is_boost_guarded=table.get("is_boost_guarded", False),
        mig_profiles=tuple(_profile(row) for row in table.get("mig", ())),
        source=source,
    )


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _interval(table: Mapping[str, Any] | None) -> Interval | None:
    if table is None:
        return None
    return Interval(table["low_bytes"], table["expected_bytes"], table["high_bytes"])


def _price(table: Mapping[str, Any] | None, devices: int) -> GpuPrice | None:
    """The price of one device: files have that of a package, which can hold several."""
    if table is None:
        return None
    return GpuPrice(
        low_usd_per_hour=table["low_usd_per_hour"] / devices,
        high_usd_per_hour=table["high_usd_per_hour"] / devices,
        date=str(table.get("oldest_date", "")),
    )


def _profile(row: Mapping[str, Any]) -> MigProfile:
    return MigProfile(
        name=row["profile"],
        max_count=row["max_count"],
        memory_fraction=Fraction(row["memory_fraction"]),
        compute_fraction=Fraction(row["compute_fraction"]),
        memory_total_bytes=_interval(row.get("memory")),
    )


def _own_names(table: Mapping[str, Any]) -> list[str]:
    aliases: Mapping[str, list[str]] = table.get("aliases", {})
    kinds = ("nvml", "gke", "karpenter", "coreweave", "amd_device_id", "written", "short")
    return sorted({name for kind in kinds for name in aliases.get(kind, ())} - {table["id"]})
