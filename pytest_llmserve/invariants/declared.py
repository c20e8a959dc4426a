"""LLM305 to LLM311: what holds only where a policy declares it; each check is loaded when asked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from pytest_llmserve.invariants.base import Invariant, always

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict

_ROOTS = ("resolved", "model-known", "gpu-known")
_SIZED = ("resolved", "rules-known", "model-known", "gpu-known", "gpu-memory-known")


def _declared(
    id_: str,
    name: str,
    title: str,
    applies: Callable[[Subject], bool] | None = None,
    needs: tuple[str, ...] = _ROOTS,
) -> Invariant:
    """Without ``applies`` it is only checked where the policy selects it."""
    module = f"pytest_llmserve.invariants.{id_.lower()}_{name.replace('-', '_')}"

    def check(subject: Subject) -> Verdict:
        return cast("Verdict", import_module(module).check(subject))

    return Invariant(
        id=id_,
        name=name,
        title=title,
        check=check,
        needs=needs,
        applies=applies or always,
        is_selected_by_default=applies is not None,
    )


def _has_rate(subject: Subject) -> bool:
    load = subject.facts.workload
    return load is not None and load.rate_per_s is not None


def _limits_ttft(subject: Subject) -> bool:
    slo = subject.facts.slo
    return slo is not None and slo.ttft_expected_s is not None


def _limits_tpot(subject: Subject) -> bool:
    slo = subject.facts.slo
    return slo is not None and slo.tpot_expected_s is not None


def _limits_cost(subject: Subject) -> bool:
    return subject.facts.max_usd_per_million_tokens is not None


INVARIANTS = (
    _declared(
        "LLM305",
        "ttft-expected",
        "the time to first token is expected within the declared limit (an estimate)",
        _limits_ttft,
    ),
    _declared(
        "LLM306",
        "tpot-expected",
        "the time per output token is expected within the declared limit (an estimate)",
        _limits_tpot,
    ),
    _declared(
        "LLM307",
        "rate-reachable",
        "the declared request rate is below the roofline ceiling",
        _has_rate,
    ),
    _declared(
        "LLM308",
        "batch-amortizes-weights",
        "the declared batch reaches half of the throughput that batching can give",
    ),
    _declared(
        "LLM309",
        "concurrency-kv-bound",
        "concurrency is capped by memory for the KV cache, not by compute",
        needs=_SIZED,
    ),
    _declared(
        "LLM310",
        "cost-within-budget",
        "a million output tokens cost no more than declared",
        _limits_cost,
    ),
    _declared(
        "LLM311",
        "rate-sustained",
        "the requests that the declared rate keeps in flight fit at once (an estimate)",
        _has_rate,
        _SIZED,
    ),
)
