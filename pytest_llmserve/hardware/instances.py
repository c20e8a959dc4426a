"""Cloud instance types: which devices a machine has, and what it costs (``instances.csv``)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Final

INSTANCES: Final = Path(__file__).parent / "instances.csv"

# Azure's node label leaves "Standard_" out or not; SageMaker puts "ml." before EC2's name.
_PREFIXES: Final = ("standard_", "ml.")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGpu:
    """The devices of one instance type."""

    provider: str
    instance_type: str
    """As the provider spells it."""
    gpu_id: str
    """A shipped part, or ``other:<name>`` for an accelerator that the catalogue lacks."""
    count: int | Fraction | None
    """Devices of one machine; a fraction where it gets a share of one, ``None`` if not known."""
    note: str = ""
    """What is doubtful about this row."""

    @property
    def is_modelled(self) -> bool:
        """Whether the catalogue has the accelerator."""
        return not self.gpu_id.startswith("other:")


def instance_gpu(instance_type: str) -> InstanceGpu | None:
    """What this instance type has, in any case of letters; ``None`` if the type is not known."""
    return _table().get(_spelling(instance_type))


@cache
def _table() -> dict[str, InstanceGpu]:
    with INSTANCES.open(encoding="utf-8", newline="") as lines:
        rows = [
            InstanceGpu(
                provider=row["provider"],
                instance_type=row["instance_type"],
                gpu_id=row["gpu_id"],
                count=_count(row["gpu_count"]),
                note=row["note"],
            )
            for row in csv.DictReader(lines)
        ]
    return {_spelling(row.instance_type): row for row in rows}


def _spelling(instance_type: str) -> str:
    text = instance_type.strip().lower()
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text


def _count(text: str) -> int | Fraction | None:
    if not text:
        return None
    return Fraction(text) if "/" in text else int(text)
