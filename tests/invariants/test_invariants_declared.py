"""LLM305 to LLM311: estimates, rates and cost; each passes, fails, is close, cannot tell."""

from typing import Any

import pytest
from judging import LLAMA_70B, judge, message, subject

import pytest_llmserve as llmserve
from pytest_llmserve.assertions import CloseToLimitWarning, InvariantError
from pytest_llmserve.engine.expected import ExpectedTime
from pytest_llmserve.invariants import invariant
from pytest_llmserve.invariants.cost import price_of
from pytest_llmserve.invariants.expectations import AtOnce, at_once, expected_request
from pytest_llmserve.policy import Facts, Slo, Workload
from pytest_llmserve.verdict import Certainty, Outcome


def load(concurrency: int = 1, prompt: int = 1000, output: int = 300, **more: Any) -> Workload:
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        concurrency=concurrency,
        **more,
    )


def limits(**slo: float) -> Facts:
    return Facts(workload=load(16), slo=Slo(**slo))


def outcome(name: str, facts: Facts, **given: object) -> tuple[Outcome, Certainty | None]:
    verdict = judge(name, facts=facts, **given)
    return verdict.outcome, verdict.certainty


@pytest.mark.parametrize(
    ("name", "key", "limits_s"),
    [
        ("tpot-expected", "tpot_expected_s", (0.025, 0.012, 0.008)),
        ("ttft-expected", "ttft_expected_s", (0.2, 0.08, 0.02)),
    ],
)
def test_an_estimate_is_never_certain(
    name: str, key: str, limits_s: tuple[float, float, float]
) -> None:
    wide, near, tight = limits_s
    assert outcome(name, limits(**{key: wide})) == (Outcome.PASSED, None)
    assert outcome(name, limits(**{key: near})) == (Outcome.FAILED, Certainty.CLOSE)
    assert outcome(name, limits(**{key: tight})) == (Outcome.FAILED, Certainty.LIKELY)
    # even far below its interval: only a floor is certain
    assert outcome(name, limits(**{key: 1e-6})) == (Outcome.FAILED, Certainty.LIKELY)


def test_an_estimate_says_so() -> None:
    text = message("tpot-expected", facts=limits(tpot_expected_s=0.008))
    assert text.startswith("LLM306 1.37x too slow (estimate): TPOT is expected at 10.9 ms (")
    assert "an estimate from 3 measurements" in text
    passed = judge("ttft-expected", facts=limits(ttft_expected_s=1.0))
    assert "(estimate)" in passed.headline


@pytest.mark.parametrize(
    ("model", "given", "reason"),
    [
        (LLAMA_70B, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, "pipeline"),
        (LLAMA_70B, {"tensor_parallel_size": 4, "enforce_eager": True}, "without CUDA graphs"),
        (
            LLAMA_70B,
            {
                "tensor_parallel_size": 4,
                "speculative_config": '{"method": "ngram", "num_speculative_tokens": 3}',
            },
            "speculative decoding",
        ),
        (
            "mistralai/Mixtral-8x7B-Instruct-v0.1",
            {"tensor_parallel_size": 2},
            "mixture-of-experts models on 2 x HBM NVIDIA parts at batch 16",
        ),
    ],
)
def test_nothing_is_expected_where_nothing_was_measured(
    model: str, given: dict[str, object], reason: str
) -> None:
    verdict = judge("tpot-expected", model, facts=limits(tpot_expected_s=1.0), **given)
    assert verdict.outcome is Outcome.CANNOT_TELL
    assert reason in verdict.headline


def test_the_releases_of_2024_have_constants_of_their_own() -> None:
    """Qwen2.5 speed tables: vLLM 0.6.3 launched slower than later ones."""
    facts = Facts(workload=load(output=1), slo=Slo(tpot_expected_s=1.0))
    old = judge("tpot-expected", facts=facts, version="0.6.3", gpu="a100-sxm-80gb")
    new = judge("tpot-expected", facts=facts, version="0.19.1", gpu="a100-sxm-80gb")
    assert old.evidence["measurements"] == 30
    assert new.evidence["measurements"] == 15


def test_a_rate_above_the_ceiling_is_refuted() -> None:
    """An 8B in 16 bit spends at least 1300 x 15 GFLOP a request: an H100 does not do 53 a second.

    15.0e9 parameters in matrices x 2 x 1299 tokens / 989.4e12 = 19.7 ms without attention.
    """
    within = judge("rate-reachable", facts=Facts(workload=load(rate_per_s=40.0)))
    assert within
    assert within.headline.startswith("40 requests/s are not refuted")
    beyond = judge("rate-reachable", facts=Facts(workload=load(rate_per_s=60.0)))
    assert (beyond.outcome, beyond.certainty) == (Outcome.FAILED, Certainty.CERTAIN)
    ceiling = float(beyond.evidence["ceiling_requests_per_s"])
    assert ceiling == pytest.approx(989.4e12 / (2 * 7.5e9 * 1300), rel=0.05)


def test_littles_law() -> None:
    """Requests in flight are the rate times the time of one, at that many in flight."""
    about = subject(facts=Facts(workload=load(rate_per_s=4.0)), max_model_len=8192)
    flight = at_once(about, 4.0)
    assert isinstance(flight, AtOnce)
    request = expected_request(about, flight.expected)
    assert isinstance(request, ExpectedTime)
    assert 4.0 * request.expected_s <= flight.expected
    fewer = expected_request(about, flight.expected - 1)
    assert isinstance(fewer, ExpectedTime)
    assert 4.0 * fewer.expected_s > flight.expected - 1
    assert flight.high is not None
    assert flight.low <= flight.expected <= flight.high


def test_a_sustained_rate() -> None:
    facts = Facts(workload=load(rate_per_s=4.0))
    roomy = judge("rate-sustained", facts=facts, max_model_len=8192)
    assert roomy
    assert "in flight; there is room for" in roomy.headline
    queues = judge("rate-sustained", facts=facts, max_model_len=8192, max_num_seqs=4)
    assert (queues.outcome, queues.certainty) == (Outcome.FAILED, Certainty.LIKELY)
    may = judge("rate-sustained", facts=facts, max_model_len=8192, max_num_seqs=16)
    assert (may.outcome, may.certainty) == (Outcome.FAILED, Certainty.CLOSE)
    open_end = judge(
        "rate-sustained",
        LLAMA_70B,
        facts=Facts(workload=load(prompt=2046, rate_per_s=0.5)),
        tensor_parallel_size=2,
        max_model_len=16_384,
    )
    assert "keep 7 (5 or more) in flight" in open_end.headline
    assert open_end.certainty in (Certainty.LIKELY, Certainty.CLOSE)
    too_many = judge("rate-sustained", facts=Facts(workload=load(rate_per_s=400.0)))
    assert too_many.outcome is Outcome.CANNOT_TELL


def test_a_batch_amortises_weights_from_some_size_on() -> None:
    small = judge("batch-amortizes-weights", facts=Facts(workload=load(8)))
    assert small.outcome is Outcome.FAILED
    enough = int(small.evidence["batch_for_half"])
    assert judge("batch-amortizes-weights", facts=Facts(workload=load(enough)))
    assert not judge("batch-amortizes-weights", facts=Facts(workload=load(enough - 1)))


def test_memory_caps_concurrency_before_compute_does() -> None:
    """A 70B on two H100 keeps few sequences of 8k tokens; the ridge asks for hundreds."""
    facts = Facts(workload=load(prompt=200, output=2))
    given = {"tensor_parallel_size": 2, "max_model_len": 8192}
    assert judge("concurrency-kv-bound", LLAMA_70B, facts=facts, **given)
    short = Facts(workload=load(prompt=64, output=2))
    roomy = judge("concurrency-kv-bound", facts=short, max_model_len=8192)
    assert (roomy.outcome, roomy.certainty) == (Outcome.FAILED, Certainty.CERTAIN)


def cost(limit: float, usd_per_gpu_hour: float | None = 2.0, **more: Any) -> Facts:
    return Facts(
        workload=load(8, **more),
        usd_per_gpu_hour=usd_per_gpu_hour,
        max_usd_per_million_tokens=limit,
    )


def test_cost() -> None:
    """$2 an hour at 2,400 tokens/s are 2 / 3600 / 2400 x 10^6 = $0.2315 a million tokens."""
    at_rate = judge("cost-within-budget", facts=cost(0.24, rate_per_s=8.0))
    assert at_rate
    assert at_rate.evidence["expected_usd"] == pytest.approx(0.23148, rel=1e-4)
    assert outcome("cost-within-budget", cost(0.23, rate_per_s=8.0)) == (
        Outcome.FAILED,
        Certainty.LIKELY,
    )
    assert outcome("cost-within-budget", cost(2.0)) == (Outcome.PASSED, None)
    assert outcome("cost-within-budget", cost(0.9)) == (Outcome.FAILED, Certainty.CLOSE)
    assert outcome("cost-within-budget", cost(0.5)) == (Outcome.FAILED, Certainty.LIKELY)
    assert outcome("cost-within-budget", cost(0.001)) == (Outcome.FAILED, Certainty.CERTAIN)


def test_prices() -> None:
    """The user's own first; else list prices with the date of the oldest, and never of a slice."""
    own = price_of(subject(facts=cost(1.0)))
    assert own is not None
    assert own.words == "$2 an hour (declared)"
    listed = price_of(subject(facts=cost(1.0, None)))
    assert listed is not None
    assert listed.words == ("$2.95 to $12.29 an hour (list prices on demand, oldest of 2026-06-18)")
    assert listed.low_usd < listed.expected_usd < listed.high_usd
    unknown = judge("cost-within-budget", gpu="rtx-4090", facts=cost(1.0, None))
    assert unknown.outcome is Outcome.CANNOT_TELL
    assert "no price is declared" in unknown.headline
    nothing = judge("cost-within-budget", facts=Facts(max_usd_per_million_tokens=1.0))
    assert nothing.headline == "cannot tell the cost: no workload is declared"


def test_decode_memory_bound_says_where_it_flips() -> None:
    facts = Facts(workload=load(32, prompt=2000, output=200))
    text = message("decode-memory-bound", facts=facts)
    assert "at 2,100 tokens of context decode is compute bound from no batch" in text
    assert "a step reads more cache than weights from 3,579 tokens on" in text
    assert "tokens/s per GPU at the floor would rise by: batch 64 1.46x" in text


def test_lengths_that_differ_are_planned_with_their_spread() -> None:
    """100 requests of 1300 +- 4000 tokens: 1300 + 3 x 4000 / 10 each, and none above 30,000."""
    facts = Facts(
        workload=Workload(
            prompt_tokens=1000,
            output_tokens=300,
            concurrency=100,
            longest_request=30_000,
            request_deviation=4000.0,
        )
    )
    assert judge("concurrency-fits", facts=facts, max_model_len=32_768).headline.startswith(
        "100 requests of 2,500 tokens fit"
    )
    short = judge("concurrency-fits", facts=facts, max_model_len=16_384)
    assert short.headline.startswith("13,616 tokens too long: a request of 30,000 exceeds")


MODEL = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100-sxm-80gb"}
SHAPE = {"prompt_tokens": 1000, "output_tokens": 300}


def test_the_verbs() -> None:
    model, gpu = MODEL["model"], MODEL["gpu"]
    llmserve.assert_tpot_expected_below(model, gpu=gpu, tpot="20ms", batch=8, context_tokens=1000)
    llmserve.assert_ttft_expected_below(model, gpu=gpu, ttft="2s", prompt_tokens=2000)
    llmserve.assert_throughput_reachable(model, gpu=gpu, requests_per_s=10, **SHAPE)
    llmserve.assert_rate_sustained(model, gpu=gpu, requests_per_s=2, max_model_len=8192, **SHAPE)
    llmserve.assert_batch_amortizes_weights(model, gpu=gpu, batch=256, context_tokens=1000)
    llmserve.assert_concurrency_kv_bound(model, gpu=gpu, context_tokens=8000)
    llmserve.assert_cost_per_million_tokens_below(
        model, gpu=gpu, usd=5, concurrency=8, usd_per_gpu_hour=2, **SHAPE
    )
    with pytest.raises(InvariantError, match=r"LLM306 .*estimate"):
        llmserve.assert_tpot_expected_below(model, gpu=gpu, tpot=0.005)
    with pytest.raises(InvariantError, match=r"LLM305 .*estimate"):
        llmserve.assert_ttft_expected_below(model, gpu=gpu, ttft=0.01, prompt_tokens=2000)
    with pytest.raises(InvariantError, match=r"LLM307 .*out of reach"):
        llmserve.assert_throughput_reachable(model, gpu=gpu, requests_per_s=1000, **SHAPE)
    with pytest.raises(InvariantError, match="LLM308"):
        llmserve.assert_batch_amortizes_weights(model, gpu=gpu, batch=2)
    with pytest.raises(InvariantError, match=r"LLM310 .*too dear"):
        llmserve.assert_cost_per_million_tokens_below(
            model, gpu=gpu, usd=0.001, concurrency=8, usd_per_gpu_hour=2, **SHAPE
        )
    with pytest.warns(CloseToLimitWarning, match="may be"):
        llmserve.assert_tpot_expected_below(model, gpu=gpu, tpot="9ms")


def test_nothing_is_checked_that_is_not_declared() -> None:
    for name in ("tpot-expected", "ttft-expected", "rate-reachable", "rate-sustained"):
        assert not invariant(name).applies(subject(facts=Facts(workload=load())))
    assert not invariant("cost-within-budget").applies(subject(facts=Facts(workload=load())))
    for name in ("batch-amortizes-weights", "concurrency-kv-bound"):
        assert not invariant(name).is_selected_by_default
