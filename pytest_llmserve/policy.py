"""The team's policy: which files, which GPUs, which budgets, and what is allowed to be unknown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from fnmatch import fnmatch
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmserve.guard_rules import GuardRules
from pytest_llmserve.manifests.options import NO_OPTIONS, ReadOptions
from pytest_llmserve.units import UnitError, parse_bytes
from pytest_llmserve.verdict import Certainty, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version


@dataclass(frozen=True, slots=True)
class Budget:
    """VRAM that a server may take of each GPU: a size, or a share of the framework's total."""

    text: str
    size_bytes: int | None = None
    share: float | None = None

    def bytes_of(self, gpu_total_bytes: int) -> int:
        """The budget on a GPU of which the framework reports ``gpu_total_bytes``."""
        if self.size_bytes is not None:
            return self.size_bytes
        assert self.share is not None
        return math.ceil(gpu_total_bytes * Fraction(str(self.share)))


def parse_budget(text: str) -> Budget:
    """A budget from ``76GiB`` or ``90%``.

    Raises:
        UnitError: it is no size, and no share above 0 % and up to 100 %.
    """
    if not text.rstrip().endswith("%"):
        return Budget(text, size_bytes=parse_bytes(text))
    try:
        share = float(text.rstrip()[:-1]) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UnitError(f"{text!r}: a share of the GPU lies above 0% and not above 100%")
    return Budget(text, share=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The load that the server is declared to carry at its peak."""

    prompt_tokens: int
    """The mean, where lengths differ."""
    output_tokens: int
    concurrency: int = 1
    rate_per_s: float | None = None
    """Requests that arrive per second at one replica."""
    longest_request: int | None = None
    """Most tokens of one request, where lengths differ."""
    request_deviation: float = 0.0
    """Standard deviation of the tokens of a request."""

    @property
    def tokens_per_request(self) -> int:
        """Context at the end of a request, when it holds the most."""
        return self.prompt_tokens + self.output_tokens

    @property
    def longest_tokens(self) -> int:
        """What the longest request holds at its end."""
        return max(self.tokens_per_request, self.longest_request or 0)

    def tokens_held(self, count: int) -> int:
        """Tokens to reserve for each of ``count`` requests at once.

        The mean and three standard errors: 1 in 700 such batches holds more (normal
        approximation), and no request is longer than the longest.
        """
        spread = math.ceil(3 * self.request_deviation / math.sqrt(count))
        return min(self.longest_tokens, self.tokens_per_request + spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Latency that is promised: time to first token and time per output token."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    ttft_expected_s: float | None = None
    """Held against an estimate of real servers, where the others are held against floors."""
    tpot_expected_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the files do not say, and what must hold; ``None`` where nothing is declared."""

    gpu: str | None = None
    gpu_count: int | None = None
    model: str | None = None
    vllm_version: Version | None = None
    vram_budget: Budget | None = None
    workload: Workload | None = None
    slo: Slo | None = None
    usd_per_gpu_hour: float | None = None
    max_usd_per_million_tokens: float | None = None
    """Of output tokens."""

    def over(self, other: Facts) -> Facts:
        """These facts where they are declared, the other ones elsewhere."""
        mine = {f.name: getattr(self, f.name) for f in fields(self)}
        return Facts(**{k: getattr(other, k) if v is None else v for k, v in mine.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRule:
    """Facts of the servers that match ``file`` (a glob below the policy) and ``name`` (a glob)."""

    facts: Facts
    file: str = "*"
    name: str = "*"

    def matches(self, relative_file: str, server_name: str) -> bool:
        """Whether the rule is about this server of this file."""
        return fnmatch(relative_file, self.file) and fnmatch(server_name, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """``llmserve.toml`` or ``[tool.llmserve]``, checked; paths are relative to ``base_dir``."""

    base_dir: Path = field(default_factory=Path.cwd)
    origin: str = ""
    """The file it was read from, as messages name it; empty without one."""
    files: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    gpus: str | None = None
    model_paths: Mapping[str, str] = field(default_factory=dict)
    fail_on: frozenset[Certainty] = frozenset((Certainty.CERTAIN, Certainty.LIKELY))
    allow_cannot_tell: frozenset[str] = frozenset()
    extend_select: frozenset[str] = frozenset()
    facts: Facts = field(default_factory=Facts)
    servers: tuple[ServerRule, ...] = ()
    reading: ReadOptions = NO_OPTIONS
    """Tools that reading may run, and forms of the team's own."""
    guard: GuardRules = field(default_factory=GuardRules)

    def relative(self, file: Path) -> str:
        """A file as the policy names it: relative to its own folder where it lies below it."""
        if file.is_relative_to(self.base_dir):
            return file.relative_to(self.base_dir).as_posix()
        return file.as_posix()

    def facts_for(self, file: Path | None, server_name: str) -> Facts:
        """Facts of one server: the matching rules, later ones over earlier ones, over the rest."""
        facts = self.facts
        relative = "" if file is None else self.relative(file)
        for rule in self.servers:
            if rule.matches(relative, server_name):
                facts = rule.facts.over(facts)
        return facts

    def declares(self, file: Path) -> bool:
        """Whether ``files`` names this file."""
        if not file.is_relative_to(self.base_dir):
            return False
        parts = list(file.relative_to(self.base_dir).parts)
        return any(_matches_glob(parts, p.removeprefix("./").split("/")) for p in self.files)

    def declared_files(self) -> list[Path]:
        """The files that ``files`` names, sorted; a pattern that names none is in the next one."""
        found: set[Path] = set()
        for pattern in self.files:
            found.update(p for p in self.base_dir.glob(pattern) if p.is_file())
        return sorted(found)

    def empty_patterns(self) -> list[str]:
        """Patterns of ``files`` that name no file: a declared deployment that is not there."""
        return [p for p in self.files if not any(self.base_dir.glob(p))]

    def is_failure(self, verdict: Verdict) -> bool:
        """Whether this verdict fails a test: unknown does, unless it is allowed by name."""
        if verdict.outcome is Outcome.PASSED:
            return False
        if verdict.outcome is Outcome.CANNOT_TELL:
            return not self.allows_cannot_tell(verdict)
        return verdict.certainty is None or verdict.certainty in self.fail_on

    def allows_cannot_tell(self, verdict: Verdict) -> bool:
        """Whether the policy accepts that this invariant cannot be judged."""
        return bool({verdict.id, verdict.name} & self.allow_cannot_tell)


def _matches_glob(parts: list[str], patterns: list[str]) -> bool:
    """``Path.glob`` semantics for one path: ``**`` spans folders, ``*`` does not."""
    if not patterns:
        return not parts
    head, *rest = patterns
    if head == "**":
        return _matches_glob(parts, rest) or (bool(parts) and _matches_glob(parts[1:], patterns))
    return bool(parts) and fnmatch(parts[0], head) and _matches_glob(parts[1:], rest)
