"""One invariant, one file: a permanent id, a spoken name and a check."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmserve.invariants.base import Invariant

_SINGLE = (
    "llm101_weights_fit",
    "llm102_kv_cache_fits",
    "llm103_concurrency_fits",
    "llm104_vram_within_budget",
    "llm301_decode_memory_bound",
    "llm302_prefill_compute_bound",
    "llm303_ttft_reachable",
    "llm304_tpot_reachable",
)


@cache
def server_invariants() -> tuple[Invariant, ...]:
    """Every invariant about a server, by id. LLM001 is about a file and lives in collection."""
    found: list[Invariant] = []
    for module in ("roots", "refusals", "declared", "change"):
        found += import_module(f"{__name__}.{module}").INVARIANTS
    found += [import_module(f"{__name__}.{module}").INVARIANT for module in _SINGLE]
    return tuple(sorted(found, key=lambda invariant: invariant.id))


def invariant(name: str) -> Invariant:
    """The invariant of this id or spoken name.

    Raises:
        KeyError: there is none.
    """
    for found in server_invariants():
        if name in (found.id, found.name):
            return found
    raise KeyError(name)
