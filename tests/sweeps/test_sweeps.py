"""A sweep says of each cell what the invariants say of that server with that workload."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmserve import sweep
from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.invariants import invariant
from pytest_llmserve.invariants.phases import decode_floor
from pytest_llmserve.policy import Facts, Policy, Workload
from pytest_llmserve.subject import Subject
from pytest_llmserve.sweeps import Fit, Kind
from pytest_llmserve.verdict import Certainty, Outcome, Verdict

CONTEXTS = (1, 15, 16, 17, 1000, 5000, 20_000, 60_000, 131_072, 200_000)
CONCURRENCIES = (1, 2, 3, 7, 16, 40, 100, 256, 500, 2000)
SWEEPS = {
    model: sweep(
        model,
        gpus=("h100-sxm-80gb", "l40s"),
        contexts=CONTEXTS,
        concurrencies=CONCURRENCIES,
        tensor_parallel_sizes=(1, 2),
        kv_cache_dtypes=("auto", "fp8"),
        version="0.19.1",
        max_num_seqs=512,
        max_num_batched_tokens=8192,
    )
    for model in (
        "meta-llama/Llama-3.1-8B-Instruct",
        "google/gemma-2-9b-it",
        "Qwen/Qwen2.5-32B-Instruct",
        "deepseek-ai/DeepSeek-V2-Lite",
    )
}
KINDS = [kind for found in SWEEPS.values() for kind in found.kinds]


def with_load(kind: Kind, context: int, concurrency: int) -> Subject:
    load = Workload(prompt_tokens=context, output_tokens=0, concurrency=concurrency)
    return Subject(kind.subject.inputs, Facts(workload=load))


def as_fit(verdict: Verdict) -> Fit:
    if verdict.outcome is Outcome.CANNOT_TELL:
        return Fit.UNKNOWN
    if verdict.outcome is Outcome.PASSED:
        return Fit.FITS
    return Fit.CLOSE if verdict.certainty is Certainty.CLOSE else Fit.DOES_NOT_FIT


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(0, len(CONTEXTS) - 1),
    st.integers(0, len(CONCURRENCIES) - 1),
)
def test_a_cell_is_the_verdict_of_that_workload(kind: Kind, row: int, column: int) -> None:
    about = with_load(kind, CONTEXTS[row], CONCURRENCIES[column])
    verdict = invariant("concurrency-fits").judge(about)
    assert kind.fit[row, column] == as_fit(verdict), (kind.label, verdict.headline)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(0, len(CONTEXTS) - 1),
    st.integers(0, len(CONCURRENCIES) - 1),
)
def test_a_floor_is_that_of_the_step(kind: Kind, row: int, column: int) -> None:
    floor = decode_floor(kind.subject, CONCURRENCIES[column], CONTEXTS[row])
    floors = kind.tpot_floor_s
    assert floor is not None
    assert floors is not None
    assert floors[row, column] == pytest.approx(floor.floor_s, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.label)
def test_less_load_never_fits_worse(kind: Kind) -> None:
    fit = kind.fit
    assert (fit[:-1] >= fit[1:]).all()
    assert (fit[:, :-1] >= fit[:, 1:]).all()


def test_the_frontier_is_the_largest_context_that_fits() -> None:
    kind = SWEEPS["meta-llama/Llama-3.1-8B-Instruct"].kinds[0]
    frontier = kind.frontier()
    assert frontier[2000] == 0  # max_num_seqs is 512
    for concurrency, context in frontier.items():
        column = CONCURRENCIES.index(concurrency)
        for row, length in enumerate(CONTEXTS):
            assert (kind.fit[row, column] == Fit.FITS) <= (length <= context)
    values = list(frontier.values())
    assert values == sorted(values, reverse=True)
    assert values[0] == 131_072


def test_the_cheapest_that_passes() -> None:
    """At the declared prices: an L40S for $1, an H100 for $3."""
    found = SWEEPS["meta-llama/Llama-3.1-8B-Instruct"]
    small = found.cheapest(context=5000, concurrency=16)
    assert small is not None
    assert small.gpu.id == "l40s"
    fast = found.cheapest(context=5000, concurrency=16, tpot_s=0.012)
    assert fast is not None
    assert fast.gpu.id == "h100-sxm-80gb" or fast.gpu_count == 2
    assert found.cheapest(context=131_072, concurrency=500) is None
    assert found.cheapest(context=5000, concurrency=1, tpot_s=1e-6) is None
    every = list(found.passing(context=5000, concurrency=16))
    assert small.usd_per_hour == min(kind.usd_per_hour or 1e9 for kind in every)


def test_own_prices_come_first() -> None:
    serve = LlmServe(replace(Policy(), facts=Facts(usd_per_gpu_hour=1.5)))
    found = sweep(
        "meta-llama/Llama-3.1-8B-Instruct",
        gpus=["rtx-4090"],
        contexts=[1000],
        concurrencies=[1],
        tensor_parallel_sizes=[2],
        serve=serve,
    )
    assert found.kinds[0].usd_per_hour == 3.0


def test_what_does_not_start_fits_nowhere() -> None:
    """32 attention heads do not divide by 3."""
    found = sweep(
        "meta-llama/Llama-3.1-8B-Instruct",
        gpus=["h100-sxm-80gb"],
        contexts=[100],
        concurrencies=[1],
        tensor_parallel_sizes=[3],
    )
    (kind,) = found.kinds
    assert kind.why_not == "32 attention heads cannot be split over tensor parallel size 3"
    assert kind.fit.tolist() == [[Fit.DOES_NOT_FIT]]
    assert kind.tpot_floor_s is None
    assert kind.frontier() == {1: 0}


def test_what_is_not_known_is_not_told() -> None:
    found = sweep(
        "meta-llama/Llama-3.1-8B-Instruct", gpus=["b100"], contexts=[100], concurrencies=[1]
    )
    (kind,) = found.kinds
    assert kind.why_not
    assert kind.fit.tolist() == [[Fit.UNKNOWN]]
    assert found.cheapest(context=100, concurrency=1) is None


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"contexts": []}, "contexts must be numbers from 1 on, got []"),
        ({"concurrencies": [0]}, "concurrencies must be numbers from 1 on, got [0]"),
        ({"gpus": []}, "an axis is empty"),
        ({"pipeline_parallel_size": 2}, "without pipeline parallelism"),
    ],
)
def test_an_axis_that_is_none(axes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"gpus": ["h100-sxm-80gb"], "contexts": [1], "concurrencies": [1]}
    with pytest.raises(ValueError) as error:  # noqa: PT011  (the text is what is tested)
        sweep("meta-llama/Llama-3.1-8B-Instruct", **(given | axes))
    assert message in str(error.value)


def test_a_cell_outside_is_named() -> None:
    found = SWEEPS["meta-llama/Llama-3.1-8B-Instruct"]
    with pytest.raises(ValueError, match="context 42 is not in the sweep: 1 to 200,000"):
        found.cheapest(context=42, concurrency=1)
