"""What a policy says about accepting findings, about changes and about the fleet as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping

BASELINE_NAME: Final = "llmserve-baseline.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRule:
    """A finding that the policy accepts, with its reason, until a date if one is given."""

    invariant: str
    reason: str
    file: str = "*"
    name: str = "*"
    until: datetime.date | None = None

    def matches(self, relative_file: str, server_name: str, invariant: str) -> bool:
        """Whether the rule is about this invariant of this server."""
        return (
            invariant == self.invariant
            and fnmatch(relative_file, self.file)
            and fnmatch(server_name, self.name)
        )

    def is_expired(self, today: datetime.date) -> bool:
        """Whether its last day lies behind."""
        return self.until is not None and today > self.until

    def __str__(self) -> str:
        where = f"{self.file}, {self.name}" if (self.file, self.name) != ("*", "*") else "anywhere"
        return f"{self.invariant} of {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much a figure may change between base and head: by a size or by a share."""

    text: str
    amount: int | None = None
    share: float | None = None

    def allows(self, base: int, change: int) -> bool:
        """Whether a change (positive: for the worse) of a figure that was ``base`` is allowed."""
        if self.amount is not None:
            return change <= self.amount
        assert self.share is not None
        return change <= base * self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLimits:
    """Thresholds on the change of a server against the base of a comparison."""

    max_vram_increase: Limit | None = None
    """Of the memory that each GPU needs: weights, runtime and one request of full length."""
    max_concurrency_drop: Limit | None = None
    """Of the requests that run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Servers whose instances run on the same GPU; together they may take all of it."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A prefill and a decode server that hand KV blocks over: their caches must agree."""

    prefill: str
    decode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """Files whose servers must be planned alike: staging and production but for replicas."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """GPUs that all servers together may take, by part; ``surge`` replicas roll over at once."""

    gpus: Mapping[str, int]
    surge: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """The guarding part of a policy."""

    ignores: tuple[IgnoreRule, ...] = ()
    allow_ignores: bool = True
    baseline: str = BASELINE_NAME
    change: ChangeLimits = field(default_factory=ChangeLimits)
    shares: tuple[Share, ...] = ()
    quota: Quota | None = None
    pairs: tuple[Pair, ...] = ()
    same: tuple[Same, ...] = ()
