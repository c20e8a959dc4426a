"""What this team wants to hold for its servers, beyond what the files are checked for."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmserve import assert_decode_memory_bound, kv_cache_fits

MANIFEST = Path(__file__).parent.parent / "deploy" / "reasoner.yaml"


@pytest.fixture
def llmserve_gpu():
    """The GPU of every server that a test describes without naming one."""
    return "h100-sxm-80gb"


@pytest.fixture
def reasoner(llmserve):
    (server,) = llmserve.read(MANIFEST)
    return server


def test_the_reasoner_starts(llmserve, reasoner):
    llmserve.assert_starts(reasoner)


def test_sixteen_engineers_at_once(llmserve, reasoner):
    llmserve.assert_concurrency_at_least(
        reasoner, concurrency=8, prompt_tokens=1500, output_tokens=500
    )


def test_the_promise_is_physical(llmserve, reasoner):
    llmserve.assert_tpot_reachable(reasoner, tpot="40ms", batch=8, context_tokens=2000)
    llmserve.assert_ttft_reachable(reasoner, ttft="500ms", prompt_tokens=1500)


@pytest.mark.llmserve(model="Qwen/Qwen3-8B", max_model_len=32768)
def test_the_small_one_would_do(kv_cache_fits):
    verdict = kv_cache_fits()
    assert verdict, verdict.headline


def test_batching_stays_free(llmserve, reasoner):
    assert_decode_memory_bound(reasoner, batch=64, context_tokens=2000)


@settings(max_examples=25, deadline=None)
@given(longer=st.integers(1024, 40960), shorter=st.integers(1024, 40960))
def test_a_shorter_context_never_breaks_what_a_longer_one_passes(longer, shorter):
    shorter, longer = sorted((shorter, longer))
    verdicts = [
        kv_cache_fits("Qwen/Qwen3-8B", gpu="l4", version="0.19.1", max_model_len=length)
        for length in (shorter, longer)
    ]
    assert verdicts[0] or not verdicts[1]
