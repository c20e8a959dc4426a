"""What is expected of a server at its declared load: estimates, each with its interval and n."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.expected import (
    NoExpectation,
    loaded_tpot_expected,
    request_expected,
    tpot_expected,
    ttft_expected,
)
from pytest_llmserve.invariants.base import cannot_tell, failed, passed
from pytest_llmserve.invariants.phases import decode_batch, decode_context, prompt_tokens
from pytest_llmserve.units import format_seconds
from pytest_llmserve.verdict import Certainty

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.engine.expected import ExpectedTime
    from pytest_llmserve.engine.speed_table import Engine
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict

FIRST_MEASURED: Final = (0, 7)
"""vLLM's releases before this one (2024) have constants of their own: they launch slower."""
MOST_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """Requests in flight on one replica at the declared rate, by Little's law; an estimate."""

    low: int
    expected: int
    high: int | None
    """``None``: at the slow end so many are in flight that nothing is expected."""
    n: int

    @property
    def words(self) -> str:
        """``17 (13 to 42)``."""
        high = f"to {self.high:,}" if self.high is not None else "or more"
        return f"{self.expected:,} ({self.low:,} {high})"


@dataclass(frozen=True, slots=True)
class _Place:
    """The arguments that every expectation of a server shares."""

    gpu: GpuSpec
    compute: str
    engine: Engine
    gpus: int


def _place(subject: Subject) -> _Place | NoExpectation:
    deployment, settings = subject.deployment, subject.deployment.settings
    gpu = deployment.gpu
    assert gpu is not None, "asked only of servers whose GPU is known"
    if settings.pipeline_parallel_size.value > 1:
        return NoExpectation("servers with pipeline parallelism were not measured often enough")
    if subject.inputs.tokens_per_step(deployment) > 1:
        return NoExpectation("speculative decoding: accepted tokens differ from text to text")
    eager = getattr(settings, "enforce_eager", None)
    if eager is not None and eager.value:
        return NoExpectation("servers without CUDA graphs (--enforce-eager) were not measured")
    is_old = deployment.version.value.release[:2] < FIRST_MEASURED
    gpus = settings.tensor_parallel_size.value
    if subject.costs.experts:  # experts may lie on the GPUs of all replicas
        gpus *= settings.data_parallel_size.value
    return _Place(
        gpu=gpu,
        compute=subject.inputs.compute_format(deployment),
        engine="serving-2024" if is_old else "serving",
        gpus=gpus,
    )


def expected_token(subject: Subject) -> ExpectedTime | NoExpectation:
    """Time per output token at the declared load, with the prefills that come in between."""
    place, load = _place(subject), subject.facts.workload
    if isinstance(place, NoExpectation):
        return place
    if load is None or load.output_tokens == 1:  # a batch at a context, nothing comes or goes
        return tpot_expected(
            subject.costs,
            place.gpu,
            place.compute,
            batch=decode_batch(subject),
            context=decode_context(subject),
            engine=place.engine,
            gpus=place.gpus,
        )
    concurrency = decode_batch(subject)
    if load.rate_per_s is not None and load.concurrency == 1:
        replicas = subject.deployment.settings.data_parallel_size.value
        flight = at_once(subject, load.rate_per_s / replicas)
        if isinstance(flight, NoExpectation):
            return flight
        concurrency = flight.expected
    return loaded_tpot_expected(
        subject.costs,
        place.gpu,
        place.compute,
        concurrency=concurrency,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        engine=place.engine,
        gpus=place.gpus,
    )


def expected_first_token(subject: Subject) -> ExpectedTime | NoExpectation:
    """Time to the first token of the declared prompt, alone on the server."""
    place = _place(subject)
    if isinstance(place, NoExpectation):
        return place
    return ttft_expected(
        subject.costs,
        place.gpu,
        place.compute,
        prompt_tokens=prompt_tokens(subject),
        engine=place.engine,
        gpus=place.gpus,
    )


def expected_request(subject: Subject, concurrency: int) -> ExpectedTime | NoExpectation:
    """Time of a declared request while ``concurrency`` of them come and go on a replica."""
    place, load = _place(subject), subject.facts.workload
    assert load is not None
    if isinstance(place, NoExpectation):
        return place
    return request_expected(
        subject.costs,
        place.gpu,
        place.compute,
        concurrency=concurrency,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        engine=place.engine,
        gpus=place.gpus,
    )


def at_once(subject: Subject, rate_per_s: float) -> AtOnce | NoExpectation:
    """Requests in flight at a rate of one replica: rate x time of a request (Little, 1961).

    The time grows with the requests in flight, so the least number is sought that the rate does
    not outgrow.
    """
    low = _balance(subject, rate_per_s, lambda time: time.low_s)
    expected = _balance(subject, rate_per_s, lambda time: time.expected_s)
    high = _balance(subject, rate_per_s, lambda time: time.high_s)
    if isinstance(expected, NoExpectation):
        return expected
    request = expected_request(subject, expected)
    # the fast end needs fewer at once, of which more is known
    assert isinstance(low, int)
    assert not isinstance(request, NoExpectation)
    known_high = None if isinstance(high, NoExpectation) else high
    return AtOnce(low=low, expected=expected, high=known_high, n=request.n)


def _balance(
    subject: Subject, rate_per_s: float, seconds: Callable[[ExpectedTime], float]
) -> int | NoExpectation:
    count = 1
    while count <= MOST_AT_ONCE:
        request = expected_request(subject, count)
        if isinstance(request, NoExpectation):
            return NoExpectation(f"at {count:,} requests at once: {request.reason}")
        need = math.ceil(rate_per_s * seconds(request))
        if need <= count:
            return count
        count = need
    return NoExpectation(f"more than {MOST_AT_ONCE:,} requests at once")


def against_expectation(
    word: str, limit_s: float, found: ExpectedTime | NoExpectation, where: str
) -> Verdict:
    """Failed, likely, if the expected value lies above the limit; close if only the far end does.

    Never certain: an estimate informs, only a floor refutes.
    """
    if isinstance(found, NoExpectation):
        return cannot_tell(f"cannot tell what {word} to expect: {found.reason}")
    figures = estimate_words(found)
    evidence: dict[str, float | int | str] = {
        "expected_s": found.expected_s,
        "low_s": found.low_s,
        "high_s": found.high_s,
        "limit_s": limit_s,
        "measurements": found.n,
    }
    limit = format_seconds(limit_s)
    details = (
        f"{where}; an estimate from {found.n} measurements of {found.kind} ({found.source}), 90 % "
        f"of which lay within its interval",
    )
    if found.high_s <= limit_s:
        return passed(
            f"{word} is expected at {figures}, within {limit} (estimate)",
            details=details,
            evidence=evidence,
        )
    if found.expected_s > limit_s:
        return failed(
            f"{found.expected_s / limit_s:.2f}x too slow (estimate): {word} is expected at "
            f"{figures}, above {limit}",
            Certainty.LIKELY,
            details=details,
            evidence=evidence,
        )
    return failed(
        f"may be {found.high_s / limit_s:.2f}x too slow (estimate): {word} is expected at "
        f"{figures}, limit {limit}",
        Certainty.CLOSE,
        details=details,
        evidence=evidence,
    )


def estimate_words(found: ExpectedTime) -> str:
    """``12.3 ms (10.1 to 16.0)``."""
    low, high = format_seconds(found.low_s), format_seconds(found.high_s)
    return f"{format_seconds(found.expected_s)} ({low} to {high})"
