"""Where a server's bottleneck flips, what lies idle, and what each lever would gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmserve.engine.crossover import (
    amortised_share,
    compute_bound_batch,
    kv_overtakes_weights_context,
)
from pytest_llmserve.engine.roofline import utilisation
from pytest_llmserve.invariants.fixes import MAX_TENSOR_PARALLEL_SIZE
from pytest_llmserve.invariants.phases import decode_floor, rates, requests_that_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_llmserve.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change, and by what factor it raises the floor's throughput per GPU."""

    change: str
    gain: float


def flips(subject: Subject, batch: int, context: int) -> Iterator[str]:
    """Sentences about the crossings around a decode step."""
    found, floor = rates(subject), decode_floor(subject, batch, context)
    if found is None or floor is None:
        return
    peak, bandwidth = found
    turns = compute_bound_batch(subject.costs, peak, bandwidth, context)
    held = requests_that_fit(subject, context)
    ridge = "no batch" if turns is None else f"batch {turns:,} on"
    room = "" if held is None else f"; the KV cache holds {held.expected:,}"
    yield f"at {context:,} tokens of context decode is compute bound from {ridge}{room}"
    crossing = kv_overtakes_weights_context(subject.costs, batch)
    if crossing is not None:
        yield f"at batch {batch:,} a step reads more cache than weights from {crossing:,} tokens on"
    used = utilisation(floor.intensity_flop_per_byte, peak, bandwidth)
    share = amortised_share(subject.costs, peak, bandwidth, batch, context)
    yield (
        f"at most {used:.1%} of the peak FLOP/s can be used; {share:.0%} of the throughput that "
        f"batching can give"
    )
    gains = sorted(levers(subject, batch, context), key=lambda lever: -lever.gain)
    if gains:
        words = ", ".join(f"{lever.change} {lever.gain:.2f}x" for lever in gains)
        yield f"tokens/s per GPU at the floor would rise by: {words}"


def levers(subject: Subject, batch: int, context: int) -> Iterator[Lever]:
    """What twice the batch, fewer bits and more GPUs do to tokens/s per GPU at the floor."""
    now = decode_floor(subject, batch, context)
    twice = decode_floor(subject, 2 * batch, context)
    if now is None or twice is None:
        return
    yield Lever(change=f"batch {2 * batch:,}", gain=2 * now.floor_s / twice.floor_s)
    settings = subject.deployment.settings
    if settings.quantization.value is None:
        yield from _changed(subject, batch, context, "--quantization fp8", {"quantization": "fp8"})
    if settings.kv_cache_dtype.value == "auto":
        flags = {"kv_cache_dtype": "fp8"}
        yield from _changed(subject, batch, context, "--kv-cache-dtype fp8", flags)
    size = settings.tensor_parallel_size.value
    if 2 * size <= MAX_TENSOR_PARALLEL_SIZE:
        yield from _changed(
            subject,
            batch,
            context,
            f"--tensor-parallel-size {2 * size}",
            {"tensor_parallel_size": 2 * size},
            gpus=2,
        )


def _changed(
    subject: Subject,
    batch: int,
    context: int,
    change: str,
    flags: Mapping[str, object],
    *,
    gpus: int = 1,
) -> Iterator[Lever]:
    """The lever, where the runtime would start with it."""
    now = decode_floor(subject, batch, context)
    other = subject.changed(flags, gpus * subject.deployment.settings.world_size)
    if now is None or other.deployment.refusals:
        return
    floor = decode_floor(other, batch, context)
    if floor is not None:
        yield Lever(change=change, gain=now.floor_s / floor.floor_s / gpus)
