"""Facts made by hand: reports are tested on figures that no calibration moves."""

from __future__ import annotations

from typing import Any

from pytest_llmserve.reporting.findings import Checked
from pytest_llmserve.units import GIB


def interval(expected: float, bar: float = 0.0) -> dict[str, Any]:
    low, middle, high = (round(v * GIB) for v in (expected - bar, expected, expected + bar))
    return {"low": low, "expected": middle, "high": high}


def ledger(budget: float = 71.25, weights: float = 65.75, left: float = 3.5) -> dict[str, Any]:
    rest = budget - weights - left
    return {
        "gpu_total": {**interval(79.25), "source": "catalogue h100-sxm-80gb"},
        "budget": {**interval(budget), "source": "0.90 x framework total, line 33"},
        "weights": {**interval(weights), "source": "70.55e9 params x 2 B / TP 2"},
        "activations": {**interval(rest - 0.5, 0.25), "source": "estimated, +/- 0.2 GiB"},
        "graphs": {**interval(0.0), "source": "outside of the budget"},
        "non_torch": {**interval(0.5), "source": "estimated, +/- 0.0 GiB"},
        "kv_available": {**interval(left, 0.25), "source": "what is left of the budget"},
        "graphs_in_budget": False,
    }


def server(name: str, file: str, line: int, **more: Any) -> dict[str, Any]:
    kv = {
        "capacity_tokens": {"low": 20_000, "expected": 22_928, "high": 24_000},
        "max_concurrency": {"low": 0.15, "expected": 0.17, "high": 0.18},
        "max_model_len": 131_072,
    }
    facts = {
        "name": name,
        "source": {"file": file, "line": line},
        "is_deployed": True,
        "gpu": {"id": "h100-sxm-80gb", "count": 2},
        "ledger": ledger(),
        "kv": kv,
        "unknown": [],
    }
    return facts | more


def verdict(id_: str, name: str, **more: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": id_,
        "name": name,
        "outcome": "passed",
        "certainty": None,
        "is_failure": False,
        "headline": "as it should be",
        "location": None,
        "margin_bytes": None,
        "fixes": [],
        "evidence": {},
        "blocked_by": None,
        "accepted": None,
        "message": f"{id_} as it should be",
    }
    return facts | more


def fact(of: dict[str, Any] | None, about: dict[str, Any], **more: Any) -> dict[str, Any]:
    place = of["source"] if of else about["location"] or {"file": "deploy/a.yaml", "line": 1}
    node = f"{of['name']}::{about['name']}" if of else about["name"]
    outcome = "failed" if about["is_failure"] else "passed"
    facts: dict[str, Any] = {"file": place["file"], "verdict": about, "node": node, "item": outcome}
    if of:
        facts["server"] = of
    return facts | more


CHAT = server(
    "chat-70b",
    "deploy/chat 70b.yaml",
    20,
    change={
        "ref": "origin/main",
        "status": "changed",
        "base": {
            "gpus": "2 x h100-sxm-80gb",
            "runtime": "vllm 0.19.1",
            "needed_bytes": round(69.0 * GIB),
            "budget_bytes": round(71.25 * GIB),
            "kv_left_bytes": round(3.5 * GIB),
            "capacity_tokens": 22_928,
            "max_model_len": 8_192,
            "longest_context": 22_928,
            "requests_at_once": 5,
        },
        "head": {
            "gpus": "2 x h100-sxm-80gb",
            "runtime": "vllm 0.19.1",
            "needed_bytes": round(87.75 * GIB),
            "budget_bytes": round(71.25 * GIB),
            "kv_left_bytes": round(3.5 * GIB),
            "capacity_tokens": 22_928,
            "max_model_len": 131_072,
            "longest_context": 22_928,
            "requests_at_once": 0,
        },
        "settings": [
            {"name": "max_model_len", "old": "8,192", "new": "131,072", "source": "line 31"}
        ],
    },
)
SMALL = server(
    "small|<b>*",
    "deploy/small.yaml",
    9,
    gpu={"id": None, "count": None},
    ledger=None,
    kv=None,
    unknown=["GPU: the files do not say which GPU it is"],
    change={"ref": "origin/main", "status": "same", "base": {}, "head": {}, "settings": []},
)
TOO_LONG = verdict(
    "LLM102",
    "kv-cache-fits",
    outcome="failed",
    certainty="certain",
    is_failure=True,
    headline="short of 16.50 GiB per GPU: 100% of it | really",
    location={"file": "deploy/chat 70b.yaml", "line": 31},
    margin_bytes=interval(-16.5, 0.25),
    fixes=[
        {"change": "--max-model-len 20000", "note": "line 31"},
        {"change": "--kv-cache-dtype fp8", "note": ""},
    ],
    message="LLM102 short of 16.50 GiB per GPU: 100% of it | really\n  deploy/chat 70b.yaml:31",
)
CLOSE = verdict(
    "LLM103",
    "concurrency-fits",
    outcome="failed",
    certainty="close",
    headline="may be short of 0.25 GiB per GPU",
    location={"file": "deploy/chat 70b.yaml", "line": 20},
    message="LLM103 may be short of 0.25 GiB per GPU",
)
NO_GPU = verdict(
    "LLM004",
    "gpu-known",
    outcome="cannot tell",
    is_failure=True,
    headline="cannot tell: @small: no field says which GPU <it> runs on",
    location={"file": "deploy/small.yaml", "line": 9},
    message="LLM004 cannot tell: @small: no field says which GPU <it> runs on",
)
BLOCKED = verdict(
    "LLM102",
    "kv-cache-fits",
    outcome="cannot tell",
    is_failure=True,
    headline="cannot tell: the GPU is not known (see gpu-known)",
    location={"file": "deploy/small.yaml", "line": 9},
    blocked_by="gpu-known",
)
ACCEPTED = verdict(
    "LLM202",
    "gpus-match-parallelism",
    outcome="failed",
    certainty="certain",
    headline="2 of 4 GPUs stay idle",
    accepted="sidecar uses them (line 9)",
    location={"file": "deploy/small.yaml", "line": 9},
)
FIXED = verdict("LLM101", "weights-fit", location={"file": "deploy/small.yaml", "line": 9})

FACTS = [
    fact(SMALL, FIXED, item="failed", said="[XPASS(strict)] accepted in the baseline, fixed now"),
    fact(SMALL, NO_GPU),
    fact(SMALL, BLOCKED, item="skipped"),
    fact(SMALL, ACCEPTED, item="skipped"),
    fact(CHAT, CLOSE),
    fact(CHAT, TOO_LONG),
    fact(CHAT, verdict("LLM101", "weights-fit")),
    fact(None, verdict("LLM001", "readable"), ignored=["Service chat (line 40)"]),
    fact(
        None,
        verdict("LLM001", "readable", location={"file": "deploy/b.yaml", "line": 1}),
        ignored=["Secret chat (line 9)"],
    ),
]


def checked(
    facts: list[dict[str, Any]] | None = None, prefix: str = "", not_run: int = 0
) -> Checked:
    """As a session hands it over."""
    from pytest_llmserve.reporting.changes import changes_of, compared_with

    found = FACTS if facts is None else facts
    return Checked(
        facts=found,
        changes=tuple(changes_of(found, prefix)),
        compared_with=compared_with(found),
        prefix=prefix,
        not_run=not_run,
    )
