"""A server and a verdict as plain data: what reports write and what travels between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import KvPool, VramLedger
    from pytest_llmserve.servers.server import Server
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.units import Interval
    from pytest_llmserve.verdict import Location, Verdict

LEDGER_ROWS = (
    "gpu_total",
    "budget",
    "weights",
    "activations",
    "graphs",
    "non_torch",
    "kv_available",
)


def brief_facts(server: Server) -> dict[str, Any]:
    """What the terminal summary says of a server, on the GPU that leaves the least for KV cache."""
    launch, subject = server.launch, tightest(server)
    plan, deployment = subject.plan, subject.deployment
    return {
        "name": server.name,
        "source": location_facts(server.location),
        "is_deployed": launch.is_deployed if launch else True,
        "gpu": {
            "id": deployment.gpu.id if deployment.gpu else None,
            "count": deployment.gpu_count.value if deployment.gpu_count else None,
        },
        "ledger": ledger_facts(plan.vram) if plan.vram else None,
        "kv": kv_facts(plan.kv) if plan.kv else None,
        "unknown": [f"{u.what}: {u.why}" for u in plan.unknown],
    }


def tightest(server: Server) -> Subject:
    """The subject with the least memory left; an unknown GPU before any other."""

    def left(subject: Subject) -> float:
        vram = subject.plan.vram
        return float("-inf") if vram is None else vram.kv_available_bytes.low

    return min(server.subjects, key=left)


def verdict_facts(
    verdict: Verdict, text: str, *, is_failure: bool, accepted: str | None = None
) -> dict[str, Any]:
    """A verdict with its first line, its message and its fixes.

    ``accepted`` is why a failing one fails no test: an ignore or the baseline.
    """
    return {
        "id": verdict.id,
        "name": verdict.name,
        "outcome": str(verdict.outcome),
        "certainty": str(verdict.certainty) if verdict.certainty else None,
        "is_failure": is_failure and accepted is None,
        "accepted": accepted,
        "headline": verdict.headline,
        "location": location_facts(verdict.location),
        "margin_bytes": interval_facts(verdict.margin_bytes),
        "fixes": [{"change": f.change, "note": f.note} for f in verdict.fixes],
        "evidence": dict(verdict.evidence),
        "blocked_by": verdict.blocked_by,
        "message": text,
    }


def ledger_facts(vram: VramLedger) -> dict[str, Any]:
    """Bytes per GPU, each with its error bar and source."""
    rows: dict[str, Any] = {
        row: {
            **(interval_facts(getattr(vram, f"{row}_bytes")) or {}),
            "source": vram.sources.get(row, ""),
        }
        for row in LEDGER_ROWS
    }
    return {**rows, "graphs_in_budget": vram.graphs_in_budget}


def kv_facts(kv: KvPool) -> dict[str, Any]:
    """The pool as the runtime prints it, and what one request takes."""
    low, expected, high = kv.max_concurrency
    return {
        "bytes_per_token": kv.bytes_per_token,
        "block_size": kv.block_size,
        "bytes_per_block": kv.bytes_per_block,
        "groups": [
            {
                "num_layers": g.num_layers,
                "kind": g.kind,
                "block_size": g.block_size,
                "page_bytes": g.page_bytes,
            }
            for g in kv.groups
        ],
        "num_blocks": interval_facts(kv.num_blocks),
        "capacity_tokens": interval_facts(kv.capacity_tokens),
        "max_concurrency": {"low": low, "expected": expected, "high": high},
        "max_model_len": kv.max_model_len,
        "request_bytes": kv.request_bytes,
        "need_bytes": kv.need_bytes,
        "estimated_max_len": interval_facts(kv.estimated_max_len),
    }


def interval_facts(value: Interval | None) -> dict[str, int] | None:
    """Low, expected and high."""
    if value is None:
        return None
    return {"low": value.low, "expected": value.expected, "high": value.high}


def location_facts(location: Location | None) -> dict[str, Any] | None:
    """File and line."""
    return None if location is None else {"file": location.file, "line": location.line}
