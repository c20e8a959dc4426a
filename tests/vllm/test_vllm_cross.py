"""Cross attention: what vLLM keeps of an encoder's output, held against what servers printed.

Logs of ``vllm serve openai/whisper-large-v3`` in public files that a text search found (the index
does not name their repositories): 0.15.1 on one card with 10.14 GiB for the cache, 0.17.0 on four
with 16.47 GiB, and one of May 2026 (a default utilisation of 0.92, so 0.20 or later) with 16.9 GiB;
2,048 batched tokens each. Rules: the wheels of 0.10.2, 0.11.0 to 0.14.0, 0.19.0, 0.25.1, 0.32.0 and
0.33.0, read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.version import Version
from serving import refused, rules, settle

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.runtimes.vllm.args import ParsedArgs
from pytest_llmserve.runtimes.vllm.plan import make_plan, stage_pools
from pytest_llmserve.runtimes.vllm.traits import attention_type, longest_encoder_input
from pytest_llmserve.runtimes.vllm.unmodelled import unmodelled
from pytest_llmserve.runtimes.vllm.weights import weight_bytes
from pytest_llmserve.units import GIB, MIB
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Plan
    from pytest_llmserve.runtimes.vllm.kv_pool import RankPool


def whisper(name: str = "large-v3") -> ModelSpec:
    found = find_in_catalogue(f"openai/whisper-{name}")
    assert found is not None
    return found


LARGE = whisper()


def pool(line: str = "", version: str = "0.32.0", gpu: str = "l4") -> RankPool:
    settings = settle(line, version=version, gpu=gpu, of=LARGE)
    return stage_pools(settings, version=Version(version), model=LARGE, gpu=load_gpu(gpu))[0]


def plan(line: str = "", gpu: str = "h100-sxm-80gb") -> Plan:
    settings = settle(line, version="0.32.0", gpu=gpu, of=LARGE)
    return make_plan(settings, version=Version("0.32.0"), model=LARGE, gpu=load_gpu(gpu))


@pytest.mark.parametrize(
    ("version", "tp", "blocks", "gib", "tokens", "concurrency"),
    [
        ("0.15.1", 1, 4_153, 10.14, 33_216, 26.62),
        ("0.17.0", 4, 26_990, 16.47, 215_920, 173.01),
        ("0.25.1", 1, 6_923, 16.90, 19_881, 44.38),
    ],
)
def test_what_servers_printed(
    version: str, tp: int, blocks: int, gib: float, tokens: int, concurrency: float
) -> None:
    found = pool(f"--tensor-parallel-size {tp}", version)
    assert found.num_blocks(round((gib - 0.005) * GIB)) <= blocks
    assert found.num_blocks(round((gib + 0.005) * GIB)) >= blocks
    printed, times = found.capacity(blocks, 448)
    assert (printed, round(times, 2)) == (tokens, concurrency)


@pytest.mark.parametrize(("tp", "gib"), [(1, 2.88), (4, 0.83)])
def test_model_loading_took(tp: int, gib: float) -> None:
    settings = settle(f"--tensor-parallel-size {tp}", gpu="l4", of=LARGE)
    loaded = weight_bytes(settings, LARGE, None, version=Version("0.32.0"))
    # A log counts whole allocator blocks: up to 0.4 % or a few MiB more.
    assert 0 <= gib * GIB - loaded.total < 16 * MIB


def test_two_groups_of_equal_pages() -> None:
    layout = pool().layout
    # 16 tokens x 20 heads x (64 + 64) x 2 B
    assert [(g.kind, g.num_layers, g.page_bytes) for g in layout.groups] == [
        ("full", 32, 81_920),
        ("cross", 32, 81_920),
    ]
    assert layout.bytes_per_block == 32 * 81_920


@pytest.mark.parametrize(
    ("version", "encoder_blocks"),
    [("0.10.2", 94), ("0.12.0", 94), ("0.13.0", 128), ("0.33.0", 128)],
)
def test_what_a_request_is_sized_with(version: str, encoder_blocks: int) -> None:
    # 448 / 16 tokens of text; then 1,500 of audio, or since 0.13 the budget of 2,048.
    assert pool(version=version).request_blocks(448) == 28 + encoder_blocks


def test_the_budget_follows_the_flag() -> None:
    assert pool("--max-num-batched-tokens 8192").request_blocks(448) == 28 + 512


def test_what_a_request_really_holds() -> None:
    assert pool().request_bytes(448) == (28 + 94) * 32 * 81_920
    assert pool().request_bytes(16) == (1 + 94) * 32 * 81_920


@pytest.mark.parametrize(("version", "blocks"), [("0.13.0", 156), ("0.15.1", 28), ("0.32.0", 156)])
def test_need_at_start_up(version: str, blocks: int) -> None:
    # By layers, by the first group alone (0.14 to 0.18), by all groups.
    assert pool(version=version).need_bytes(448) == blocks * 32 * 81_920


def test_plan() -> None:
    made = plan()
    assert made.unknown == ()
    assert made.vram is not None
    assert made.kv is not None
    assert made.kv.max_model_len == 448
    assert made.kv.bytes_per_token == 163_840  # of text
    assert made.kv.need_bytes == 540 * 32 * 81_920
    assert "no log of an encoder-decoder" in made.vram.sources["activations"]


def test_without_the_hybrid_manager_it_cannot_be_told() -> None:
    (unknown,) = plan("--disable-hybrid-kv-cache-manager").unknown
    assert unknown.what == "KV cache"
    assert "cross attention" in unknown.why
    transfer = '--kv-transfer-config \'{"kv_connector": "NixlConnector", "kv_role": "kv_both"}\''
    (unknown,) = plan(transfer).unknown
    assert "cross attention" in unknown.why


@pytest.mark.parametrize("version", ["0.11.0", "0.15.1", "0.32.0"])
def test_defaults(version: str) -> None:
    settings = settle("--enable-chunked-prefill", version=version, of=LARGE)
    assert not settings.enable_chunked_prefill.value
    assert not settings.enable_prefix_caching.value
    assert "encoder-decoder" in settings.enable_prefix_caching.source
    assert settings.max_model_len.value == 448


def test_prefix_caching_that_is_asked_for() -> None:
    line = "--enable-prefix-caching"
    assert not settle(line, version="0.12.0", of=LARGE).enable_prefix_caching.value
    assert settle(line, version="0.13.0", of=LARGE).enable_prefix_caching.value


def test_the_old_engine_before_0_10_2() -> None:
    def reasons(version: str) -> list[str]:
        found = unmodelled(
            ParsedArgs(version=Version(version), stated={}),
            version=Version(version),
            model=LARGE,
            gpu=None,
            env={},
            location=Location("run.sh", 1),
        )
        return [problem.message for problem in found]

    (message,) = reasons("0.10.1")
    assert "an encoder and a decoder" in message
    assert reasons("0.10.2") == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", []),
        ("--max-num-batched-tokens 1500", []),
        ("--max-num-batched-tokens 1499", ["scheduler"]),
        ("--max-num-seqs 3", ["scheduler"]),  # 3 x 448 = 1,344 tokens a step
        ("--max-num-seqs 4", []),
        ("--pipeline-parallel-size 2", ["parallelism"]),
    ],
)
def test_refusals(line: str, found: list[str]) -> None:
    assert rules(line, version="0.32.0", of=LARGE) == found


def test_heads_that_eight_ranks_do_not_divide() -> None:
    found = refused("--tensor-parallel-size 8", version="0.32.0", of=LARGE)
    assert {refusal.rule for refusal in found} == {"parallelism"}
    (encoder,) = (refusal for refusal in found if "encoder heads" in refusal.headline)
    assert encoder.headline.startswith("20 encoder heads")
    assert "mm-encoder" not in encoder.expected


def test_words_of_the_server() -> None:
    (refusal,) = refused("--max-num-batched-tokens 1024", version="0.32.0", of=LARGE)
    assert "max_tokens_per_mm_item (1500) is larger than" in refusal.server_says
    assert not refusal.is_certain


def test_data_mode_does_not_replicate_the_encoder() -> None:
    sizes = [
        weight_bytes(
            settle(f"--tensor-parallel-size 2 {more}", of=LARGE),
            LARGE,
            None,
            version=Version("0.32.0"),
        ).total
        for more in ("", "--mm-encoder-tp-mode data")
    ]
    assert sizes[0] == sizes[1]


def test_traits() -> None:
    assert attention_type(LARGE) == "encoder_decoder"
    assert longest_encoder_input(LARGE) == 1500
