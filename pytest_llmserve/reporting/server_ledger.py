"""The whole ledger of a server from its facts, for ``-v``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_llmserve.invariants.memory import budget_rows, is_pool_stated, taken_rows
from pytest_llmserve.reporting.ledger import ledger_lines
from pytest_llmserve.reporting.summary import pool_words
from pytest_llmserve.runtimes.deployment import VramLedger
from pytest_llmserve.units import Interval
from pytest_llmserve.verdict import Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS = ("gpu_total", "budget", "weights", "activations", "non_torch", "graphs", "kv_available")


def server_ledger_lines(server: Mapping[str, Any]) -> list[str]:
    """Every operand with its source, then what the KV cache holds."""
    facts = server["ledger"]
    intervals = {
        f"{row}_bytes": Interval(*(facts[row][end] for end in ("low", "expected", "high")))
        for row in ROWS
    }
    vram = VramLedger(
        **intervals,
        graphs_in_budget=facts["graphs_in_budget"],
        sources={row: facts[row]["source"] for row in ROWS},
    )
    rows = taken_rows(vram) if is_pool_stated(vram) else budget_rows(vram)
    lines = ledger_lines(Ledger("per GPU", tuple(rows)))
    return [*lines, f"  {pool_words(server['kv'])}"] if server["kv"] else lines
