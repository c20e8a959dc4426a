"""The guarding tables of a policy file, validated."""

from __future__ import annotations

import datetime  # noqa: TC003  (pydantic resolves it)
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pytest_llmserve.guard_rules import (
    BASELINE_NAME,
    ChangeLimits,
    GuardRules,
    IgnoreRule,
    Limit,
    Pair,
    Quota,
    Same,
    Share,
)
from pytest_llmserve.invariants.names import NAMES, canonical_name
from pytest_llmserve.units import parse_bytes


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


def _name(value: object) -> object:
    name = canonical_name(value) if isinstance(value, str) else None
    if name is None:
        raise ValueError(f"no invariant is called so; valid names: {', '.join(NAMES.values())}")
    return name


def _ignorable(value: object) -> object:
    from pytest_llmserve.invariants import server_invariants  # only where something is ignored

    name = _name(value)
    servers = {invariant.name for invariant in server_invariants()}
    if name not in servers:
        valid = ", ".join(n for n in NAMES.values() if n in servers)
        raise ValueError(f"not about one server; expected one of the server invariants: {valid}")
    return name


def _share(text: str) -> float | None:
    if not text.rstrip().endswith("%"):
        return None
    try:
        share = float(text.rstrip()[:-1]) / 100
    except ValueError:
        share = -1.0
    if share < 0:
        raise ValueError("expected a share such as '10%'")
    return share


def _bytes_limit(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("expected a size such as '2GiB' or a share such as '5%'")
    share = _share(value)
    return Limit(text=value, share=share, amount=None if share is not None else parse_bytes(value))


def _count_limit(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(text=str(value), amount=value)
    if isinstance(value, str) and (share := _share(value)) is not None:
        return Limit(text=value, share=share)
    raise ValueError("expected a number of requests such as 4 or a share such as '10%'")


Reason = Annotated[str, Field(min_length=1)]


class IgnoreTable(_Strict):
    """``[[ignore]]``."""

    invariant: Annotated[str, BeforeValidator(_ignorable)]
    reason: Reason
    file: str = "*"
    name: str = "*"
    until: datetime.date | None = None


class ChangeTable(_Strict):
    """``[change]``."""

    max_vram_increase: Annotated[Limit, BeforeValidator(_bytes_limit)] | None = None
    max_concurrency_drop: Annotated[Limit, BeforeValidator(_count_limit)] | None = None


class ShareTable(_Strict):
    """``[[share]]``."""

    servers: Annotated[list[str], Field(min_length=2)]


class PairTable(_Strict):
    """``[[pair]]``."""

    prefill: str
    decode: str


class SameTable(_Strict):
    """``[[same]]``."""

    files: Annotated[list[str], Field(min_length=2)]


class QuotaTable(_Strict):
    """``[quota]``."""

    gpus: dict[str, Annotated[int, Field(ge=0)]]
    surge: Annotated[int, Field(ge=0)] = 0


class GuardTables(_Strict):
    """The keys that a policy has for guarding."""

    ignore: list[IgnoreTable] = []
    allow_ignores: bool = True
    baseline: str = BASELINE_NAME
    change: ChangeTable = ChangeTable()
    share: list[ShareTable] = []
    quota: QuotaTable | None = None
    pair: list[PairTable] = []
    same: list[SameTable] = []

    def guard_rules(self) -> GuardRules:
        """The same as plain values."""
        return GuardRules(
            ignores=tuple(IgnoreRule(**dict(i)) for i in self.ignore),
            allow_ignores=self.allow_ignores,
            baseline=self.baseline,
            change=ChangeLimits(**dict(self.change)),
            shares=tuple(Share(servers=tuple(s.servers)) for s in self.share),
            quota=Quota(gpus=self.quota.gpus, surge=self.quota.surge) if self.quota else None,
            pairs=tuple(Pair(prefill=p.prefill, decode=p.decode) for p in self.pair),
            same=tuple(Same(files=tuple(s.files)) for s in self.same),
        )


TABLES: dict[str, type[BaseModel]] = {
    "ignore": IgnoreTable,
    "change": ChangeTable,
    "share": ShareTable,
    "pair": PairTable,
    "same": SameTable,
    "quota": QuotaTable,
}
