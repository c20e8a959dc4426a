"""LLM301 to LLM304: which roof limits a phase, and floors that refute a promise."""

import pytest
from judging import LLAMA_70B, judge, subject

from pytest_llmserve import assert_kv_cache_pays_off
from pytest_llmserve.invariants.phases import decode_floor, pays_off_from
from pytest_llmserve.policy import Facts, Slo, Workload
from pytest_llmserve.verdict import Certainty, Outcome


def facts(
    prompt: int = 512,
    concurrency: int = 1,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
) -> Facts:
    return Facts(
        workload=Workload(prompt_tokens=prompt, output_tokens=1, concurrency=concurrency),
        slo=Slo(ttft_s=ttft_s, tpot_s=tpot_s),
    )


def test_decode_is_memory_bound_until_the_batch_reaches_the_ridge() -> None:
    """The ridge of an H100 is 295 FLOP/byte; a sequence more adds one FLOP/byte."""
    assert judge("decode-memory-bound", facts=facts(concurrency=1))
    assert judge("decode-memory-bound", facts=facts(prompt=1, concurrency=256))
    verdict = judge("decode-memory-bound", facts=facts(prompt=1, concurrency=512))
    assert (verdict.outcome, verdict.certainty) == (Outcome.FAILED, Certainty.CERTAIN)
    # with long contexts the cache is read for each sequence: batching cannot reach the ridge
    assert judge("decode-memory-bound", facts=facts(prompt=8000, concurrency=512))


def test_prefill_is_compute_bound_from_about_the_ridge() -> None:
    assert judge("prefill-compute-bound", facts=facts(prompt=512))
    assert not judge("prefill-compute-bound", facts=facts(prompt=128))


def test_no_token_of_70b_comes_faster_than_its_weights_are_read() -> None:
    """70.6e9 parameters less the embedding are 139 GB: 41.5 ms at 3.35 TB/s, half with TP 2."""
    floor = decode_floor(subject(LLAMA_70B, gpu="h200-sxm-141gb"), 1, 1)
    assert floor is not None
    below = judge("tpot-reachable", LLAMA_70B, facts=facts(prompt=1, tpot_s=0.041))
    assert below.outcome is Outcome.FAILED
    assert below.headline == "1.0x out of reach: TPOT 41 ms is below the floor of 41.5 ms"
    assert judge("tpot-reachable", LLAMA_70B, facts=facts(prompt=1, tpot_s=0.042))
    two = judge(
        "tpot-reachable", LLAMA_70B, facts=facts(prompt=1, tpot_s=0.021), tensor_parallel_size=2
    )
    assert two
    assert two.headline.startswith("TPOT 21 ms is not refuted: the floor is 20.")


def test_time_to_first_token() -> None:
    refuted = judge("ttft-reachable", LLAMA_70B, facts=facts(prompt=8000, ttft_s=0.5))
    assert refuted.certainty is Certainty.CERTAIN
    assert "TFLOP must be computed per GPU" in refuted.details[0]
    assert judge("ttft-reachable", LLAMA_70B, facts=facts(prompt=8000, ttft_s=2.0))


def test_speculation_divides_the_floor() -> None:
    spec = '{"method": "ngram", "num_speculative_tokens": 3}'
    plain = judge("tpot-reachable", facts=facts(tpot_s=1.0)).evidence["floor_s"]
    fast = judge("tpot-reachable", facts=facts(tpot_s=1.0), speculative_config=spec)
    assert fast.evidence["floor_s"] == pytest.approx(float(plain) / 4)


def test_a_gpu_without_figures_has_no_floor() -> None:
    """No source states a 16-bit peak of the B100."""
    verdict = judge("tpot-reachable", gpu="b100", facts=facts(tpot_s=1.0))
    assert verdict.outcome is Outcome.CANNOT_TELL


def test_from_which_length_a_kv_cache_pays() -> None:
    start = pays_off_from(subject())
    assert start is not None
    assert 250 < start < 350
    given = {"gpu": "h100-sxm-80gb"}
    assert_kv_cache_pays_off("meta-llama/Llama-3.1-8B-Instruct", tokens=start, **given)
    with pytest.raises(AssertionError, match="does not pay at 128 tokens: from"):
        assert_kv_cache_pays_off("meta-llama/Llama-3.1-8B-Instruct", tokens=128, **given)
