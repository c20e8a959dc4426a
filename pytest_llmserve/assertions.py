"""The public verbs: each takes a server, or a model, a GPU and a few numbers.

``target`` is a :class:`Server` from :meth:`LlmServe.read` or :meth:`LlmServe.server`, or the name
(or :class:`ModelSpec`) of a model. With a model, ``gpu`` names the part and every other keyword is
a setting of the runtime under its own name: ``max_model_len=8192``, ``tensor_parallel_size=2``.

An ``assert_`` raises :class:`InvariantError` with the whole message when the invariant fails
certainly or likely, or cannot be told. When it is only close to its limit it warns.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmserve.invariants import invariant, server_invariants
from pytest_llmserve.invariants.phases import pays_off_from
from pytest_llmserve.physics import PhysicsVerbs, decoding, seconds
from pytest_llmserve.policy import Facts, Policy, Slo, Workload, parse_budget
from pytest_llmserve.reporting.text import explain
from pytest_llmserve.servers.server import Server, badness
from pytest_llmserve.subject import Subject
from pytest_llmserve.verdict import Certainty, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.servers.assemble import Assembler


class InvariantError(AssertionError):
    """An invariant that does not hold, or cannot be told; ``verdict`` is the answer."""

    def __init__(self, verdict: Verdict, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class CloseToLimitWarning(UserWarning):
    """An invariant that holds at the expected value, but not at the far end of the error bar."""


class LlmServe(PhysicsVerbs):
    """The verbs, bound to a policy. The module's functions are those of one without a policy."""

    def __init__(
        self,
        policy: Policy | None = None,
        gpu: str | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self._gpu = gpu
        self._defaults = dict(defaults or {})
        self._assembler: Assembler | None = None

    def server(
        self,
        model: str | ModelSpec | None = None,
        *,
        gpu: str | GpuSpec | None = None,
        gpu_count: int | None = None,
        version: str | None = None,
        name: str = "",
        env: Mapping[str, str] | None = None,
        **flags: Any,
    ) -> Server:
        """The vLLM server that these arguments describe.

        Args:
            model: hub id, path of a folder with a ``config.json``, or a spec.
            gpu: part, by catalogue id or any exact name (``"h100-sxm-80gb"``).
            gpu_count: GPUs of one instance; by default as many as parallelism needs.
            version: of vLLM; by default the policy's, else the newest known.
            name: how messages call it.
            env: environment variables of the server.
            **flags: settings by vLLM's own names, as values or as text (``"32k"``).

        Raises:
            ModelError, GpuNameError, TypeError: a model, a GPU or a setting is not known.
        """
        given: dict[str, Any] = {
            "model": model,
            "gpu": gpu,
            "gpu_count": gpu_count,
            "version": version,
        }
        given = {key: value for key, value in given.items() if value is not None}
        merged = {**self._defaults, **flags, **given}
        return self._assemble().from_arguments(
            model=merged.pop("model", None),
            gpu=merged.pop("gpu", None) or self._gpu,
            gpu_count=merged.pop("gpu_count", None),
            version=merged.pop("version", None),
            name=name,
            env=env,
            flags=merged,
        )

    def read(self, path: str | Path) -> tuple[Server, ...]:
        """The servers that a deployment file starts, in its order.

        Without a policy of its own, the one nearest above the file holds.

        Raises:
            ValueError: the file cannot be read as a deployment; the message says where and why.
        """
        from pytest_llmserve.manifests.reader import read_file

        path = Path(path)
        assembler = self._assembler_for(path.resolve().parent)
        options = assembler.policy.reading
        reading = read_file(path.resolve(), display=str(path), options=options)
        if reading.problems and not reading.launches:
            raise ValueError("\n".join(str(problem) for problem in reading.problems))
        return tuple(assembler.from_launch(launch, path.resolve()) for launch in reading.launches)

    def kv_cache_fits(
        self, target: Server | str | ModelSpec | None = None, **given: Any
    ) -> Verdict:
        """A verdict that is true if the KV cache holds one request of ``max_model_len``.

        True only if that is so at both ends of the error bar.
        """
        return self._judge("kv-cache-fits", target, given)[0]

    def assert_kv_cache_fits(
        self, target: Server | str | ModelSpec | None = None, **given: Any
    ) -> None:
        """The KV cache holds at least one request of ``max_model_len`` (LLM102)."""
        __tracebackhide__ = True
        self._assert("kv-cache-fits", target, given)

    def assert_weights_fit(
        self, target: Server | str | ModelSpec | None = None, **given: Any
    ) -> None:
        """Weights and the runtime's own memory fit in the usable memory (LLM101)."""
        __tracebackhide__ = True
        self._assert("weights-fit", target, given)

    def assert_vram_within_budget(
        self,
        target: Server | str | ModelSpec | None = None,
        *,
        budget: str | None = None,
        **given: Any,
    ) -> None:
        """The server takes at most ``budget`` (``"76GiB"``, ``"90%"``) of each GPU (LLM104)."""
        __tracebackhide__ = True
        facts = Facts(vram_budget=parse_budget(budget) if budget else None)
        self._assert("vram-within-budget", target, given, facts)

    def assert_concurrency_at_least(
        self,
        target: Server | str | ModelSpec | None = None,
        *,
        concurrency: int,
        prompt_tokens: int,
        output_tokens: int,
        **given: Any,
    ) -> None:
        """So many requests of that length run at once, without queueing (LLM103)."""
        __tracebackhide__ = True
        load = Workload(
            concurrency=concurrency, prompt_tokens=prompt_tokens, output_tokens=output_tokens
        )
        self._assert("concurrency-fits", target, given, Facts(workload=load))

    def assert_parallelism_valid(
        self, target: Server | str | ModelSpec | None = None, **given: Any
    ) -> None:
        """The model divides by TP and PP, and there are GPUs enough (LLM201, LLM202)."""
        __tracebackhide__ = True
        server = self._server_of(target, given)
        self._assert("parallelism-valid", server, {})
        self._assert("gpus-match-parallelism", server, {})

    def assert_context_within_model(
        self, target: Server | str | ModelSpec | None = None, **given: Any
    ) -> None:
        """``max_model_len`` is within what the model was made for (LLM203)."""
        __tracebackhide__ = True
        self._assert("context-within-model", target, given)

    def assert_dtype_supported(
        self, target: Server | str | ModelSpec | None = None, **given: Any
    ) -> None:
        """The GPU supports the dtype, the KV dtype and the quantisation (LLM204, LLM205)."""
        __tracebackhide__ = True
        server = self._server_of(target, given)
        self._assert("dtype-supported", server, {})
        self._assert("quantization-supported", server, {})

    def assert_starts(self, target: Server | str | ModelSpec | None = None, **given: Any) -> None:
        """The runtime starts: nothing unknown, nothing refused, weights and KV cache fit."""
        __tracebackhide__ = True
        server = self._server_of(target, given)
        for found in server_invariants():
            if found.id < "LLM300" and found.name not in ("concurrency-fits", "vram-within-budget"):
                self._assert(found.name, server, {})

    def assert_decode_memory_bound(
        self,
        target: Server | str | ModelSpec | None = None,
        *,
        batch: int = 1,
        context_tokens: int = 1,
        **given: Any,
    ) -> None:
        """Decoding ``batch`` sequences is limited by memory bandwidth (LLM301)."""
        __tracebackhide__ = True
        self._assert("decode-memory-bound", target, given, decoding(batch, context_tokens))

    def assert_prefill_compute_bound(
        self,
        target: Server | str | ModelSpec | None = None,
        *,
        prompt_tokens: int,
        **given: Any,
    ) -> None:
        """Prefill of ``prompt_tokens`` tokens is limited by compute (LLM302)."""
        __tracebackhide__ = True
        load = Workload(prompt_tokens=prompt_tokens, output_tokens=1)
        self._assert("prefill-compute-bound", target, given, Facts(workload=load))

    def assert_ttft_reachable(
        self,
        target: Server | str | ModelSpec | None = None,
        *,
        ttft: float | str,
        prompt_tokens: int,
        **given: Any,
    ) -> None:
        """A time to first token (seconds, or ``"500ms"``) is above the floor (LLM303)."""
        __tracebackhide__ = True
        load = Workload(prompt_tokens=prompt_tokens, output_tokens=1)
        facts = Facts(workload=load, slo=Slo(ttft_s=seconds(ttft)))
        self._assert("ttft-reachable", target, given, facts)

    def assert_tpot_reachable(
        self,
        target: Server | str | ModelSpec | None = None,
        *,
        tpot: float | str,
        batch: int = 1,
        context_tokens: int = 1,
        **given: Any,
    ) -> None:
        """A time per output token (seconds, or ``"50ms"``) is above the floor (LLM304)."""
        __tracebackhide__ = True
        facts = replace(decoding(batch, context_tokens), slo=Slo(tpot_s=seconds(tpot)))
        self._assert("tpot-reachable", target, given, facts)

    def assert_kv_cache_pays_off(
        self, target: Server | str | ModelSpec | None = None, *, tokens: int, **given: Any
    ) -> None:
        """At a context of ``tokens`` a step with KV cache has the lower roofline floor.

        Without a cache each step runs all tokens again, with one it reads them back; see
        :mod:`pytest_llmserve.engine.memoization`.
        """
        __tracebackhide__ = True
        server = self._server_of(target, given)
        if not server.subjects:
            raise TypeError(f"{server.name} is {server.not_planned}")
        for subject in server.subjects:
            start = pays_off_from(subject)
            if start is None or tokens < start:
                words = "at no length" if start is None else f"from {start:,} tokens on"
                raise AssertionError(f"a KV cache does not pay at {tokens:,} tokens: {words}")

    def _assemble(self) -> Assembler:
        if self._assembler is None:
            from pytest_llmserve.servers.assemble import Assembler

            self._assembler = Assembler(self.policy)
        return self._assembler

    def _assembler_for(self, folder: Path) -> Assembler:
        if self.policy.origin:
            return self._assemble()
        from pytest_llmserve.servers.policies import Policies

        policies = Policies(Path(folder.anchor))
        return policies.assembler(policies.for_folder(folder))

    def _server_of(
        self, target: Server | str | ModelSpec | None, given: Mapping[str, Any]
    ) -> Server:
        if not isinstance(target, Server):
            return self.server(target, **given)
        if given:
            words = ", ".join(sorted(given))
            raise TypeError(f"a Server has its settings already; not expected: {words}")
        return target

    def _judge(
        self,
        name: str,
        target: Server | str | ModelSpec | None,
        given: Mapping[str, Any],
        facts: Facts | None = None,
    ) -> tuple[Verdict, Subject]:
        server = self._server_of(target, given)
        if not server.subjects:
            raise TypeError(f"{server.name} is {server.not_planned}")
        found = invariant(name)
        subjects = [
            Subject(s.inputs, facts.over(s.facts) if facts else s.facts) for s in server.subjects
        ]
        for subject in subjects:
            if not found.applies(subject):
                raise TypeError(f"{found.name}: nothing is declared to hold, here or in the policy")
        judged = [(found.judge(subject), subject) for subject in subjects]
        return max(judged, key=lambda pair: badness(pair[0]))

    def _assert(
        self,
        name: str,
        target: Server | str | ModelSpec | None,
        given: Mapping[str, Any],
        facts: Facts | None = None,
    ) -> None:
        __tracebackhide__ = True
        verdict, subject = self._judge(name, target, given, facts)
        message = explain(verdict, subject.deployment)
        if self.policy.is_failure(verdict):
            raise InvariantError(verdict, message)
        if verdict.certainty is Certainty.CLOSE:
            warnings.warn(message, CloseToLimitWarning, stacklevel=3)


_UNBOUND = LlmServe()

server = _UNBOUND.server
read = _UNBOUND.read
kv_cache_fits = _UNBOUND.kv_cache_fits
assert_batch_amortizes_weights = _UNBOUND.assert_batch_amortizes_weights
assert_concurrency_at_least = _UNBOUND.assert_concurrency_at_least
assert_concurrency_kv_bound = _UNBOUND.assert_concurrency_kv_bound
assert_context_within_model = _UNBOUND.assert_context_within_model
assert_cost_per_million_tokens_below = _UNBOUND.assert_cost_per_million_tokens_below
assert_decode_memory_bound = _UNBOUND.assert_decode_memory_bound
assert_dtype_supported = _UNBOUND.assert_dtype_supported
assert_kv_cache_fits = _UNBOUND.assert_kv_cache_fits
assert_kv_cache_pays_off = _UNBOUND.assert_kv_cache_pays_off
assert_parallelism_valid = _UNBOUND.assert_parallelism_valid
assert_prefill_compute_bound = _UNBOUND.assert_prefill_compute_bound
assert_rate_sustained = _UNBOUND.assert_rate_sustained
assert_starts = _UNBOUND.assert_starts
assert_throughput_reachable = _UNBOUND.assert_throughput_reachable
assert_tpot_expected_below = _UNBOUND.assert_tpot_expected_below
assert_tpot_reachable = _UNBOUND.assert_tpot_reachable
assert_ttft_expected_below = _UNBOUND.assert_ttft_expected_below
assert_ttft_reachable = _UNBOUND.assert_ttft_reachable
assert_vram_within_budget = _UNBOUND.assert_vram_within_budget
assert_weights_fit = _UNBOUND.assert_weights_fit
