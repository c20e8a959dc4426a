"""The flag table: what each version's argument parser knows, as data (``flags.tsv``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_llmserve.runtimes.vllm.versions import release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

Release = tuple[int, ...]
_ENDLESS: Final[Release] = (1 << 30,)

SECRET: Final = frozenset({"api_key", "hf_token"})


class Flag(NamedTuple):
    """One flag of one range of versions.

    ``kind`` is ``int float str human_int human_int_or_auto json json_or_str json_or_pairs
    bool_optional store_true append optional_str``; ``choices`` is ``None`` where any value goes.
    """

    names: tuple[str, ...]
    dest: str
    matters: bool
    """Its value decides memory, speed or start-up; all others may stay unresolved."""
    kind: str
    is_optional: bool
    """``None`` and the empty string mean: not set."""
    is_list: bool
    since: Release
    until: Release
    choices: tuple[tuple[str, Release, Release], ...]

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return self.kind in ("store_true", "bool_optional")

    def choices_at(self, version: Release) -> tuple[str, ...] | None:
        """The words that a version accepts, ``None`` if it accepts any."""
        if not self.choices:
            return None
        return tuple(word for word, since, until in self.choices if since <= version < until)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FlagTable:
    """The parser of one version: each option string, and whether it says no."""

    version: Release
    options: Mapping[str, tuple[Flag, bool]]
    by_dest: Mapping[str, Flag]


def _choices(text: str) -> tuple[tuple[str, Release, Release], ...]:
    found = []
    for item in text.split():
        word, _, span = item.partition("@")
        since, _, until = span.partition("..")
        found.append((word, release(since) if since else (), release(until) if until else _ENDLESS))
    return tuple(found)


def _flag(line: str) -> Flag:
    cells = line.split("\t")
    names = tuple(cells[0].lstrip("*").split(","))
    kind = cells[1].rstrip("?+")
    return Flag(
        names=names,
        dest=names[0].lstrip("-").replace("-", "_"),
        matters=cells[0].startswith("*"),
        kind=kind,
        is_optional=cells[1].endswith("?"),
        is_list=cells[1].endswith("+"),
        since=() if cells[2] == "-" else release(cells[2]),
        until=_ENDLESS if cells[3] == "-" else release(cells[3]),
        choices=_choices(cells[4]) if len(cells) > 4 else (),
    )


@lru_cache(maxsize=1)
def all_flags() -> tuple[Flag, ...]:
    """Every flag of every known version, one entry per range of equal meaning."""
    path = Path(__file__).with_name("flags.tsv")
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(_flag(line) for line in lines if line and not line.startswith("#"))


def _option_strings(flag: Flag, version: Release) -> list[tuple[str, bool]]:
    strings = [(name, False) for name in flag.names]
    if flag.kind == "bool_optional":
        longs = [name for name in flag.names if name.startswith("--")]
        strings += [("--no-" + name[2:], True) for name in longs]
        if version >= (0, 33):  # each --enable-x gained a --disable-x, and the other way round
            for name in longs:
                for prefix, inverse in (
                    ("--enable-", "--disable-"),
                    ("--disable-", "--enable-"),
                ):
                    if name.startswith(prefix):
                        strings.append((inverse + name.removeprefix(prefix), True))
    return strings


@lru_cache(maxsize=64)
def _table(version: Release) -> FlagTable:
    options: dict[str, tuple[Flag, bool]] = {}
    by_dest: dict[str, Flag] = {}
    for flag in all_flags():
        if flag.since <= version < flag.until:
            by_dest[flag.dest] = flag
            for text, is_negative in _option_strings(flag, version):
                options.setdefault(text, (flag, is_negative))
    return FlagTable(version, options, by_dest)


def flag_table(version: Version) -> FlagTable:
    """The parser of a version; the oldest or newest known one outside of what was read."""
    return _table(release(".".join(map(str, version.release))))
