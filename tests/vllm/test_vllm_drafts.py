"""Draft models beside a target: what they hold, and where their layers go in the pool.

Pools are what vLLM 0.32.0 laid out for the pairs; sizes of drafts are those of the published heads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packaging.version import Version
from planning import gpt_oss, gpu, heads, llama_8b, model, pool, settings
from serving import settle

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.errors import BadConfig
from pytest_llmserve.models.spec import Experts, Group, ModelSpec, Shard, Weight
from pytest_llmserve.runtimes.vllm.drafts import UnknownDraftError, draft_of
from pytest_llmserve.runtimes.vllm.plan import make_plan
from pytest_llmserve.runtimes.vllm.weights import weight_bytes
from pytest_llmserve.units import GIB

LLAMA = llama_8b()
LLAMA_1B = replace(LLAMA, id="org/draft")
V32 = Version("0.32.0")
# The shape of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B.
EAGLE3: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
DFLASH = EAGLE3 | {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "head_dim": 128,
    "num_hidden_layers": 5,
    "dflash_config": {"target_layer_ids": [1, 9, 17, 25, 33]},
}


def read(config: dict[str, Any]) -> ModelSpec:
    return read_config(config, model_id="org/draft", source="draft/config.json")


def held(method: str, draft: ModelSpec | None, spec: ModelSpec = LLAMA, **changed: Any) -> int:
    """Bytes of the draft on one rank."""
    stated = settings(speculative_method=method, num_speculative_tokens=3, **changed)
    found = draft_of(stated, spec, draft)
    return weight_bytes(stated, spec, gpu(), version=V32, draft=found).draft


def test_eagle3_holds_no_embedding() -> None:
    # q, k, v from 2 hidden widths, o, MLP, fc from 3, 4 norms, 32,000 rows of lm_head in bf16;
    # an int64 for each of them; a rotary table of its own length; 16 B of attention scalars.
    h, mlp, kv = 4096, 14336, 1024
    weights = 2 * h * (h + 2 * kv) + h * h + 3 * h * mlp + 3 * h * h + 4 * h + 32000 * h
    rotary = 2048 * 128 * 2
    assert held("eagle3", read(EAGLE3)) == 2 * weights + 8 * 32000 + rotary + 16


def test_eagle_of_llama_adds_a_projection_and_one_layer() -> None:
    config = EAGLE3 | {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072}
    h, mlp, kv = 4096, 14336, 1024
    layer = 2 * h * h + 2 * h * kv + 3 * h * mlp + 2 * h
    # The final norm is built too; a rotary table equal to the target's is the same object.
    assert held("eagle", read(config)) == 2 * (layer + 2 * h * h + h) + 16


def test_dflash_reads_the_layers_that_it_names() -> None:
    h, mlp, kv = 4096, 14336, 1024
    layer = 2 * h * h + 2 * h * kv + 3 * h * mlp + 2 * h + 2 * 128
    expected = 2 * (5 * layer + 5 * h * h + 2 * h) + 5 * 16 + 2048 * 128 * 2
    assert held("dflash", read(DFLASH)) == expected


def test_dflash_without_target_layers_is_refused() -> None:
    with pytest.raises(BadConfig, match="target_layer_ids"):
        read(DFLASH | {"dflash_config": {}})


def test_a_draft_model_is_held_whole() -> None:
    assert held("draft_model", LLAMA_1B) == 16094077440


def test_a_draft_may_be_whole_on_every_rank() -> None:
    sharded = held("draft_model", LLAMA_1B, tensor_parallel_size=2)
    whole = held("draft_model", LLAMA_1B, tensor_parallel_size=2, draft_tensor_parallel_size=1)
    assert whole == 16094077440
    assert whole / 2 < sharded < whole


def test_own_draft_layer_is_one_more_layer_and_its_projection() -> None:
    layer = 2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096) + 16
    assert held("mtp", None) == layer + 2 * (2 * 4096 * 4096 + 3 * 4096)
    assert held("deepseek_mtp", None) == held("mtp", None)


@pytest.mark.parametrize(("model_type", "is_sharded"), [("qwen3_next", True), ("glm4_moe", False)])
def test_projection_of_the_own_layer(model_type: str, is_sharded: bool) -> None:
    spec = model([heads(8, 128)], model_type=model_type)
    one, two = (held("mtp", None, spec, tensor_parallel_size=tp) for tp in (1, 2))
    projection = 2 * 2 * 4096 * 4096
    assert one - two == (projection // 2 if is_sharded else 0)


@pytest.mark.parametrize("method", ["ngram", "suffix", "ngram_gpu"])
def test_methods_without_weights(method: str) -> None:
    assert held(method, None) == 0


@pytest.mark.parametrize(
    ("method", "named", "words"),
    [
        ("eagle3", None, "the config that eagle3 drafts with was not given"),
        ("draft_model", "org/small", "the config of org/small was not given"),
        ("medusa", "org/heads", "the config of org/heads was not given"),
        ("mtp", "google/gemma-4-31B-it-assistant", "the config of google/gemma-4-31B-it-assistant"),
    ],
)
def test_a_draft_that_is_not_known_is_no_pass(method: str, named: str | None, words: str) -> None:
    stated = settings(speculative_method=method, num_speculative_tokens=3, draft_model=named)
    with pytest.raises(UnknownDraftError, match=words):
        draft_of(stated, LLAMA, None)
    found = make_plan(stated, version=V32, model=LLAMA, gpu=gpu())
    assert found.vram is None
    assert found.unknown[0].what == "draft model"


def test_medusa_heads_are_not_read_as_a_model() -> None:
    stated = settings(speculative_method="medusa", num_speculative_tokens=3)
    with pytest.raises(UnknownDraftError):
        draft_of(stated, LLAMA, LLAMA)


def test_eagle_joins_the_target_in_one_group() -> None:
    # vllm-project/vllm#19996, 0.9.1: 51.63 GiB are 410,128 tokens, 3.13x of 131,072.
    found = pool(LLAMA, "0.9.1", draft=read(EAGLE3), speculative_method="eagle3")
    assert [group.num_layers for group in found.layout.groups] == [33]
    tokens, times = found.capacity(found.num_blocks(round(51.63 * GIB)), 131072)
    assert tokens == pytest.approx(410128, rel=1e-4)
    assert times == pytest.approx(3.13, abs=0.005)


def test_gpt_oss_120b_with_eagle3() -> None:
    # 18 sliding and 19 full layers: 2 groups, 19 pages a block.
    draft = read(EAGLE3 | {"hidden_size": 2880, "head_dim": 64, "num_attention_heads": 64})
    found = pool(gpt_oss(36), draft=draft, speculative_method="eagle3").layout
    assert [group.num_layers for group in found.groups] == [18, 19]
    assert found.bytes_per_block == 19 * found.groups[0].page_bytes


def test_mimo_v2_drafts_with_a_dense_layer_that_slides() -> None:
    # MiMo-V2-Flash + MTP: 9 full and 5 groups of 8 sliding layers.
    full, slides = heads(4, 192, v_head_dim=128), heads(8, 192, 128, v_head_dim=128)
    stack = [full, *[slides] * 4, full] + [*[slides] * 5, full] * 7
    spec = model(stack[:48], model_type="mimo_v2_flash")
    kinds = [g.kind for g in pool(spec, speculative_method="mtp").layout.groups]
    assert sorted(kinds) == ["full", *["sliding"] * 5]
    mlp = Weight(name="mlp.up_proj", group=Group.MLP, rows=16384, cols=4096, shard=Shard.COLUMN)
    expert = Weight(name="e", group=Group.EXPERTS, rows=2048, cols=4096, copies=256)
    routed = Experts(num_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048)
    dense = model([full], weights=(mlp,)).layer_groups[0]
    sliding = model([full, slides], weights=(expert,), experts=routed).layer_groups[1]
    mixed = model([full, slides], model_type="mimo_v2_flash")
    mixed = replace(mixed, layer_groups=(dense, sliding))
    projection = 2 * (2 * 4096 * 4096 + 3 * 4096)
    assert held("mtp", None, mixed) == 2 * 16384 * 4096 + projection + 16


def test_nemotron_drafts_with_attention_and_experts() -> None:
    attention = Weight(name="mixer.o_proj", group=Group.ATTENTION, rows=4096, cols=4096)
    up = Weight(name="mixer.up_proj", group=Group.EXPERTS, rows=2048, cols=4096, copies=8)
    full = model([heads(8, 128)], weights=(attention,)).layer_groups[0]
    body = replace(model([()], weights=(up,)).layer_groups[0], indices=(1,))
    spec = replace(model([heads(8, 128), ()], model_type="nemotron_h"), layer_groups=(full, body))
    projection = 2 * (2 * 4096 * 4096 + 3 * 4096)
    expected = 2 * 4096 * 4096 + 2 * 8 * 2048 * 4096 + projection + 16
    assert held("mtp", None, spec) == expected


def test_a_draft_head_alone_is_no_server() -> None:
    found = make_plan(settings(), version=V32, model=read(EAGLE3), gpu=gpu())
    assert found.vram is None
    assert found.unknown[0].why == "org/draft only drafts for another model"


@pytest.mark.parametrize(
    ("config", "method", "named"),
    [
        ('{"model":"meta-llama/Llama-3.2-1B","num_speculative_tokens":5}', "draft_model", True),
        (
            '{"model":"yuhuili/EAGLE3-LLaMA3.1-Instruct-8B","num_speculative_tokens":3}',
            "eagle3",
            True,
        ),
        ('{"model":"z-lab/Qwen3-8B-DFlash-b16","num_speculative_tokens":7}', "dflash", True),
        ('{"model":"ngram","num_speculative_tokens":3}', "ngram", False),
        ('{"method":"mtp","num_speculative_tokens":1}', "mtp", False),
    ],
)
def test_what_drafts_by_its_name(config: str, method: str, named: bool) -> None:
    found = settle(f"--speculative-config '{config}'", version="0.32.0")
    assert found.speculative_method.value == method
    assert (found.draft_model is not None) is named


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.2-1B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"]
)
def test_bundled_drafts_are_planned(name: str) -> None:
    # Both are smaller than 2.5 GB: the heads 0.79 GiB, the model 2.30 GiB with a copied embedding.
    config = {"model": name, "num_speculative_tokens": 3}
    server = LlmServe().server(
        "meta-llama/Llama-3.1-8B-Instruct",
        gpu="h100-sxm-80gb",
        version="0.32.0",
        speculative_config=config,
    )
    plain = LlmServe().server(
        "meta-llama/Llama-3.1-8B-Instruct", gpu="h100-sxm-80gb", version="0.32.0"
    )
    with_draft, without = (found.subjects[0].plan.vram for found in (server, plain))
    assert with_draft is not None
    assert without is not None
    drafted = (with_draft.weights_bytes - without.weights_bytes).expected / GIB
    assert 0.7 < drafted < 2.5


def test_online_quantisation_is_the_target_s_alone() -> None:
    assert held("draft_model", LLAMA_1B, quantization="fp8") == held("draft_model", LLAMA_1B)
    assert held("mtp", None, quantization="fp8") < held("mtp", None)


@pytest.mark.parametrize(
    ("method", "draft", "words"),
    [
        (None, None, "without a method or a model"),
        ("draft_model", LLAMA, "drafts for itself"),
    ],
)
def test_drafting_that_is_not_told_is_no_pass(
    method: str | None, draft: ModelSpec | None, words: str
) -> None:
    stated = settings(speculative_method=method, num_speculative_tokens=1)
    with pytest.raises(UnknownDraftError, match=words):
        draft_of(stated, LLAMA, draft)
