"""Expectations: what real servers need for a step, a first token or a request; estimates.

A floor (:mod:`latency`) refutes; an expectation informs. It is the same load at a measured fraction
of the bandwidth plus a measured launch time a layer, in an interval, with the number of
measurements behind it (:mod:`speed_table`). Where too little was measured there is none, and
:class:`NoExpectation` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.phases import decode_step, prefill
from pytest_llmserve.engine.speed_table import DECODE, PREFILL

if TYPE_CHECKING:
    from pytest_llmserve.engine.costs import StepCosts
    from pytest_llmserve.engine.speed_table import Engine, Memory
    from pytest_llmserve.hardware.spec import GpuSpec

# Of a storage scheme: the dtype that its kernels compute in, and that dtype's width.
_KERNELS: Final = {
    "fp8": ("fp8", 8),
    "mxfp8": ("fp8", 8),
    "int8": ("int8", 8),
    "nvfp4": ("fp4", 4),
    "mxfp4": ("fp4", 4),
}
_SIXTEEN_BIT: Final = ("bf16", "fp16")
_NO_NUMBER: Final = "no source states this GPU's bandwidth or its peak for the model's dtype"
WEIGHTS_READ_AT: Final = 0.75
"""Fraction of the bandwidth at which a short prompt reads the weights: that of dense decode."""
MOST_PREFILL: Final = 0.3
"""Share of a server's time in prefill above which decoding is not predicted: the few measurements
beyond took up to 2.3 times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTime:
    """An estimate in seconds: 90 % of the measurements of this class lay within."""

    low_s: float
    expected_s: float
    high_s: float
    n: int
    """Measurements behind the constants."""
    kind: str
    """What was measured: phase, models, parts and load."""
    source: str

    def plus(self, other: ExpectedTime) -> ExpectedTime:
        """One after the other; the rarer measured one decides ``n``."""
        rarer = self if self.n <= other.n else other
        return ExpectedTime(
            low_s=self.low_s + other.low_s,
            expected_s=self.expected_s + other.expected_s,
            high_s=self.high_s + other.high_s,
            n=rarer.n,
            kind=rarer.kind,
            source=rarer.source,
        )

    def times(self, factor: float) -> ExpectedTime:
        """So many of it, one after the other."""
        return ExpectedTime(
            low_s=self.low_s * factor,
            expected_s=self.expected_s * factor,
            high_s=self.high_s * factor,
            n=self.n,
            kind=self.kind,
            source=self.source,
        )


@dataclass(frozen=True, slots=True)
class NoExpectation:
    """Why nothing is expected: too little was measured, or a figure is not known."""

    reason: str


def memory_class(gpu: GpuSpec) -> Memory | None:
    """The kind of memory system that the tables tell apart; ``None``: none of them."""
    is_nvidia = gpu.vendor == "NVIDIA"
    if gpu.mig_profile is not None:
        return None
    if gpu.is_unified_memory:
        return "unified NVIDIA" if is_nvidia else None
    if gpu.memory_kind.startswith("HBM"):
        return {"NVIDIA": "HBM NVIDIA", "AMD": "HBM AMD"}.get(gpu.vendor)  # type: ignore[return-value]
    if is_nvidia and gpu.memory_kind.startswith("GDDR"):
        return "GeForce" if gpu.is_boost_guarded else "GDDR NVIDIA"
    return None


def distinct_experts(
    num_experts: int, experts_per_token: int, tokens: float, *, held: int | None = None
) -> float:
    """Experts that a batch touches if tokens choose evenly: E x (1 - (1 - k/E)^tokens).

    ``held``: of those that one rank has of the E, as many as all where ``None``.
    """
    share = 1 - (1 - experts_per_token / num_experts) ** tokens
    return float((num_experts if held is None else held) * share)


def tpot_expected(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    *,
    batch: int = 1,
    context: int = 1,
    engine: Engine = "serving",
    gpus: int | None = None,
) -> ExpectedTime | NoExpectation:
    """Time of a decode step without prefill in between.

    Args:
        costs: the model on one GPU of its tensor-parallel group.
        gpu: the part.
        compute: storage scheme or dtype of the weights (:func:`latency.compute_format`).
        batch: sequences that decode together.
        context: tokens that each holds.
        engine: kind of serving program.
        gpus: of one instance; ``None``: the tensor-parallel group.
    """
    count, memory, is_moe = gpus or costs.num_gpus, memory_class(gpu), bool(costs.experts)
    found = next(
        (
            row
            for row in DECODE
            if row.engine == engine
            and memory in row.memory
            and row.is_moe == is_moe
            and row.gpus[0] <= count <= row.gpus[1]
            and row.batch[0] <= batch <= row.batch[1]
        ),
        None,
    )
    if found is None:
        return NoExpectation(_not_measured(gpu, memory, count, is_moe, f"batch {batch:,}"))
    load = _decode_load_s(costs, gpu, compute, batch, context)
    exchange = _exchange_s(costs, gpu, batch)
    if load is None or exchange is None:
        return NoExpectation(_NO_NUMBER)
    fixed = costs.num_layers * found.layer_s + found.step_s
    return _interval(load / found.bandwidth_fraction + fixed + exchange, found)


def ttft_expected(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    *,
    prompt_tokens: int,
    cached_tokens: int = 0,
    engine: Engine = "serving",
    gpus: int | None = None,
) -> ExpectedTime | NoExpectation:
    """Time to the first token of a lone prompt; arguments as for :func:`tpot_expected`."""
    return _prefill(
        costs, gpu, compute, prompt_tokens, cached_tokens, engine, gpus, is_start_counted=True
    )


def _prefill(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    prompt_tokens: int,
    cached_tokens: int,
    engine: Engine,
    gpus: int | None,
    *,
    is_start_counted: bool,
) -> ExpectedTime | NoExpectation:
    """With the start a user waits for it; without, the GPU's own time, which holds up others."""
    count, memory, is_moe = gpus or costs.num_gpus, memory_class(gpu), bool(costs.experts)
    bits, peak = _kernel(gpu, compute)
    found = next(
        (
            row
            for row in PREFILL
            if row.engine == engine
            and memory in row.memory
            and row.is_moe == is_moe
            and row.gpus[0] <= count <= row.gpus[1]
            and row.weight_bits == bits
        ),
        None,
    )
    if found is None:
        return NoExpectation(_not_measured(gpu, memory, count, is_moe, f"{bits}-bit prefill"))
    tokens = prompt_tokens - cached_tokens
    exchange = _exchange_s(costs, gpu, tokens)
    bandwidth = gpu.hbm_safe_bytes_per_s
    if peak is None or bandwidth is None or exchange is None:
        return NoExpectation(_NO_NUMBER)
    cost = prefill(costs, prompt_tokens, cached_tokens=cached_tokens)
    compute_s = int(cost.flops) / (peak * found.mfu)
    read_s = int(cost.floor_bytes) / (bandwidth * WEIGHTS_READ_AT)  # a short prompt's weights
    start_s = found.start_s if is_start_counted else 0.0
    return _interval(max(compute_s, read_s) + start_s + exchange, found)


def loaded_tpot_expected(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    *,
    concurrency: int,
    prompt_tokens: int,
    output_tokens: int,
    engine: Engine = "serving",
    gpus: int | None = None,
) -> ExpectedTime | NoExpectation:
    """Time per output token while ``concurrency`` requests come and go.

    For every ``output_tokens`` steps each of the requests is replaced once, and its prefill holds
    up the others: step + (concurrency - 1) x prefill / output_tokens, which is step / (1 - u) with
    u the share of time in prefill.
    """
    context = prompt_tokens + output_tokens // 2
    step = tpot_expected(
        costs, gpu, compute, batch=concurrency, context=max(1, context), engine=engine, gpus=gpus
    )
    if isinstance(step, NoExpectation) or concurrency == 1:
        return step
    busy = _prefill(costs, gpu, compute, prompt_tokens, 0, engine, gpus, is_start_counted=False)
    if isinstance(busy, NoExpectation):
        return busy
    between = busy.times((concurrency - 1) / output_tokens)
    share = between.expected_s / (step.expected_s + between.expected_s)
    if share > MOST_PREFILL:
        return NoExpectation(
            f"the server would spend {share:.0%} of its time in prefill; decoding between so much "
            f"of it was not measured often enough"
        )
    return step.plus(between)


def request_expected(
    costs: StepCosts,
    gpu: GpuSpec,
    compute: str,
    *,
    concurrency: int,
    prompt_tokens: int,
    output_tokens: int,
    engine: Engine = "serving",
    gpus: int | None = None,
) -> ExpectedTime | NoExpectation:
    """Time of a whole request while ``concurrency`` of them come and go."""
    first = ttft_expected(
        costs, gpu, compute, prompt_tokens=prompt_tokens, engine=engine, gpus=gpus
    )
    token = loaded_tpot_expected(
        costs,
        gpu,
        compute,
        concurrency=concurrency,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        engine=engine,
        gpus=gpus,
    )
    if isinstance(token, NoExpectation):
        return token
    if isinstance(first, NoExpectation):
        return first
    return first.plus(token.times(max(0, output_tokens - 1)))


def _decode_load_s(
    costs: StepCosts, gpu: GpuSpec, compute: str, batch: int, context: int
) -> float | None:
    """Bytes of a step at full bandwidth, or its FLOPs at the peak where those take longer."""
    bandwidth, peak = gpu.hbm_safe_bytes_per_s, _kernel(gpu, compute)[1]
    if bandwidth is None or peak is None:
        return None
    cost = decode_step(costs, batch, context)
    moved = float(int(cost.floor_bytes))
    for experts in costs.experts:
        touched = distinct_experts(
            experts.total_experts, experts.experts_per_token, batch, held=experts.num_experts
        )
        moved += max(0.0, touched - experts.floor_experts) * experts.bytes_each
    return max(moved / bandwidth, int(cost.flops) / peak)


def _exchange_s(costs: StepCosts, gpu: GpuSpec, tokens: int) -> float | None:
    """All-reduces of tensor parallelism over the fabric, or PCIe: 2 (N - 1) / N of the bytes."""
    if costs.num_gpus == 1:
        return 0.0
    link = gpu.link_bytes_per_s or gpu.pcie_bytes_per_s
    if link is None:
        return None
    sent = 2 * (costs.num_gpus - 1) / costs.num_gpus * costs.reduced_bytes_per_token * tokens
    return sent / link


def _kernel(gpu: GpuSpec, compute: str) -> tuple[int, int | None]:
    """Width of the arithmetic, that of the weights where the GPU has it, else 16; and its peak.

    The rated dense rate: no guard, for it is what to expect and not what to exclude.
    """
    name, bits = next((k for prefix, k in _KERNELS.items() if compute.startswith(prefix)), ("", 16))
    peaks = gpu.dense_flops_per_s
    if name in peaks:
        return bits, peaks[name]
    return 16, max((peaks[kind] for kind in _SIXTEEN_BIT if kind in peaks), default=None)


def _interval(expected_s: float, row: _HasError) -> ExpectedTime:
    return ExpectedTime(
        low_s=expected_s * row.low,
        expected_s=expected_s,
        high_s=expected_s * row.high,
        n=row.n,
        kind=row.words,
        source=row.source,
    )


def _not_measured(gpu: GpuSpec, memory: Memory | None, gpus: int, is_moe: bool, what: str) -> str:
    kind = "mixture-of-experts" if is_moe else "dense"
    part = gpu.id if memory is None else f"{memory} parts"
    return f"{kind} models on {gpus} x {part} at {what} were not measured often enough"


if TYPE_CHECKING:
    from pytest_llmserve.engine.speed_table import DecodeClass, PrefillClass

    _HasError = DecodeClass | PrefillClass
