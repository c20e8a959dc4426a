"""What the pictures show, as plain figures: nothing here knows matplotlib."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.roofline import attainable_flops_per_s
from pytest_llmserve.invariants.phases import (
    decode_batch,
    decode_context,
    decode_floor,
    prefill_floor,
    prompt_tokens,
    rates,
)
from pytest_llmserve.sweeps import Kind
from pytest_llmserve.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_llmserve.engine.latency import Floor
    from pytest_llmserve.subject import Subject

MAP_POINTS: Final = 96
SHORTEST_CONTEXT: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The two limits of a GPU for one dtype."""

    label: str
    peak_flops_per_s: int
    bytes_per_s: int

    @property
    def ridge_flop_per_byte(self) -> float:
        """Where they meet."""
        return self.peak_flops_per_s / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePoint:
    """A phase of a server under its roof: the most FLOP/s that its intensity lets it reach."""

    server: str
    phase: str
    roof: Roof
    intensity_flop_per_byte: float

    @property
    def flops_per_s(self) -> float:
        """On the roof."""
        return attainable_flops_per_s(
            self.intensity_flop_per_byte, self.roof.peak_flops_per_s, self.roof.bytes_per_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VramBar:
    """Where the memory of one GPU goes, in GiB."""

    label: str
    parts: tuple[tuple[str, float], ...]
    budget_gib: float
    total_gib: float
    short_gib: float
    """By how much weights and overheads alone exceed the budget; 0 where they do not."""


@dataclass(frozen=True, kw_only=True)
class CapacityMap:
    """Which workloads a server carries, with the declared one."""

    label: str
    kind: Kind
    declared: tuple[int, int] | None
    """Context and concurrency of the declared workload."""


def phase_points(subjects: Iterable[Subject]) -> list[PhasePoint]:
    """Prefill and decode of each server; servers whose GPU's rates are unknown are left out."""
    return [point for subject in subjects for point in _points(subject)]


def _points(subject: Subject) -> Iterator[PhasePoint]:
    deployment = subject.deployment
    if deployment.model is None or deployment.gpu is None or deployment.refusals:
        return
    found = rates(subject)
    if found is None:
        return
    peak, bandwidth = found
    compute = subject.inputs.compute_format(deployment)
    roof = Roof(
        label=f"{deployment.gpu.id}, {compute}", peak_flops_per_s=peak, bytes_per_s=bandwidth
    )
    batch, context, tokens = decode_batch(subject), decode_context(subject), prompt_tokens(subject)
    phases: list[tuple[str, Floor | None]] = [
        (f"decode, batch 1, {context:,} tokens", decode_floor(subject, 1, context)),
    ]
    if batch > 1:
        floor = decode_floor(subject, batch, context)
        phases.append((f"decode, batch {batch:,}, {context:,} tokens", floor))
    phases.append((f"prefill, {tokens:,} tokens", prefill_floor(subject, tokens)))
    for phase, floor in phases:
        if floor is not None:
            yield PhasePoint(
                server=deployment.name,
                phase=phase,
                roof=roof,
                intensity_flop_per_byte=floor.intensity_flop_per_byte,
            )


def vram_bar(subject: Subject) -> VramBar | None:
    """The ledger of the fullest GPU; ``None`` where it cannot be told."""
    vram, deployment = subject.plan.vram, subject.deployment
    if vram is None or deployment.gpu is None:
        return None
    left = vram.kv_available_bytes.expected
    parts = [
        ("weights", vram.weights_bytes.expected),
        ("activations", vram.activations_bytes.expected),
        ("outside torch", vram.non_torch_bytes.expected),
        ("CUDA graphs", vram.graphs_bytes.expected),
        ("KV cache", max(0, left)),
    ]
    return VramBar(
        label=f"{deployment.name}\n{deployment.settings.world_size} x {deployment.gpu.id}",
        parts=tuple((name, size / GIB) for name, size in parts),
        budget_gib=vram.budget_bytes.expected / GIB,
        total_gib=vram.gpu_total_bytes.expected / GIB,
        short_gib=max(0, -left) / GIB,
    )


def capacity(subject: Subject) -> CapacityMap | None:
    """The grid of a server; ``None`` where it cannot be told (or over pipeline stages)."""
    settings, deployment = subject.deployment.settings, subject.deployment
    longest = settings.max_model_len.value
    is_told = subject.plan.vram is not None and subject.plan.kv is not None
    if not is_told or longest is None or deployment.refusals or deployment.gpu is None:
        return None
    if settings.pipeline_parallel_size.value > 1:
        return None
    most = settings.max_num_seqs.value * settings.data_parallel_size.value
    load = subject.facts.workload
    declared = None if load is None else (load.tokens_per_request, load.concurrency)
    contexts = _spread(min(SHORTEST_CONTEXT, longest), max(longest, declared[0] if declared else 1))
    counts = _spread(1, max(most, declared[1] if declared else 1))
    return CapacityMap(
        label=f"{deployment.name}, {settings.world_size} x {deployment.gpu.id}",
        kind=Kind(subject=subject, contexts=contexts, concurrencies=counts),
        declared=declared,
    )


def _spread(low: int, high: int) -> tuple[int, ...]:
    """Whole numbers from low to a quarter above high, evenly on a logarithmic scale."""
    top = max(low + 1, high + high // 4)
    ratio = (top / low) ** (1 / (MAP_POINTS - 1))
    return tuple(sorted({round(low * ratio**step) for step in range(MAP_POINTS)}))
