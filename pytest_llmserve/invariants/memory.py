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


def budget_rows(vram: VramLedger) -> list[LedgerRow]:
    """From device memory to what is left for KV cache."""
    sources = vram.sources
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


def why_unknown(plan: Plan) -> str:
    """Why there is no ledger or no pool, in the words of the plan."""
    if not plan.unknown:
        return "cannot tell: the memory plan has no figure"
    first = plan.unknown[0]
    return f"cannot tell: {first.what}: {first.why}"
