from __future__ import annotations

from typing import TYPE_CHECKING, Any

import engine_specs as specs
import pytest

from pytest_llmserve.engine.parallel import LocalShape, Rank, ShardingError
from pytest_llmserve.engine.quantized import Padding, SchemeError, Stored, stored_bytes
from pytest_llmserve.engine.weights import absorbed_mla_bytes_on_rank, weight_bytes_on_rank
from pytest_llmserve.models.spec import Group, ModelSpec, Quantization, RotaryTable, Shard, Weight

if TYPE_CHECKING:
    from collections.abc import Callable


def total(
    spec: ModelSpec,
    rank: Rank | None = None,
    scheme_of: Callable[[str], str | None] | None = None,
    **more: Any,
) -> int:
    return weight_bytes_on_rank(spec, rank, scheme_of, **more).total_bytes


def test_llama_31_8b_equals_vllm_to_the_byte() -> None:
    # vLLM 0.32.0, meta-device build on an H100: 16,094,077,440 B on one rank and, with -tp 16,
    # 1,071,391,232 B; 16 B of scale scalars stand in each attention layer.
    spec = specs.llama_31_8b()
    assert total(spec, layer_extra_bytes=lambda _: 16) == 16_094_077_440
    rank = Rank(tensor_parallel_size=16)
    assert total(spec, rank, layer_extra_bytes=lambda _: 16) == 1_071_391_232


def test_groups_of_a_rank() -> None:
    found = weight_bytes_on_rank(specs.llama_31_8b())
    # 8,030,261,248 parameters (safetensors headers of the checkpoint) and a table of 131072 x 128
    assert found.total_bytes == 2 * 8_030_261_248 + 33_554_432
    assert found.rotary_bytes == 33_554_432
    assert found.bytes_by_group[Group.EMBEDDING] == 128_256 * 4_096 * 2
    assert found.bytes_by_group[Group.MLP] == 32 * 3 * 14_336 * 4_096 * 2
    assert found.bytes_by_group[Group.NORM] == 65 * 4_096 * 2


def test_float32_doubles_everything_but_fixed_widths() -> None:
    spec = specs.llama_31_8b()
    assert total(spec, model_dtype_bits=32) == 2 * total(spec)


def test_pipeline_stages_hold_their_layers_and_ends() -> None:
    spec = specs.llama_31_8b()
    first, last = (
        weight_bytes_on_rank(spec, Rank(pipeline_parallel_size=2, pipeline_stage=stage))
        for stage in (0, 1)
    )
    vocabulary = 128_256 * 4_096 * 2
    assert first.bytes_by_group[Group.EMBEDDING] == vocabulary
    assert Group.LM_HEAD not in first.bytes_by_group
    assert Group.EMBEDDING not in last.bytes_by_group
    assert last.bytes_by_group[Group.LM_HEAD] == vocabulary
    assert last.bytes_by_group[Group.NORM] == first.bytes_by_group[Group.NORM] + 4_096 * 2
    # each stage has the rotary table
    assert first.total_bytes + last.total_bytes == total(spec) + 33_554_432


def test_tied_and_replicated_vocabularies_on_stages() -> None:
    tied = specs.gemma_3_27b()
    last = Rank(pipeline_parallel_size=2, pipeline_stage=1)
    assert weight_bytes_on_rank(tied, last).bytes_by_group[Group.EMBEDDING] == 262_208 * 5_376 * 2
    middle = Rank(pipeline_parallel_size=3, pipeline_stage=1)
    assert Group.EMBEDDING not in weight_bytes_on_rank(tied, middle).bytes_by_group
    everywhere = specs.replaced(specs.llama_31_8b(), has_vocab_on_every_stage=True)
    held = weight_bytes_on_rank(everywhere, middle).bytes_by_group
    assert held[Group.EMBEDDING] == held[Group.LM_HEAD] == 128_256 * 4_096 * 2
    embedding = specs.replaced(specs.llama_31_8b(), has_embedding_on_every_stage=True)
    held = weight_bytes_on_rank(embedding, middle).bytes_by_group
    assert held[Group.EMBEDDING] == 128_256 * 4_096 * 2
    assert Group.LM_HEAD not in held


def test_vision_towers_can_be_left_out() -> None:
    tower = specs.matrix("vision.proj", 1_024, 512, Shard.COLUMN, Group.VISION)
    spec = specs.replaced(specs.llama_31_8b(), vision=(tower,))
    plain = total(specs.llama_31_8b())
    assert total(spec) - plain == 1_024 * 512 * 2
    assert total(spec, Rank(has_vision=False)) == plain


def test_experts_under_expert_parallelism() -> None:
    spec = specs.mixtral_8x7b()
    # 46,702,792,704 parameters (safetensors headers of mistralai/Mixtral-8x7B-v0.1)
    assert total(spec) == 2 * 46_702_792_704
    experts = 32 * 8 * 3 * 4_096 * 14_336 * 2
    for rank in (
        Rank(tensor_parallel_size=4),
        Rank(tensor_parallel_size=4, has_expert_parallel=True),
    ):
        assert weight_bytes_on_rank(spec, rank).bytes_by_group[Group.EXPERTS] == experts // 4
    uneven = Rank(tensor_parallel_size=1, expert_ranks=3, has_expert_parallel=True)
    held = weight_bytes_on_rank(spec, uneven).bytes_by_group[Group.EXPERTS]
    assert held == experts * 3 // 8  # the fullest rank has 3 of 8


def test_a_rank_knows_where_the_experts_are() -> None:
    # vLLM 0.32.0, Mixtral-8x7B on 8 ranks with expert parallelism: 11,686,389,248 B, of which
    # 32 x 8 int32 are the map of the experts
    rank = Rank(tensor_parallel_size=8, has_expert_parallel=True)
    spec = specs.replaced(
        specs.mixtral_8x7b(), rotary_tables=(RotaryTable(rows=32_768, width=128),)
    )
    assert total(spec, rank, layer_extra_bytes=lambda _: 16) == 11_686_389_248


def test_a_size_that_does_not_divide() -> None:
    with pytest.raises(ShardingError, match=r"self_attn.q_proj output 4096 is not divisible by 3"):
        total(specs.llama_31_8b(), Rank(tensor_parallel_size=3))


def stored(scheme: str, rows: int, cols: int, **quantization: Any) -> int:
    weight = specs.matrix("w", rows, cols, Shard.COLUMN)
    fields: dict[str, Any] = {"method": "test", "scheme": scheme, "bits": 8} | quantization
    spec = Quantization(**fields)
    part = Stored(weight=weight, shape=LocalShape(rows, cols, 1), scheme=scheme)
    return stored_bytes(part, spec)


@pytest.mark.parametrize(
    ("scheme", "quantization", "expected"),
    [
        ("fp8_tensor", {}, 4096 * 4096 + 4),
        ("fp8_tensor", {"is_static_activation": True}, 4096 * 4096 + 8),
        ("fp8_channel", {}, 4096 * 4096 + 4 * 4096),
        ("int8", {}, 4096 * 4096 + 4 * 4096),
        # 0.5 + 2/128 B an element, and 0.5/128 more with zero points
        ("int4", {"group_size": 128}, 4096 * 4096 // 2 + 2 * 4096 * 32),
        (
            "int4",
            {"group_size": 128, "is_symmetric": False},
            4096 * 4096 // 2 + 2 * 4096 * 32 + 2048 * 32,
        ),
        ("nvfp4", {}, 4096 * 4096 // 2 + 4096 * 256 + 8),
        ("mxfp4", {}, 4096 * 4096 // 2 + 4096 * 128),
        ("mxfp8", {}, 4096 * 4096 + 4096 * 128),
        ("nf4", {}, 4096 * 4096 // 2 + 4 * 4096 * 64),
    ],
)
def test_bytes_of_a_scheme(scheme: str, quantization: dict[str, Any], expected: int) -> None:
    assert stored(scheme, 4096, 4096, **quantization) == expected


def test_gptq_checkpoint_on_a_real_server() -> None:
    # Qwen2.5-7B-Instruct-GPTQ-Int4 (group 128, symmetric) on an L40S: vLLM 0.8.5.post1 printed
    # "Model loading took 5.1811 GiB", which holds the kernels' workspace of some MB besides.
    gptq = Quantization(method="gptq", scheme="int4", bits=4, group_size=128)
    spec = specs.llama(
        "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4",
        layers=28,
        hidden=3_584,
        heads=28,
        kv_heads=4,
        intermediate=18_944,
        vocab=152_064,
        positions=32_768,
        quantization=gptq,
    )
    found = total(spec, None, lambda path: None if path == "lm_head" else "int4") / 2**30
    assert 5.16 < found < 5.1811


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(SchemeError, match=r"w: bytes of scheme 'unknown' are not known; known: fp"):
        stored("unknown", 64, 64)


def block_fp8() -> Quantization:
    return Quantization(method="fp8", scheme="fp8_block", bits=8, block_shape=(128, 128))


def test_only_matrices_are_quantised_and_only_where_the_scheme_says() -> None:
    spec = specs.llama_31_8b(block_fp8())
    found = weight_bytes_on_rank(
        spec, None, lambda path: "fp8_block" if path.endswith("up_proj") else None
    )
    plain = weight_bytes_on_rank(specs.llama_31_8b())
    elements = 32 * 14_336 * 4_096
    scales = 32 * 4 * 112 * 32
    assert plain.total_bytes - found.total_bytes == elements - scales
    assert found.bytes_by_group[Group.EMBEDDING] == plain.bytes_by_group[Group.EMBEDDING]


def test_the_scheme_may_differ_from_layer_to_layer() -> None:
    spec = specs.llama_31_8b(block_fp8())
    asked = []

    def scheme_of(path: str) -> str | None:
        asked.append(path)
        return "fp8_block" if path == "model.layers.7.mlp.up_proj" else None

    saved = total(specs.llama_31_8b()) - total(spec, None, scheme_of)
    assert saved == 14_336 * 4_096 - 4 * 112 * 32
    assert "lm_head" in asked
    assert "model.embed_tokens" not in asked


def test_block_scales_lie_over_the_fused_matrix() -> None:
    # k and v of 1 head of 64 and q of 2: 256 rows in all, two blocks; alone each would take one
    layer = specs.heads_layer(hidden=256, heads=2, kv_heads=1, head_dim=64, intermediate=256)
    spec = specs.model("t", [(layer, 1)], hidden=256, vocab=64, quantization=block_fp8())
    found = weight_bytes_on_rank(
        spec, None, lambda path: "fp8_block" if "self_attn" in path else None
    )
    elements = (128 + 64 + 64) * 256 + 256 * 128
    scales = 4 * (2 * 2 + 2 * 1)
    assert found.bytes_by_group[Group.ATTENTION] == elements + scales


def test_block_grids_of_experts_are_refined() -> None:
    # 1,536 / TP 8 = 192 rows: no multiple of 128, so blocks of gcd(128, 192) = 64 (vLLM 0.32,
    # MiniMax-M2.5 at TP 8)
    parts = {"gate_proj": Shard.COLUMN, "up_proj": Shard.COLUMN, "down_proj": Shard.ROW}
    weights = tuple(
        Weight(
            name=f"mlp.experts.{part}",
            group=Group.EXPERTS,
            rows=3_072 if shard is Shard.ROW else 1_536,
            cols=1_536 if shard is Shard.ROW else 3_072,
            shard=shard,
            copies=4,
        )
        for part, shard in parts.items()
    )
    base = specs.heads_layer(hidden=3_072, heads=24, kv_heads=8, head_dim=128, intermediate=8)
    layer = specs.replaced_layer(base, weights)
    spec = specs.model("m", [(layer, 1)], hidden=3_072, vocab=64, quantization=block_fp8())
    found = weight_bytes_on_rank(spec, Rank(tensor_parallel_size=8), lambda _: "fp8_block")
    elements = 3 * 192 * 3_072
    scales = 4 * (6 * 48 + 48 * 3)
    assert found.bytes_by_group[Group.EXPERTS] == 4 * (elements + scales)


def test_mxfp4_experts_are_padded_with_their_biases() -> None:
    # gpt-oss at TP 8: 360 -> 384 and hidden 2,880 -> 3,072 (vLLM 0.32, Marlin)
    padding = Padding()
    up = specs.matrix("up", 360, 2_880, Shard.COLUMN, Group.EXPERTS)
    down = specs.matrix("down", 2_880, 360, Shard.ROW, Group.EXPERTS)
    up_bias = specs.matrix("up.bias", 360, 1, Shard.COLUMN, Group.EXPERTS)
    down_bias = specs.matrix("down.bias", 2_880, 1, Shard.REPLICATED, Group.EXPERTS)
    padded = [padding.apply(w, LocalShape(w.rows, w.cols, 1)) for w in (up, down)]
    assert padded == [(384, 3_072), (3_072, 384)]
    padded = [padding.apply(w, LocalShape(w.rows, w.cols, 1)) for w in (up_bias, down_bias)]
    assert padded == [(384, 1), (3_072, 1)]


def test_mla_keeps_a_copy_beside_a_quantised_matrix() -> None:
    # DeepSeek-V3: 33.5 MB a layer in bf16, 2.05 GB in all at TP 1, an eighth of it at TP 8
    spec = specs.deepseek_v3_caches()
    whole = absorbed_mla_bytes_on_rank(spec, Rank(), lambda _: "fp8_block")
    assert whole == 61 * 128 * 512 * (128 + 128) * 2 == 2_046_820_352
    eighth = Rank(tensor_parallel_size=8)
    assert absorbed_mla_bytes_on_rank(spec, eighth, lambda _: "fp8_block") == whole // 8
    assert absorbed_mla_bytes_on_rank(spec, Rank(), lambda _: None) == 0
