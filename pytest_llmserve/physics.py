"""The verbs about speed, throughput and cost that :class:`assertions.LlmServe` carries.

``reachable`` refutes with a floor: it fails only on the impossible. ``expected`` is an estimate
from measured classes, and says so in its message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_llmserve.policy import Facts, Slo, Workload
from pytest_llmserve.units import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.servers.server import Server

    Target = Server | str | ModelSpec | None


class PhysicsVerbs:
    """Verbs that need nothing but ``_assert``."""

    def _assert(
        self, name: str, target: Target, given: Mapping[str, Any], facts: Facts | None = None
    ) -> None:
        raise NotImplementedError

    def assert_ttft_expected_below(
        self, target: Target = None, *, ttft: float | str, prompt_tokens: int, **given: Any
    ) -> None:
        """The expected time to first token of a lone prompt is below ``ttft`` (LLM305).

        An estimate: it fails as *likely*, and is *close* (a warning) where only the far end of its
        interval is above.
        """
        __tracebackhide__ = True
        load = Workload(prompt_tokens=prompt_tokens, output_tokens=1)
        facts = Facts(workload=load, slo=Slo(ttft_expected_s=seconds(ttft)))
        self._assert("ttft-expected", target, given, facts)

    def assert_tpot_expected_below(
        self,
        target: Target = None,
        *,
        tpot: float | str,
        batch: int = 1,
        context_tokens: int = 1,
        **given: Any,
    ) -> None:
        """The expected time per output token of a batch is below ``tpot`` (LLM306); an estimate."""
        __tracebackhide__ = True
        facts = replace(decoding(batch, context_tokens), slo=Slo(tpot_expected_s=seconds(tpot)))
        self._assert("tpot-expected", target, given, facts)

    def assert_throughput_reachable(
        self,
        target: Target = None,
        *,
        requests_per_s: float,
        prompt_tokens: int,
        output_tokens: int,
        **given: Any,
    ) -> None:
        """A rate of requests on one replica is below the roofline ceiling (LLM307)."""
        __tracebackhide__ = True
        load = Workload(
            prompt_tokens=prompt_tokens, output_tokens=output_tokens, rate_per_s=requests_per_s
        )
        self._assert("rate-reachable", target, given, Facts(workload=load))

    def assert_rate_sustained(
        self,
        target: Target = None,
        *,
        requests_per_s: float,
        prompt_tokens: int,
        output_tokens: int,
        **given: Any,
    ) -> None:
        """The requests that a rate keeps in flight fit on one replica (LLM311); an estimate."""
        __tracebackhide__ = True
        load = Workload(
            prompt_tokens=prompt_tokens, output_tokens=output_tokens, rate_per_s=requests_per_s
        )
        self._assert("rate-sustained", target, given, Facts(workload=load))

    def assert_batch_amortizes_weights(
        self, target: Target = None, *, batch: int, context_tokens: int = 1, **given: Any
    ) -> None:
        """A batch reaches half of the throughput that batching can give (LLM308)."""
        __tracebackhide__ = True
        facts = decoding(batch, context_tokens)
        self._assert("batch-amortizes-weights", target, given, facts)

    def assert_concurrency_kv_bound(
        self, target: Target = None, *, context_tokens: int, **given: Any
    ) -> None:
        """Memory for the KV cache caps the sequences at once before compute does (LLM309)."""
        __tracebackhide__ = True
        self._assert("concurrency-kv-bound", target, given, decoding(1, context_tokens))

    def assert_cost_per_million_tokens_below(
        self,
        target: Target = None,
        *,
        usd: float,
        concurrency: int,
        prompt_tokens: int,
        output_tokens: int,
        usd_per_gpu_hour: float | None = None,
        **given: Any,
    ) -> None:
        """A million output tokens cost less than ``usd`` with so many in flight (LLM310).

        Without ``usd_per_gpu_hour`` the policy's price is taken, else dated list prices.
        """
        __tracebackhide__ = True
        load = Workload(
            prompt_tokens=prompt_tokens, output_tokens=output_tokens, concurrency=concurrency
        )
        facts = Facts(
            workload=load, max_usd_per_million_tokens=usd, usd_per_gpu_hour=usd_per_gpu_hour
        )
        self._assert("cost-within-budget", target, given, facts)


def decoding(batch: int, context_tokens: int) -> Facts:
    """A batch that decodes at a context.

    Raises:
        ValueError: one of them is below 1.
    """
    if batch < 1 or context_tokens < 1:
        raise ValueError(f"batch and context_tokens start at 1, got {batch} and {context_tokens}")
    load = Workload(prompt_tokens=context_tokens, output_tokens=1, concurrency=batch)
    return Facts(workload=load)


def seconds(value: float | str) -> float:
    """Seconds, from a number of them or from ``"50ms"``."""
    return parse_seconds(value) if isinstance(value, str) else float(value)
