"""``sweep``: what fits, over context x concurrency x TP x dtype x GPU, and what is cheapest.

Each kind of server is derived once, by the road that every deployment takes; its grid of contexts
and concurrencies is then arithmetic on numpy arrays, made one kind at a time when it is asked for.
A cell is what LLM103 says of that server with that workload.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_llmserve.assertions import LlmServe
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.units import Interval

    Cells = NDArray[np.uint8]


class Fit(IntEnum):
    """What a cell of the grid says."""

    DOES_NOT_FIT = 0
    CLOSE = 1
    """At the expected value it fits, at the far end of the error bar it does not."""
    FITS = 2
    UNKNOWN = 3


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of server in a sweep, and its grid."""

    subject: Subject
    contexts: tuple[int, ...]
    concurrencies: tuple[int, ...]
    why_not: str = ""
    """Why nothing fits or nothing can be told; empty for a server that starts."""

    @property
    def gpu(self) -> GpuSpec:
        """The part."""
        gpu = self.subject.deployment.gpu
        assert gpu is not None, "a sweep names its GPUs"
        return gpu

    @property
    def gpu_count(self) -> int:
        """GPUs of the server."""
        return self.subject.deployment.settings.world_size

    @property
    def label(self) -> str:
        """``2 x h100-sxm-80gb, --kv-cache-dtype fp8``."""
        settings = self.subject.deployment.settings
        words = [f"{self.gpu_count} x {self.gpu.id}"]
        if settings.quantization.is_stated:
            words.append(f"--quantization {settings.quantization.value}")
        if settings.kv_cache_dtype.is_stated and settings.kv_cache_dtype.value != "auto":
            words.append(f"--kv-cache-dtype {settings.kv_cache_dtype.value}")
        return ", ".join(words)

    @property
    def usd_per_hour(self) -> float | None:
        """Geometric mean of the list prices of its GPUs; ``None``: no price is known."""
        own, price = self.subject.facts.usd_per_gpu_hour, self.gpu.price
        if own is not None:
            return own * self.gpu_count
        if price is None:
            return None
        return self.gpu_count * math.sqrt(price.low_usd_per_hour * price.high_usd_per_hour)

    @cached_property
    def request_bytes(self) -> tuple[int, ...]:
        """What a request of each context holds on the fullest GPU; empty where not known."""
        from pytest_llmserve.runtimes.vllm.drafts import draft_of
        from pytest_llmserve.runtimes.vllm.plan import stage_pools
        from pytest_llmserve.runtimes.vllm.settings import VllmSettings

        inputs, settings = self.subject.inputs, self.subject.deployment.settings
        if self.why_not or self._pool is None:
            return ()
        assert isinstance(settings, VllmSettings)
        assert inputs.model is not None
        (pool,) = stage_pools(
            settings,
            version=inputs.version.value,
            model=inputs.model,
            gpu=inputs.gpu,
            draft=draft_of(settings, inputs.model, inputs.draft),
        )
        return tuple(pool.request_bytes(context) for context in self.contexts)

    @property
    def _pool(self) -> Interval | None:
        vram = self.subject.plan.vram
        return None if vram is None else vram.kv_available_bytes

    @property
    def fit(self) -> Cells:
        """:class:`Fit` of every cell, by (context, concurrency)."""
        import numpy as np

        shape = (len(self.contexts), len(self.concurrencies))
        if self.why_not or self._pool is None:
            is_refused = bool(self.subject.deployment.refusals)
            return np.full(shape, Fit.DOES_NOT_FIT if is_refused else Fit.UNKNOWN, dtype=np.uint8)
        settings = self.subject.deployment.settings
        contexts = np.asarray(self.contexts)
        counts = -(-np.asarray(self.concurrencies) // settings.data_parallel_size.value)
        low, expected, _ = (max(0, left) for left in self._pool)
        # how many requests fit, so that no product can overflow
        each = np.maximum(np.asarray(self.request_bytes, dtype=np.int64), 1)
        cells = (counts <= (expected // each)[:, None]).astype(np.uint8)
        cells += counts <= (low // each)[:, None]
        if settings.max_model_len.value is not None:
            cells[contexts > settings.max_model_len.value] = Fit.DOES_NOT_FIT
        cells[:, counts > settings.max_num_seqs.value] = Fit.DOES_NOT_FIT
        return cells

    @property
    def tpot_floor_s(self) -> NDArray[np.float64] | None:
        """Floor of a decode step in seconds, by (context, concurrency); ``None``: not known."""
        import numpy as np

        from pytest_llmserve.engine.sweep import tpot_floor_sweep_s
        from pytest_llmserve.invariants.phases import rates

        if self.why_not or (found := rates(self.subject)) is None:
            return None
        settings = self.subject.deployment.settings
        counts = -(-np.asarray(self.concurrencies) // settings.data_parallel_size.value)
        floors = tpot_floor_sweep_s(self.subject.costs, *found, np.asarray(self.contexts), counts)
        return floors / self.subject.inputs.tokens_per_step(self.subject.deployment)

    def frontier(self) -> dict[int, int]:
        """For each concurrency the largest context of the sweep that fits; 0: none does."""
        import numpy as np

        fits = self.fit == Fit.FITS
        order = np.asarray(self.contexts)
        best = np.where(fits, order[:, None], 0).max(axis=0, initial=0)
        return dict(zip(self.concurrencies, best.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Every kind of server; grids are made when they are asked for, one at a time."""

    kinds: tuple[Kind, ...]
    contexts: tuple[int, ...]
    concurrencies: tuple[int, ...]

    @property
    def num_cells(self) -> int:
        """Cells of all grids together."""
        return len(self.kinds) * len(self.contexts) * len(self.concurrencies)

    def passing(
        self, *, context: int, concurrency: int, tpot_s: float | None = None
    ) -> Iterator[Kind]:
        """The kinds that fit a cell of the grid, and whose floor allows the time per token.

        Raises:
            ValueError: the context or the concurrency is not in the grid.
        """
        row = _position("context", self.contexts, context)
        column = _position("concurrency", self.concurrencies, concurrency)
        for kind in self.kinds:
            if kind.fit[row, column] != Fit.FITS:
                continue
            floors = kind.tpot_floor_s if tpot_s is not None else None
            if tpot_s is None or (floors is not None and floors[row, column] <= tpot_s):
                yield kind

    def cheapest(
        self, *, context: int, concurrency: int, tpot_s: float | None = None
    ) -> Kind | None:
        """Of those that pass and have a price the one with the least dollars an hour."""
        priced = [
            (kind.usd_per_hour, place, kind)
            for place, kind in enumerate(
                self.passing(context=context, concurrency=concurrency, tpot_s=tpot_s)
            )
            if kind.usd_per_hour is not None
        ]
        return min(priced)[2] if priced else None


def sweep(
    model: str | ModelSpec,
    *,
    gpus: Sequence[str | GpuSpec],
    contexts: Sequence[int],
    concurrencies: Sequence[int],
    tensor_parallel_sizes: Sequence[int] = (1,),
    kv_cache_dtypes: Sequence[str] = ("auto",),
    quantizations: Sequence[str | None] = (None,),
    version: str | None = None,
    serve: LlmServe | None = None,
    **flags: Any,
) -> Sweep:
    """What fits of a model's servers, over a grid.

    Args:
        model: hub id, path of a folder with a ``config.json``, or a spec.
        gpus: parts, by catalogue id or any exact name.
        contexts: tokens of a request, prompt and answer together.
        concurrencies: requests at once.
        tensor_parallel_sizes: GPUs of a server.
        kv_cache_dtypes: the runtime's words; ``auto`` is the model's dtype.
        quantizations: of weights when they are loaded; ``None``: as the checkpoint is.
        version: of vLLM; by default the policy's, else the newest known.
        serve: a bound set of verbs, for its policy.
        **flags: other settings by vLLM's own names.

    Raises:
        ValueError: an empty axis, a number below 1, or pipeline parallelism.
    """
    if serve is None:
        from pytest_llmserve.assertions import LlmServe

        serve = LlmServe()
    if flags.get("pipeline_parallel_size", 1) != 1:
        raise ValueError("sweeps are over servers without pipeline parallelism")
    lengths = _axis("contexts", contexts)
    counts = _axis("concurrencies", concurrencies)
    kinds = []
    for gpu, size, kv, quant in product(
        gpus, _axis("tensor_parallel_sizes", tensor_parallel_sizes), kv_cache_dtypes, quantizations
    ):
        given = {**flags, "tensor_parallel_size": size}
        given |= {} if kv == "auto" else {"kv_cache_dtype": kv}
        given |= {} if quant is None else {"quantization": quant}
        server = serve.server(model, gpu=gpu, version=version, **given)
        (subject,) = server.subjects
        kinds.append(
            Kind(
                subject=subject,
                contexts=lengths,
                concurrencies=counts,
                why_not=_why_not(subject),
            )
        )
    if not kinds:
        raise ValueError("nothing to sweep over: an axis is empty")
    return Sweep(kinds=tuple(kinds), contexts=lengths, concurrencies=counts)


def _why_not(subject: Subject) -> str:
    refusals, plan = subject.deployment.refusals, subject.plan
    if refusals:
        return refusals[0].headline
    return "; ".join(f"{u.what}: {u.why}" for u in plan.unknown)


def _axis(name: str, values: Sequence[int]) -> tuple[int, ...]:
    found = tuple(int(value) for value in values)
    if not found or min(found) < 1:
        raise ValueError(f"{name} must be numbers from 1 on, got {list(found)[:5]}")
    return found


def _position(name: str, axis: tuple[int, ...], value: int) -> int:
    if value not in axis:
        raise ValueError(f"{name} {value:,} is not in the sweep: {min(axis):,} to {max(axis):,}")
    return axis.index(value)
