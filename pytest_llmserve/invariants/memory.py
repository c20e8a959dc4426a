"""What the memory invariants share: ledger rows with sources, and the reasons for no figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.units import ZERO, format_gib
from pytest_llmserve.verdict import LedgerRow

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import Plan, VramLedger
    from pytest_llmserve.units import Interval


def bar(value: Interval) -> str:
    """``estimated 0.90..1.90``; empty for an exact figure."""
    if value.is_exact:
        return ""
    return f"estimated {format_gib(value.low)}..{format_gib(value.high)}"


def overhead_bytes(vram: VramLedger) -> Interval:
    """Everything in the budget that is neither weights nor KV cache."""
    graphs = vram.graphs_bytes if vram.graphs_in_budget else ZERO
    return vram.activations_bytes + vram.non_torch_bytes + graphs


def is_pool_stated(vram: VramLedger) -> bool:
    """Whether the KV cache's size was stated, so that it is not what the budget leaves."""
    left = vram.budget_bytes - vram.weights_bytes - overhead_bytes(vram)
    return vram.kv_available_bytes != left


def taken_bytes(vram: VramLedger) -> Interval:
    """What the server takes of the GPU, graphs captured outside of the budget included."""
    outside = ZERO if vram.graphs_in_budget else vram.graphs_bytes
    if is_pool_stated(vram):
        pool = vram.kv_available_bytes
        return vram.weights_bytes + overhead_bytes(vram) + outside + pool
    return vram.budget_bytes + outside


def budget_rows(vram: VramLedger) -> list[LedgerRow]:
    """From device memory to what is left for KV cache."""
    sources = vram.sources
    if is_pool_stated(vram):
        return [LedgerRow("KV cache", vram.kv_available_bytes, sources["kv_available"])]
    rows = [
        LedgerRow("device memory", vram.gpu_total_bytes, sources["gpu_total"]),
        LedgerRow("usable", vram.budget_bytes, sources["budget"]),
        LedgerRow("weights", vram.weights_bytes, sources["weights"], "-"),
        LedgerRow("activations", vram.activations_bytes, sources["activations"], "-"),
        LedgerRow("non-torch", vram.non_torch_bytes, sources["non_torch"], "-"),
    ]
    if vram.graphs_in_budget and vram.graphs_bytes.high:
        rows.append(LedgerRow("CUDA graphs", vram.graphs_bytes, sources["graphs"], "-"))
    rows.append(
        LedgerRow("left for KV cache", vram.kv_available_bytes, bar(vram.kv_available_bytes), "=")
    )
    return rows


def taken_rows(vram: VramLedger) -> list[LedgerRow]:
    """The operands of :func:`taken_bytes`."""
    sources = vram.sources
    if not is_pool_stated(vram):
        rows = [LedgerRow("usable by the server", vram.budget_bytes, sources["budget"])]
    else:
        rows = [
            LedgerRow("weights", vram.weights_bytes, sources["weights"]),
            LedgerRow("activations", vram.activations_bytes, sources["activations"], "+"),
            LedgerRow("non-torch", vram.non_torch_bytes, sources["non_torch"], "+"),
            LedgerRow("KV cache", vram.kv_available_bytes, sources["kv_available"], "+"),
        ]
    is_outside = is_pool_stated(vram) or not vram.graphs_in_budget
    if is_outside and vram.graphs_bytes.high:
        rows.append(LedgerRow("CUDA graphs", vram.graphs_bytes, sources["graphs"], "+"))
    return rows


def why_unknown(plan: Plan) -> str:
    """Why there is no ledger or no pool, in the words of the plan."""
    if not plan.unknown:
        return "cannot tell: the memory plan has no figure"
    first = plan.unknown[0]
    return f"cannot tell: {first.what}: {first.why}"
