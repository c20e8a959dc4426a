"""LLM101 to LLM104: one that passes, one that fails, the boundary, one that cannot be told."""

from dataclasses import replace

import pytest
from judging import LLAMA_8B, LLAMA_70B, judge, message, subject

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.invariants import invariant
from pytest_llmserve.policy import Facts, Workload, parse_budget
from pytest_llmserve.subject import Subject
from pytest_llmserve.units import GIB
from pytest_llmserve.verdict import Certainty, Outcome

BLOCK_BYTES = 2 * 1024 * 1024
"""Of Llama-3.1-8B: 16 tokens x 131,072 B."""


def test_weights_fit_and_do_not() -> None:
    assert judge("weights-fit")
    verdict = judge("weights-fit", LLAMA_70B)
    assert (verdict.id, verdict.outcome) == ("LLM101", Outcome.FAILED)
    assert verdict.certainty is Certainty.CERTAIN
    assert verdict.details == (
        "the server says: torch.OutOfMemoryError: CUDA out of memory (while loading)",
    )
    assert [fix.change for fix in verdict.fixes] == [
        "--tensor-parallel-size 4",
        "a larger GPU: b300-sxm-288gb",
    ]


def test_weights_that_fit_the_device_but_not_the_budget() -> None:
    """15 GiB of weights, 14.4 GiB usable: it is the profile run that leaves nothing."""
    verdict = judge("weights-fit", gpu="l4", gpu_memory_utilization=0.66, max_model_len=8192)
    assert verdict.details == ("the server says: No available memory for the cache blocks.",)
    assert verdict.fixes[0].change == "--gpu-memory-utilization 0.95"


def test_kv_cache_at_its_exact_boundary() -> None:
    """131,072 tokens need 16 GiB to the byte; before 0.29 no block is reserved."""
    exact = {"max_model_len": 131072, "kv_cache_memory_bytes": 16 * GIB}
    assert judge("kv-cache-fits", **exact)
    less = judge("kv-cache-fits", **{**exact, "kv_cache_memory_bytes": 16 * GIB - 1})
    assert (less.outcome, less.certainty) == (Outcome.FAILED, Certainty.CERTAIN)
    assert less.margin_bytes is not None
    assert less.margin_bytes.is_exact
    assert less.fixes[0].change == "--max-model-len 131056"


def test_the_null_block_of_later_versions() -> None:
    """vLLM 0.32.0 itself refuses this pool: needs 16.0, has 16.0 GiB, estimate 131056."""
    exact = {"max_model_len": 131072, "kv_cache_memory_bytes": 16 * GIB, "version": "0.32.0"}
    verdict = judge("kv-cache-fits", **exact)
    assert verdict.outcome is Outcome.FAILED
    assert "(16.0 GiB KV cache is needed" in verdict.details[0]
    assert verdict.details[0].endswith("the estimated maximum model length is 131056.")
    assert judge("kv-cache-fits", **{**exact, "kv_cache_memory_bytes": 16 * GIB + BLOCK_BYTES})


def test_certainty_follows_the_error_bar() -> None:
    """What is left is an interval; need moves through it as the context grows."""
    vram = subject(gpu="l4").plan.vram
    assert vram is not None
    left = vram.kv_available_bytes
    assert left.low < left.expected < left.high

    def at(size_bytes: int) -> Certainty | None:
        # an L4 gets its max_num_batched_tokens from its memory, so length changes only the need
        return judge("kv-cache-fits", gpu="l4", max_model_len=size_bytes // 131072).certainty

    assert at(left.low - BLOCK_BYTES) is None
    assert at((left.low + left.expected) // 2) is Certainty.CLOSE
    assert at((left.expected + left.high) // 2) is Certainty.LIKELY
    assert at(left.high + BLOCK_BYTES) is Certainty.CERTAIN


def test_every_fix_passes_when_it_is_applied() -> None:
    about = subject(LLAMA_70B, tensor_parallel_size=2, gpu_memory_utilization=0.95)
    verdict = invariant("kv-cache-fits").judge(about)
    flags = {
        "--max-model-len": ("max_model_len", int),
        "--quantization": ("quantization", str),
        "--tensor-parallel-size": ("tensor_parallel_size", int),
        "--kv-cache-dtype": ("kv_cache_dtype", str),
    }
    assert len(verdict.fixes) >= 3
    for fix in verdict.fixes:
        if fix.change.startswith("a larger GPU: "):
            other = load_gpu(fix.change.removeprefix("a larger GPU: "))
            assert invariant("kv-cache-fits").judge(about.changed({}, gpu=other))
            continue
        flag, text = fix.change.split()
        dest, kind = flags[flag]
        again = about.changed({dest: kind(text)}, 8)
        assert invariant("kv-cache-fits").judge(again), fix
        assert not again.deployment.refusals


def load(concurrency: int, prompt: int = 4000, output: int = 96) -> Facts:
    return Facts(
        workload=Workload(concurrency=concurrency, prompt_tokens=prompt, output_tokens=output)
    )


def test_concurrency_at_its_exact_boundary() -> None:
    """4,096 tokens of Llama-3.1-8B are half a GiB: eight of them fill 4 GiB."""
    pool = {"kv_cache_memory_bytes": 4 * GIB, "max_model_len": 8192}
    verdict = judge("concurrency-fits", facts=load(8), **pool)
    assert verdict
    assert verdict.evidence["requests_at_once"] == 8
    nine = judge("concurrency-fits", facts=load(9), **pool)
    assert nine.certainty is Certainty.CERTAIN
    assert nine.headline.startswith("short of 0.50 GiB per GPU: 9 requests of 4,096 tokens need")
    assert nine.fixes


def test_a_request_that_is_too_long_and_a_queue() -> None:
    verdict = judge("concurrency-fits", facts=load(1, 8192, 100), max_model_len=8192)
    assert verdict.headline == "100 tokens too long: a request of 8,292 exceeds max_model_len 8,192"
    assert verdict.fixes[0].change == "--max-model-len 8292"
    verdict = judge("concurrency-fits", facts=load(17), max_model_len=8192, max_num_seqs=16)
    assert verdict.headline == "1 of 17 requests wait: max_num_seqs is 16"
    assert verdict.fixes[0].change == "--max-num-seqs 17"
    assert judge("concurrency-fits", facts=load(16), max_model_len=8192, max_num_seqs=16)


def test_without_a_workload_it_does_not_apply() -> None:
    assert not invariant("concurrency-fits").applies(subject())
    assert not invariant("vram-within-budget").applies(subject())
    assert not invariant("ttft-reachable").applies(subject())
    assert not invariant("tpot-reachable").applies(subject())


def test_vram_within_a_share_and_a_size() -> None:
    """0.9 of the GPU is taken whole, and before 0.20 the graphs come on top of it."""

    def at(budget: str, **given: object) -> Certainty | None:
        facts = Facts(vram_budget=parse_budget(budget))
        return judge("vram-within-budget", facts=facts, **given).certainty

    assert at("100%") is None
    assert at("90%", enforce_eager=True) is None
    assert at("89.9%", enforce_eager=True) is Certainty.CERTAIN
    assert at("90%") is not None
    assert at("72GiB", enforce_eager=True) is None
    assert at("71GiB", enforce_eager=True) is Certainty.CERTAIN


def test_a_budget_counts_what_a_stated_pool_takes() -> None:
    facts = Facts(vram_budget=parse_budget("30GiB"))
    pool = {"kv_cache_memory_bytes": 4 * GIB, "max_num_seqs": 64, "max_model_len": 8192}
    assert judge("vram-within-budget", facts=facts, **pool)
    assert not judge("vram-within-budget", facts=facts, max_num_seqs=64)


@pytest.mark.parametrize("name", ["weights-fit", "kv-cache-fits"])
def test_what_is_not_known_is_told_as_such(name: str) -> None:
    about = subject()
    assert about.inputs.gpu is not None
    blind = replace(about.inputs, gpu=replace(about.inputs.gpu, memory_total_bytes=None))
    verdict = invariant(name).judge(Subject(blind, Facts()))
    assert verdict.outcome is Outcome.CANNOT_TELL
    assert verdict.blocked_by == "gpu-known"
    draft = '{"method": "eagle3", "model": "acme/eagle", "num_speculative_tokens": 2}'
    verdict = judge(name, speculative_config=draft)
    assert verdict.outcome is Outcome.CANNOT_TELL
    assert "draft model" in verdict.headline


@pytest.mark.parametrize("given", [{}, {"model": LLAMA_70B}, {"gpu": "l4"}, {"gpu": "t4"}])
def test_a_message_is_short_and_plain(given: dict[str, str]) -> None:
    for name in ("weights-fit", "kv-cache-fits"):
        text = message(name, **{"max_model_len": 131072, **given})
        lines = text.splitlines()
        assert len(lines) <= 25
        assert all(len(line) <= 110 for line in lines), text
        assert text.isascii()


def test_the_smallest_gpu_of_several_decides() -> None:
    """A server that may be scheduled on two kinds of GPU has to pass on both."""
    from pytest_llmserve.policy import Policy
    from pytest_llmserve.servers.server import Server

    both = (subject(max_model_len=65536), subject(gpu="l4", max_model_len=65536))
    server = Server(name="chat", location=None, policy=Policy(), subjects=both)
    verdict, about = server.worst(invariant("kv-cache-fits"))
    assert verdict.outcome is Outcome.FAILED
    assert about.deployment.gpu is not None
    assert about.deployment.gpu.id == "l4"
    assert LLAMA_8B in message("kv-cache-fits", gpu="l4")
