"""LLM101: the weights leave room in the memory that the runtime may use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.invariants.base import (
    Invariant,
    cannot_tell,
    certainty_of_shortage,
    failed,
    passed,
    range_words,
    shortage_words,
)
from pytest_llmserve.invariants.fixes import Candidate, more_memory, recheck
from pytest_llmserve.invariants.memory import (
    budget_rows,
    is_pool_stated,
    overhead_bytes,
    taken_bytes,
    taken_rows,
    why_unknown,
)
from pytest_llmserve.units import GIB
from pytest_llmserve.units import format_gib as gib
from pytest_llmserve.verdict import Ledger, LedgerRow, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.runtimes.deployment import VramLedger
    from pytest_llmserve.subject import Subject


def fits(subject: Subject) -> Verdict:
    """Whether weights and what the runtime needs besides are within the budget."""
    vram = subject.plan.vram
    if vram is None:
        return cannot_tell(why_unknown(subject.plan))
    if is_pool_stated(vram):
        return _beside_stated_pool(vram)
    need = vram.weights_bytes + overhead_bytes(vram)
    certainty = certainty_of_shortage(need, vram.budget_bytes)
    margin = vram.budget_bytes - need
    if certainty is None:
        return passed(
            f"{gib(vram.weights_bytes.expected)} GiB of weights per GPU, "
            f"{gib(vram.budget_bytes.expected)} usable",
            margin_bytes=margin,
        )
    return failed(
        f"{shortage_words(certainty, need, vram.budget_bytes)}: weights and overhead need "
        f"{range_words(need, certainty)}, {gib(vram.budget_bytes.expected)} is usable",
        certainty,
        margin_bytes=margin,
        ledger=Ledger("per GPU", tuple(budget_rows(vram))),
        details=(_server_says(vram),),
        location=subject.deployment.location,
    )


def _beside_stated_pool(vram: VramLedger) -> Verdict:
    """With a stated pool nothing is left to profiling: all of it has to fit the device."""
    need, total = taken_bytes(vram), vram.gpu_total_bytes
    certainty = certainty_of_shortage(need, total)
    margin = total - need
    if certainty is None:
        return passed(
            f"{gib(need.expected)} of {gib(total.expected)} GiB per GPU with the stated KV cache",
            margin_bytes=margin,
        )
    short = LedgerRow("short by", need - total, "", "=")
    device = LedgerRow("device memory", total, vram.sources["gpu_total"], "-")
    return failed(
        f"{shortage_words(certainty, need, total)}: with the stated KV cache it takes "
        f"{range_words(need, certainty)}, the device has {gib(total.expected)}",
        certainty,
        margin_bytes=margin,
        ledger=Ledger("per GPU", (*taken_rows(vram), device, short)),
        details=("the server says: torch.OutOfMemoryError: CUDA out of memory",),
    )


def _server_says(vram: VramLedger) -> str:
    if vram.weights_bytes.low > vram.gpu_total_bytes.high:
        return "the server says: torch.OutOfMemoryError: CUDA out of memory (while loading)"
    return "the server says: No available memory for the cache blocks."


def check(subject: Subject) -> Verdict:
    """As :func:`fits`, with changes that pass."""
    verdict = fits(subject)
    if verdict.ledger is None:
        return verdict
    from pytest_llmserve.invariants.llm102_kv_cache_fits import fits as kv_cache_fits

    def starts(changed: Subject) -> Verdict:
        weights = fits(changed)
        return kv_cache_fits(changed) if weights else weights

    return replace(verdict, fixes=recheck(subject, _candidates(subject), starts))


def _candidates(subject: Subject) -> Iterator[Candidate]:
    vram = subject.plan.vram
    setting = getattr(subject.deployment.settings, "kv_cache_memory_bytes", None)
    if vram is not None and setting is not None and is_pool_stated(vram):
        beside = taken_bytes(vram) - vram.kv_available_bytes
        room_gib = (vram.gpu_total_bytes.low - beside.high) // GIB
        if room_gib > 0:
            yield Candidate(
                change=f"--kv-cache-memory-bytes {room_gib}G",
                flags={"kv_cache_memory_bytes": room_gib * GIB},
                note=f"now {gib(setting.value)} GiB",
                setting=setting,
            )
    yield from more_memory(subject)


INVARIANT = Invariant(
    id="LLM101",
    name="weights-fit",
    title="weights and the runtime's own memory fit in the usable memory of each GPU",
    check=check,
    needs=("resolved", "rules-known", "model-known", "gpu-known", "gpu-memory-known"),
)
