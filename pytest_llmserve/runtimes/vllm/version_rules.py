"""What changed when in vLLM's planning of the KV cache: one table for each rule.

Each row is (first version, value); the last row that is not newer than the version counts.
Source: the Python of the release wheels, and twelve releases run on the same questions
(0.14.1, 0.16.0, 0.19.1, 0.20.2, 0.21.0, 0.23.0, 0.25.1, 0.26.0, 0.27.1, 0.28.0, 0.29.0, 0.30.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, TypeVar

from packaging.version import Version

T = TypeVar("T")
Steps = tuple[tuple[str, T], ...]

CheckRule = Literal["layers", "first_group", "all_groups"]
ConnectorRule = Literal["bar", "unclear", "asked"]
CapacityRule = Literal["blocks", "blocks_per_group", "concurrency"]

_CHECK: Final[Steps[CheckRule]] = (
    ("0", "layers"),
    ("0.14", "first_group"),
    ("0.19", "all_groups"),
)
# Each stage of a pipeline had to hold the need of all layers: since 0.14 (vllm-project/vllm#29431),
# mended by #33698 of February 2026, which the releases have from 0.17 on (inferred: a build of
# 0.15.2rc1 of 8 February lacks it, #34076).
_CHECKS_WHOLE_MODEL: Final[Steps[bool]] = (("0", False), ("0.14", True), ("0.17", False))
_RESERVES_NULL_BLOCK: Final[Steps[bool]] = (("0", False), ("0.29", True))
_OVERRIDE_COUNTS_IN_CHECK: Final[Steps[bool]] = (("0", False), ("0.20", True))
_CAPACITY: Final[Steps[CapacityRule]] = (
    ("0", "blocks"),
    ("0.9", "blocks_per_group"),
    ("0.20.2", "concurrency"),
)
# Decode and prefill context parallelism multiply the printed tokens (rule "blocks_per_group").
_MULTIPLIES_DCP: Final[Steps[bool]] = (("0", False), ("0.11", True))
_MULTIPLIES_PCP: Final[Steps[bool]] = (("0", False), ("0.12", True))
# Prefill context parallelism also split the tokens of a request over ranks, until it copied them.
_SHARDS_PCP: Final[Steps[bool]] = (("0", False), ("0.12", True), ("0.29", False))
# Buckets whose sizes differ by less than this factor share groups of the larger size.
_GROUP_RATIO: Final[Steps[Fraction | None]] = (
    ("0", None),
    ("0.12", Fraction(5, 4)),
    ("0.18", Fraction(3, 2)),
)
# Encoder tokens that a request's cross attention is sized with: the longest input, then the budget
# of the encoder, which is max_num_batched_tokens (0.10.2 to 0.33 read).
_COUNTS_ENCODER_BUDGET: Final[Steps[bool]] = (("0", False), ("0.13", True))
_COUNTS_IN_FLIGHT: Final[Steps[bool]] = (("0", False), ("0.26", True))
# The second model runner, which pipelines asynchronously: default for dense models, then for all.
_SECOND_RUNNER_IF_DENSE: Final[Steps[bool]] = (("0", False), ("0.28", True))
_SECOND_RUNNER: Final[Steps[bool]] = (("0", False), ("0.29", True))
_MAMBA_ALL_MODE: Final[Steps[bool]] = (("0", True), ("0.28", False))
_MAMBA_ALIGN_MODE: Final[Steps[bool]] = (("0", False), ("0.15", True))
_PREFILL_CHECKPOINTS: Final[Steps[bool]] = (("0", False), ("0.31", True))
_ASKS_BACKEND: Final[Steps[bool]] = (("0", False), ("0.18", True))
# Pages whose sizes do not divide are padded to the largest; before, such a model was refused.
_PADS_PAGES: Final[Steps[bool]] = (("0", False), ("0.27", True))
# Smallest attention block of a hybrid with MLA.
_HYBRID_MLA_BLOCK: Final[Steps[int]] = (("0", 64), ("0.18", 128))
_CHUNKED_HYBRID: Final[Steps[bool]] = (("0", False), ("0.32", True))  # when exactly: not looked up
# A KV connector turned the hybrid manager off, then where it does not support it; 0.22 is told
# either way.
_CONNECTORS: Final[Steps[ConnectorRule]] = (("0", "bar"), ("0.22", "unclear"), ("0.23", "asked"))
_MODEL_POSSESSIVE: Final[Steps[str]] = (("0", "models's"), ("0.23", "model's"))
_ESTIMATES_GRAPHS: Final[Steps[bool]] = (("0", False), ("0.18", True))
_GRAPHS_IN_BUDGET: Final[Steps[bool]] = (("0", False), ("0.20", True))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class KvRules:
    """The rules of one version."""

    check: CheckRule
    """Start-up check: need summed over layers, first group only, or all groups."""
    checks_whole_model: bool
    """Every stage of a pipeline is asked for the need of all layers."""
    reserves_null_block: bool
    override_counts_in_check: bool
    """``--num-gpu-blocks-override`` decides the memory that the check sees."""
    capacity: CapacityRule
    """How the printed ``GPU KV cache size`` is made."""
    multiplies_dcp: bool
    multiplies_pcp: bool
    shards_pcp: bool
    group_ratio: Fraction | None
    counts_encoder_budget: bool
    """Cross attention is sized with the encoder's budget, not with its longest input."""
    counts_in_flight: bool
    """Windows are sized with the tokens of every batch in flight, not of one."""
    has_second_runner_if_dense: bool
    has_second_runner: bool
    has_mamba_all_mode: bool
    has_mamba_align_mode: bool
    has_prefill_checkpoints: bool
    asks_backend: bool
    """The block size is the attention backend's own, not 16 (or 64 for MLA)."""
    pads_pages: bool
    hybrid_mla_block: int
    has_chunked_hybrid: bool
    connectors: ConnectorRule
    """Whether a KV connector turns the hybrid manager off by itself."""
    model_possessive: str
    estimates_graphs: bool
    graphs_in_budget: bool


def _at(version: Version, steps: Steps[T]) -> T:
    value = steps[0][1]
    for first, candidate in steps[1:]:
        # A pre-release of 0.20 has what 0.20 has: compare release numbers only.
        if version.release < Version(first).release:
            break
        value = candidate
    return value


@lru_cache(maxsize=32)
def kv_rules(version: Version) -> KvRules:
    """The KV planning rules of a version."""
    return KvRules(
        check=_at(version, _CHECK),
        checks_whole_model=_at(version, _CHECKS_WHOLE_MODEL),
        reserves_null_block=_at(version, _RESERVES_NULL_BLOCK),
        override_counts_in_check=_at(version, _OVERRIDE_COUNTS_IN_CHECK),
        capacity=_at(version, _CAPACITY),
        multiplies_dcp=_at(version, _MULTIPLIES_DCP),
        multiplies_pcp=_at(version, _MULTIPLIES_PCP),
        shards_pcp=_at(version, _SHARDS_PCP),
        group_ratio=_at(version, _GROUP_RATIO),
        counts_encoder_budget=_at(version, _COUNTS_ENCODER_BUDGET),
        counts_in_flight=_at(version, _COUNTS_IN_FLIGHT),
        has_second_runner_if_dense=_at(version, _SECOND_RUNNER_IF_DENSE),
        has_second_runner=_at(version, _SECOND_RUNNER),
        has_mamba_all_mode=_at(version, _MAMBA_ALL_MODE),
        has_mamba_align_mode=_at(version, _MAMBA_ALIGN_MODE),
        has_prefill_checkpoints=_at(version, _PREFILL_CHECKPOINTS),
        asks_backend=_at(version, _ASKS_BACKEND),
        pads_pages=_at(version, _PADS_PAGES),
        hybrid_mla_block=_at(version, _HYBRID_MLA_BLOCK),
        has_chunked_hybrid=_at(version, _CHUNKED_HYBRID),
        connectors=_at(version, _CONNECTORS),
        model_possessive=_at(version, _MODEL_POSSESSIVE),
        estimates_graphs=_at(version, _ESTIMATES_GRAPHS),
        graphs_in_budget=_at(version, _GRAPHS_IN_BUDGET),
    )
