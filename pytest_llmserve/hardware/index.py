"""Which name means which part: ``names.json``, so that one look-up need not read every file.

The index is made from the TOML files. After a change of ids, aliases, memory, bandwidth, peaks or
MIG profiles there, make it anew with ``python -m pytest_llmserve.hardware.index``; a test compares
the two.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INDEX: Final = Path(__file__).parent / "names.json"
NAMESPACES: Final = ("gke", "karpenter", "coreweave", "amd_device_id")

_FORMS: Final = frozenset({"sxm", "pcie", "nvl", "ws", "maxq", "server"})
_SPELLINGS: Final = {
    **dict.fromkeys(("sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "nvlink", "hgx"), "sxm"),
    "workstation": "ws",
}
# Words around a part's name that tell no part from another.
_NOISE: Final = frozenset(
    {"nvidia", "tesla", "geforce", "amd", "instinct", "intel", "google", "gpu", "oam"}
    | {"edition", "generation", "blackwell", "hopper", "ampere", "volta"}
    | {"hbm2", "hbm2e", "hbm3", "hbm3e"}
)
_SEPARATORS: Final = re.compile(r"[^a-z0-9.+]+")
_SIZE: Final = re.compile(r"([0-9]+)(?:g|gb|gib)")


@dataclass(frozen=True, slots=True)
class Facts:
    """What tells parts of one family apart, as a person reads it."""

    memory_gb: int
    bandwidth_gb_per_s: int | None
    peak_tflops: int | None
    """Dense, bf16; fp16 where the part has no bf16."""

    def __str__(self) -> str:
        words = [f"{self.memory_gb} GB"]
        if self.bandwidth_gb_per_s is not None:
            words.append(f"{self.bandwidth_gb_per_s} GB/s")
        if self.peak_tflops is not None:
            words.append(f"{self.peak_tflops} TFLOP/s")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Index:
    """All names of the shipped parts, folded; ids are sorted within each list."""

    parts: Mapping[str, Facts]
    names: Mapping[str, str]
    """Ids, driver names, labels that people write and short forms: each means one part."""
    ambiguous: Mapping[str, tuple[str, ...]]
    namespaces: Mapping[str, Mapping[str, tuple[str, ...]]]
    """Names that mean a part only where a cloud or an operator writes them."""
    mig: Mapping[str, tuple[str, ...]]
    """Parts that have a profile of this name."""

    def parts_like(self, folded: str) -> tuple[str, ...]:
        """Parts that the words of a name describe: their family, and nothing that they are not.

        Whole words only: ``h20`` is no part of ``h200``, nor ``l4`` of ``l40s``.
        """
        asked = frozenset(_words(folded)) - _NOISE
        return tuple(part for part in self.parts if self._describes(asked, part))

    def _describes(self, asked: frozenset[str], part: str) -> bool:
        own = frozenset(_words(part))
        family = {word for word in own if word not in _FORMS and _SIZE.fullmatch(word) is None}
        return family <= asked <= own | {f"{self.parts[part].memory_gb}gb"}


def fold(name: str) -> str:
    """A name as compared: lower case, each run of separators one dash.

    ``NVIDIA A100-SXM4-80GB`` and the label ``NVIDIA-A100-SXM4-80GB`` made from it become one.
    """
    plain = name.lower().replace("(r)", "").replace("(tm)", "")
    return _SEPARATORS.sub("-", plain).strip("-")


def _words(folded: str) -> Iterator[str]:
    for word in folded.replace("max-q", "maxq").split("-"):
        size = _SIZE.fullmatch(word)
        yield _SPELLINGS.get(word, word) if size is None else f"{size[1]}gb"


@cache
def load_index() -> Index:
    """The index as shipped."""
    table = json.loads(INDEX.read_bytes())
    return Index(
        parts={part: Facts(*facts) for part, facts in table["parts"].items()},
        names=table["names"],
        ambiguous={name: tuple(ids) for name, ids in table["ambiguous"].items()},
        namespaces={
            space: {name: tuple(ids) for name, ids in table[space].items()} for space in NAMESPACES
        },
        mig={name: tuple(ids) for name, ids in table["mig"].items()},
    )


def build_index(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The index of these parts (id to table), as ``names.json`` holds it.

    Raises:
        ValueError: two parts claim one name that is not declared ambiguous.
    """
    names: dict[str, str] = {}
    spaces: dict[str, dict[str, list[str]]] = {space: {} for space in NAMESPACES}
    ambiguous: dict[str, list[str]] = {}
    mig: dict[str, list[str]] = {}
    for part, table in sorted(parts.items()):
        aliases = table.get("aliases", {})
        for name in (part, *(n for k in ("nvml", "written", "short") for n in aliases.get(k, ()))):
            if names.setdefault(fold(name), part) != part:
                raise ValueError(f"{name!r} is claimed by {names[fold(name)]} and by {part}")
        for name in aliases.get("ambiguous", ()):
            ambiguous.setdefault(fold(name), []).append(part)
        for space in NAMESPACES:
            for name in aliases.get(space, ()):
                spaces[space].setdefault(fold(name), []).append(part)
        for row in table.get("mig", ()):
            mig.setdefault(row["profile"], []).append(part)
    both = sorted(set(names) & set(ambiguous))
    if both:
        raise ValueError(f"both ambiguous and not: {', '.join(both)}")
    facts = {part: _facts(table) for part, table in sorted(parts.items())}
    sections: dict[str, dict[str, Any]] = {
        "names": names,
        "ambiguous": ambiguous,
        **spaces,
        "mig": mig,
    }
    return {"parts": facts, **{key: dict(sorted(rows.items())) for key, rows in sections.items()}}


def _facts(table: Mapping[str, Any]) -> list[int | None]:
    peaks = table.get("dense_flops_per_s", {})
    peak = peaks.get("bf16") or peaks.get("fp16")
    bandwidth = table.get("bandwidth")
    return [
        table["memory"]["marketed_bytes"] // 10**9,
        None if bandwidth is None else round(bandwidth["bytes_per_s"] / 10**9),
        None if peak is None else round(peak["value"] / 10**12),
    ]


def dump_index(table: Mapping[str, Any]) -> str:
    """The index as text: one name a line, so that a change of one part is a small diff."""
    sections = []
    for key, rows in table.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(v)}" for name, v in rows.items())
        sections.append(f"{json.dumps(key)}: {{\n{lines}\n}}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    """Make ``names.json`` from the TOML files."""
    from pytest_llmserve.hardware.catalogue import GPUS, read_part

    parts = {path.stem: read_part(path) for path in sorted(GPUS.glob("*.toml"))}
    INDEX.write_text(dump_index(build_index(parts)), encoding="utf-8")


if __name__ == "__main__":
    main()
