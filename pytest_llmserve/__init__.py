"""Serving-invariant assertions for LLM deployments.

Everything public is importable from here; nothing is loaded before it is asked for, so that an
installed but unused plugin costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmserve.assertions import (
        assert_batch_amortizes_weights,
        assert_concurrency_at_least,
        assert_concurrency_kv_bound,
        assert_context_within_model,
        assert_cost_per_million_tokens_below,
        assert_decode_memory_bound,
        assert_dtype_supported,
        assert_kv_cache_fits,
        assert_kv_cache_pays_off,
        assert_parallelism_valid,
        assert_prefill_compute_bound,
        assert_rate_sustained,
        assert_starts,
        assert_throughput_reachable,
        assert_tpot_expected_below,
        assert_tpot_reachable,
        assert_ttft_expected_below,
        assert_ttft_reachable,
        assert_vram_within_budget,
        assert_weights_fit,
        kv_cache_fits,
        read,
        server,
    )
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.servers.server import Server
    from pytest_llmserve.sweeps import sweep
    from pytest_llmserve.verdict import Certainty, Outcome, Verdict

__version__ = "0.1.0"

_HOMES = {
    "GpuSpec": "hardware.spec",
    "ModelSpec": "models.spec",
    "Server": "servers.server",
    "sweep": "sweeps",
    "Certainty": "verdict",
    "Outcome": "verdict",
    "Verdict": "verdict",
}

__all__ = [
    "Certainty",
    "GpuSpec",
    "ModelSpec",
    "Outcome",
    "Server",
    "Verdict",
    "assert_batch_amortizes_weights",
    "assert_concurrency_at_least",
    "assert_concurrency_kv_bound",
    "assert_context_within_model",
    "assert_cost_per_million_tokens_below",
    "assert_decode_memory_bound",
    "assert_dtype_supported",
    "assert_kv_cache_fits",
    "assert_kv_cache_pays_off",
    "assert_parallelism_valid",
    "assert_prefill_compute_bound",
    "assert_rate_sustained",
    "assert_starts",
    "assert_throughput_reachable",
    "assert_tpot_expected_below",
    "assert_tpot_reachable",
    "assert_ttft_expected_below",
    "assert_ttft_reachable",
    "assert_vram_within_budget",
    "assert_weights_fit",
    "kv_cache_fits",
    "read",
    "server",
    "sweep",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{_HOMES.get(name, 'assertions')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
