"""Dollars for a million output tokens: GPU hours over tokens an hour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.expected import NoExpectation
from pytest_llmserve.invariants.expectations import expected_request
from pytest_llmserve.invariants.phases import decode_batch, rate_ceiling

if TYPE_CHECKING:
    from pytest_llmserve.subject import Subject

SECONDS_AN_HOUR: Final = 3600
MILLION: Final = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Of one GPU, in dollars an hour; an interval where it is a list price of several providers."""

    low_usd: float
    expected_usd: float
    high_usd: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Dollars for a million output tokens."""

    low_usd: float
    expected_usd: float
    high_usd: float
    words: str


def price_of(subject: Subject) -> Price | None:
    """The declared price, else the catalogue's list prices with their date; ``None``: neither.

    Of list prices the geometric mean is expected, since they differ by factors.
    """
    own = subject.facts.usd_per_gpu_hour
    if own is not None:
        words = f"${own:g} an hour (declared)"
        return Price(low_usd=own, expected_usd=own, high_usd=own, words=words)
    gpu = subject.deployment.gpu
    if gpu is None or gpu.price is None:
        return None
    low, high = gpu.price.low_usd_per_hour, gpu.price.high_usd_per_hour
    since = f", oldest of {gpu.price.date}" if gpu.price.date else ""
    words = f"${low:g} to ${high:g} an hour (list prices on demand{since})"
    return Price(low_usd=low, expected_usd=math.sqrt(low * high), high_usd=high, words=words)


def server_gpus(subject: Subject) -> int:
    """GPUs of the server, all its data-parallel replicas together."""
    return subject.deployment.settings.world_size


def cost_floor_usd(subject: Subject, price: Price) -> float | None:
    """Cost at a throughput that no hardware exceeds, at the lowest price."""
    load = subject.facts.workload
    ceiling = rate_ceiling(subject)
    if load is None or ceiling is None:
        return None
    replicas = subject.deployment.settings.data_parallel_size.value
    return _usd(subject, price.low_usd, ceiling.output_tokens_per_s * replicas)


def expected_cost_usd(subject: Subject, price: Price) -> Cost | NoExpectation:
    """Cost at the declared rate, or else with the declared number of requests always in flight."""
    load = subject.facts.workload
    assert load is not None
    if load.rate_per_s is not None:
        tokens = load.rate_per_s * load.output_tokens
        words = f"{tokens:,.0f} output tokens/s at the declared {load.rate_per_s:g} requests/s"
        low = expected = high = tokens
    else:
        batch = decode_batch(subject)
        request = expected_request(subject, batch)
        if isinstance(request, NoExpectation):
            return request
        replicas = subject.deployment.settings.data_parallel_size.value
        done = batch * load.output_tokens * replicas
        low, expected, high = (
            done / time_s for time_s in (request.high_s, request.expected_s, request.low_s)
        )
        words = (
            f"{expected:,.0f} output tokens/s expected ({low:,.0f} to {high:,.0f}) with "
            f"{load.concurrency:,} requests always in flight; an estimate from {request.n} "
            f"measurements"
        )
    return Cost(
        low_usd=_usd(subject, price.low_usd, high),
        expected_usd=_usd(subject, price.expected_usd, expected),
        high_usd=_usd(subject, price.high_usd, low),
        words=words,
    )


def _usd(subject: Subject, usd_per_gpu_hour: float, tokens_per_s: float) -> float:
    per_s = usd_per_gpu_hour * server_gpus(subject) / SECONDS_AN_HOUR
    return per_s / tokens_per_s * MILLION
