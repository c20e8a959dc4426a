"""Flags whose memory this package has no rules for: never guessed, a plan says so instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.models.spec import StateCache
from pytest_llmserve.runtimes.deployment import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs, Stated


def unplanned(args: ParsedArgs, model: ModelSpec | None) -> tuple[Unknown, ...]:
    """Why no plan can be told for this command line, flag by flag."""
    return tuple(_unplanned(args, model))


def _unplanned(args: ParsedArgs, model: ModelSpec | None) -> Iterator[Unknown]:
    if stated := _used(args, "enable_sleep_mode"):
        # vllm-project/vllm#40256 (2026-04: 2 GiB too much for the pool, then out of memory) and
        # #43951 (0.21: 71 GiB stranded while experts were laid out anew).
        why = "hides memory from the profile run (2 to 71 GiB seen)"
        yield _unknown("memory", stated, why)
    if stated := _used(args, "offload_group_size"):
        yield _unknown("weights", stated, "keeps whole layers in host memory: not modelled")
    if _used(args, "cpu_offload_gb") and (stated := _used(args, "cpu_offload_params")):
        yield _unknown("weights", stated, "limits what is kept in host memory: not modelled")
    has_mamba2 = model is not None and any(
        isinstance(cache, StateCache) and cache.kind == "mamba2"
        for group in model.layer_groups
        for cache in group.layer.caches
    )
    if has_mamba2 and (stated := _used(args, "use_replayssm")):
        yield _unknown("KV cache", stated, "adds buffers to each state: their size is not known")


def _used(args: ParsedArgs, dest: str) -> Stated | None:
    found = args.stated.get(dest)
    return found if found is not None and found.value else None


def _unknown(what: str, stated: Stated, why: str) -> Unknown:
    return Unknown(what=what, why=f"{stated.flag} {why}", location=stated.location)
