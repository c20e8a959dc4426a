"""Bytes of weights on a rank. Outside figures: parameters that vLLM 0.32.0 built for one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version
from planning import gpu, latent, llama_8b, model, settings

from pytest_llmserve.models.spec import (
    Experts,
    Group,
    ModelSpec,
    Quantization,
    RotaryTable,
    Shard,
    Weight,
)
from pytest_llmserve.runtimes.vllm.weights import (
    WeightBytes,
    rank_of,
    weight_bytes,
    weights_source,
)
from pytest_llmserve.units import GIB

if TYPE_CHECKING:
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

LLAMA = llama_8b()
H100 = gpu()


def on_rank(
    stated: VllmSettings,
    spec: ModelSpec = LLAMA,
    stage: int = 0,
    card: GpuSpec = H100,
    version: str = "0.32.0",
) -> WeightBytes:
    return weight_bytes(stated, spec, card, stage, version=Version(version))


def total(spec: ModelSpec = LLAMA, stage: int = 0, **changed: Any) -> int:
    return on_rank(settings(**changed), spec, stage).total


def test_llama_8b() -> None:
    assert total() == 16094077440


def test_llama_8b_at_tp_16_keeps_one_kv_head_a_rank() -> None:
    assert total(tensor_parallel_size=16) == 1071391232


def test_lora_buffers_of_llama_8b() -> None:
    # 4 adapters of rank 64 at TP 2: 1 041 498 112 B a rank (0.32.0).
    loaded = on_rank(
        settings(tensor_parallel_size=2, enable_lora=True, max_loras=4, max_lora_rank=64)
    )
    assert loaded.lora == 1041498112
    assert loaded.total == loaded.built + loaded.lora


def test_online_fp8_halves_the_linear_layers_only() -> None:
    loaded = on_rank(settings(quantization="fp8"))
    linear = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    saved = 16094077440 - loaded.built
    # Some bytes of scales come back.
    assert linear - 10000 < saved <= linear


def test_offloaded_weights_are_not_on_the_gpu() -> None:
    assert total(cpu_offload_gib=4.0) == 16094077440 - 4 * GIB
    assert total(cpu_offload_gib=100.0) == 0


def test_pipeline_stages_add_up_but_for_the_rotary_table() -> None:
    stages = [total(stage=i, pipeline_parallel_size=2) for i in range(2)]
    assert sum(stages) == 16094077440 + 131072 * 128 * 2


def test_quantised_mla_keeps_an_absorbed_copy() -> None:
    # DeepSeek-V3: 128 heads x 512 x (128 + 128) x 2 B a layer, at TP 8 an eighth.
    kv_b = Weight(
        name="self_attn.kv_b_proj",
        group=Group.ATTENTION,
        rows=128 * 256,
        cols=512,
        shard=Shard.COLUMN,
    )
    fp8 = Quantization(method="fp8", scheme="fp8_block", bits=8, block_shape=(128, 128))
    plain = model([latent()] * 61, weights=(kv_b,))
    quantised = model([latent()] * 61, weights=(kv_b,), quantization=fp8)
    assert on_rank(settings(), plain).absorbed == 0
    assert on_rank(settings(), quantised).absorbed == 61 * 33554432
    eighth = on_rank(settings(tensor_parallel_size=8), quantised).absorbed
    assert eighth == 61 * 33554432 // 8


def test_experts_are_shared_by_all_data_parallel_ranks() -> None:
    rank = rank_of(
        settings(tensor_parallel_size=2, data_parallel_size=4, enable_expert_parallel=True),
        LLAMA,
        0,
    )
    assert rank.expert_ranks == 8
    assert rank.has_expert_parallel


def test_vision_copies_and_absence() -> None:
    assert rank_of(settings(mm_encoder_tp_mode="data"), LLAMA, 0).is_vision_replicated
    gemma = model([], model_type="gemma3")
    assert not rank_of(settings(mm_encoder_tp_mode="data"), gemma, 0).is_vision_replicated
    assert not rank_of(settings(language_model_only=True), LLAMA, 0).has_vision


def test_stated_layer_partition() -> None:
    stated = settings(pipeline_parallel_size=2, env={"VLLM_PP_LAYER_PARTITION": "12,20"})
    assert rank_of(stated, LLAMA, 1).layers(LLAMA) == range(12, 32)


def test_source_in_words() -> None:
    def words(**changed: Any) -> str:
        stated = settings(**changed)
        return weights_source(stated, LLAMA, on_rank(stated))

    assert words(tensor_parallel_size=2) == "8.03e9 params x 2 B / TP 2"
    assert words(quantization="fp8") == "8.03e9 params, fp8_tensor"
    assert words(cpu_offload_gib=4.0) == "8.03e9 params x 2 B - 4.00 GiB in host memory"


def test_source_names_a_checkpoint_that_differs() -> None:
    other = llama_8b()
    object.__setattr__(other, "checkpoint_bytes", 20 * GIB)
    loaded = on_rank(settings(), other)
    assert weights_source(settings(), other, loaded).endswith("(checkpoint: 20.00 GiB)")


def test_mxfp4_experts_are_padded_as_the_kernels_of_the_time_want() -> None:
    # gpt-oss-20b's experts: 32 x (5760 x 2880 + 2880 x 2880) a layer, hidden and width 2880.
    up = Weight(
        name="mlp.experts.up_proj",
        group=Group.EXPERTS,
        rows=2880,
        cols=2880,
        shard=Shard.COLUMN,
        copies=32,
    )
    mxfp4 = Quantization(
        method="mxfp4", scheme="mxfp4", bits=4, group_size=32, is_experts_only=True
    )
    spec = model([()], weights=(up,), quantization=mxfp4)

    def elements(**changed: Any) -> int:
        return on_rank(settings(), spec, **changed).built * 32 // 17

    assert elements() == 32 * 2944 * 3072
    assert elements(version="0.11.0") == 32 * 2880 * 3072
    assert elements(version="0.11.0", card=gpu((10, 0))) == 32 * 2944 * 3072


def test_interleaved_rope_had_four_tables_until_0_30() -> None:
    # Qwen3.5-27B: 3 x 262144 x 64 x 2 B more in 0.30.0 than in 0.32.0, on every rank.
    spec = model([()], model_type="qwen3_5", rotary_tables=(RotaryTable(rows=262144, width=64),))
    table = 262144 * 64 * 2
    assert on_rank(settings(), spec).built == table
    assert on_rank(settings(), spec, version="0.30.0").built == 4 * table


def test_redundant_experts_are_more_experts_a_rank() -> None:
    # 256 experts and 32 redundant ones over 32 ranks: 9 instead of 8 each, and an id for each.
    up = Weight(name="mlp.experts.0.up_proj", group=Group.EXPERTS, rows=64, cols=64, copies=256)
    routed = Experts(num_experts=256, num_experts_per_tok=8, moe_intermediate_size=64)
    spec = model([latent()] * 2, weights=(up,), experts=routed)
    wide = {"tensor_parallel_size": 1, "data_parallel_size": 32, "enable_expert_parallel": True}
    plain, more = (
        on_rank(settings(**wide, num_redundant_experts=count), spec).built for count in (0, 32)
    )
    assert more - plain == 2 * (64 * 64 * 2 + 32 * 4)
