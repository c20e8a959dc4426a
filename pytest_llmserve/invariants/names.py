"""Permanent ids and spoken names of the invariants, and which ones stand for an unknown."""

from __future__ import annotations

from typing import Final

NAMES: Final[dict[str, str]] = {
    "LLM001": "readable",
    "LLM002": "resolved",
    "LLM003": "model-known",
    "LLM004": "gpu-known",
    "LLM101": "weights-fit",
    "LLM102": "kv-cache-fits",
    "LLM103": "concurrency-fits",
    "LLM104": "vram-within-budget",
    "LLM201": "parallelism-valid",
    "LLM202": "gpus-match-parallelism",
    "LLM203": "context-within-model",
    "LLM204": "dtype-supported",
    "LLM205": "quantization-supported",
    "LLM206": "scheduler-valid",
    "LLM207": "flags-known-to-version",
    "LLM208": "settings-valid",
    "LLM301": "decode-memory-bound",
    "LLM302": "prefill-compute-bound",
    "LLM303": "ttft-reachable",
    "LLM304": "tpot-reachable",
    "LLM305": "ttft-expected",
    "LLM306": "tpot-expected",
    "LLM307": "rate-reachable",
    "LLM308": "batch-amortizes-weights",
    "LLM309": "concurrency-kv-bound",
    "LLM310": "cost-within-budget",
    "LLM311": "rate-sustained",
    "LLM401": "ignores-needed",
    "LLM402": "baseline-current",
    "LLM501": "shared-gpu-fits",
    "LLM502": "gpus-within-quota",
    "LLM503": "pair-agrees",
    "LLM504": "environments-agree",
    "LLM601": "vram-increase-allowed",
    "LLM602": "concurrency-drop-allowed",
}
IDS: Final[dict[str, str]] = {name: id_ for id_, name in NAMES.items()}


def canonical_name(text: str) -> str | None:
    """The spoken name of an id or name, in any case, ``_`` or ``-``; ``None`` if unknown."""
    folded = text.strip().lower().replace("_", "-")
    return NAMES.get(folded.upper()) or (folded if folded in IDS else None)
