from __future__ import annotations

from typing import Any

import engine_specs as specs
import numpy as np
import pytest

from pytest_llmserve.engine.costs import NominalModel, step_costs
from pytest_llmserve.engine.parallel import Rank
from pytest_llmserve.engine.phases import decode_step, prefill
from pytest_llmserve.models.spec import (
    Group,
    IndexerCache,
    KvCache,
    LatentCache,
    Layer,
    Quantization,
    Shard,
    SharedCache,
)

NOMINAL_70B = NominalModel(num_params=70 * 10**9)


def test_nominal_70b_at_batch_1() -> None:
    # 70e9 FP16 parameters: 140 GB read and 140 GFLOP for one token, 1 FLOP/byte
    cost = decode_step(NOMINAL_70B.costs(), 1, 1)
    assert cost.floor_bytes == 140 * 10**9
    assert cost.flops == 140 * 10**9


def test_nominal_model_with_a_cache() -> None:
    model = NominalModel(num_params=10**9, bytes_per_param=1, kv_bytes_per_token=1_000)
    cost = decode_step(model.costs(), 4, 100)
    assert cost.kv_read_bytes == 4 * 100 * 1_000
    assert decode_step(model.costs(2), 4, 100).floor_bytes * 2 == cost.floor_bytes


def test_llama_31_70b_exactly() -> None:
    costs = step_costs(specs.llama_31_70b())
    # 70,553,706,496 parameters less the input embedding (128,256 x 8,192)
    assert costs.weight_bytes == 2 * (70_553_706_496 - 1_050_673_152) == 139_006_066_688
    # of these all but the norms are multiplied
    matrices = 70_553_706_496 - 1_050_673_152 - 161 * 8_192
    assert costs.flops_per_token + costs.head_flops_per_token == 2 * matrices
    step = decode_step(costs, 1, 1)
    # 4 x heads x head_dim x layers for the one token in the context
    assert step.flops == 2 * matrices + 4 * 64 * 128 * 80
    assert step.weight_bytes == 139_006_066_688 + 8_192 * 2  # and one row of the embedding
    assert step.kv_read_bytes == step.kv_write_bytes == 327_680


def test_context_and_batch_add_kv_reads_and_attention() -> None:
    costs = step_costs(specs.llama_31_8b())
    step = decode_step(costs, 16, 4_096)
    assert step.kv_read_bytes == 16 * 4_096 * 131_072
    base = decode_step(costs, 16, 1)
    assert int(step.flops) - int(base.flops) == 16 * 4_095 * 4 * 32 * 128 * 32


def test_activations_are_moved_but_in_no_floor() -> None:
    costs = step_costs(specs.llama_31_8b())
    # inputs and outputs of q, k, v, o, gate, up and down, 2 B each
    per_layer = 2 * (8_192 + 5_120 + 5_120 + 8_192 + 3 * 18_432)
    assert costs.activation_bytes_per_token == 32 * per_layer
    step = decode_step(costs, 2, 1)
    assert step.activation_bytes == 2 * 32 * per_layer
    moved = int(step.floor_bytes) + int(step.kv_write_bytes) + int(step.activation_bytes)
    assert step.moved_bytes == moved


def test_tensor_parallelism_divides_the_work_of_a_gpu() -> None:
    whole, half = (step_costs(specs.llama_31_8b(), Rank(tensor_parallel_size=n)) for n in (1, 2))
    assert half.flops_per_token * 2 == whole.flops_per_token
    one, two = decode_step(whole, 8, 1_000), decode_step(half, 8, 1_000)
    assert int(two.kv_read_bytes) * 2 == one.kv_read_bytes
    norms = 65 * 4_096 * 2
    assert (half.weight_bytes - norms) * 2 == whole.weight_bytes - norms


def test_a_pipeline_does_not_shorten_the_way_of_a_token() -> None:
    piped = step_costs(specs.llama_31_8b(), Rank(pipeline_parallel_size=2, pipeline_stage=1))
    assert piped == step_costs(specs.llama_31_8b())


def test_tied_embeddings_are_read_as_the_head() -> None:
    costs = step_costs(specs.gemma_3_27b())
    assert costs.head_flops_per_token == 2 * 262_208 * 5_376
    untied = specs.replaced(
        specs.gemma_3_27b(),
        is_tied=False,
        outside=specs.outside(5_376, 262_208),
    )
    assert step_costs(untied).weight_bytes == costs.weight_bytes


def test_mixture_of_experts_reads_only_what_a_token_visits() -> None:
    costs = step_costs(specs.mixtral_8x7b())
    (experts,) = costs.experts
    assert experts.bytes_each == 32 * 3 * 4_096 * 14_336 * 2
    one = decode_step(costs, 1, 1)
    assert one.weight_bytes == costs.weight_bytes + 8_192 + 2 * experts.bytes_each
    # 12,879,925,248 active parameters of Mixtral less the embedding
    active = 12_879_925_248 - 32_000 * 4_096
    assert costs.weight_bytes + 2 * experts.bytes_each == 2 * active
    # a floor never counts coverage; the most a step can read is every expert once
    floor = decode_step(costs, 64, 1)
    assert floor.weight_bytes == costs.weight_bytes + 64 * 8_192 + 2 * experts.bytes_each
    most = [
        int(decode_step(costs, batch, 1, reads_distinct_experts=True).weight_bytes) - batch * 8_192
        for batch in (1, 3, 4, 64)
    ]
    read = [(size - costs.weight_bytes) // experts.bytes_each for size in most]
    assert read == [2, 6, 8, 8]


def test_experts_under_tensor_and_expert_parallelism() -> None:
    whole = step_costs(specs.mixtral_8x7b()).experts[0]
    cut = step_costs(specs.mixtral_8x7b(), Rank(tensor_parallel_size=4)).experts[0]
    dealt = step_costs(
        specs.mixtral_8x7b(), Rank(tensor_parallel_size=4, has_expert_parallel=True)
    ).experts[0]
    assert (cut.floor_experts, cut.bytes_each) == (2, whole.bytes_each // 4)
    # whole experts on 4 ranks: the two that a token visits may lie on two of them
    assert (dealt.floor_experts, dealt.num_experts) == (1, 2)
    assert dealt.bytes_each == whole.bytes_each
    assert cut.flops_per_token == dealt.flops_per_token == whole.flops_per_token // 4


def test_windows_cap_what_a_step_reads() -> None:
    costs = step_costs(specs.gemma_3_27b())
    read = decode_step(costs, 1, 131_072).kv_read_bytes
    assert read == 16 * 512 * (10 * 131_072 + 52 * 1_024)


def test_mla_decodes_on_the_latent_and_is_not_divided() -> None:
    v3 = specs.deepseek_v3_caches()
    costs = step_costs(v3, Rank(tensor_parallel_size=8))
    (attention,) = costs.attention
    assert attention.bytes_per_token == 61 * 1_152
    assert attention.decode_flops_per_pair == 61 * 2 * 16 * (2 * 512 + 64)
    assert attention.prefill_flops_per_pair == 61 * 2 * 16 * (128 + 64 + 128)


def latent(**more: int) -> LatentCache:
    return LatentCache(
        num_heads=128,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        **more,
    )


def test_a_sparse_indexer_bounds_what_is_read() -> None:
    def read(cache: LatentCache) -> int:
        layer = Layer(caches=(cache, IndexerCache(index_head_dim=128)), weights=())
        spec = specs.model("v32", [(layer, 1)], hidden=64, vocab=64)
        return int(decode_step(step_costs(spec), 1, 10_000).kv_read_bytes)

    # 2,048 picked tokens (index_topk), and the keys of all
    assert read(latent(max_attended_tokens=2_048)) == 2_048 * 1_152 + 10_000 * 132
    # top-k not known: nothing but one token is sure, so no floor is claimed on it
    assert read(latent()) == 1_152 + 10_000 * 132


def test_shared_caches_are_work_without_memory() -> None:
    inner = KvCache(kind="full", num_heads=8, num_kv_heads=2, head_dim=64, v_head_dim=64)
    layer = Layer(caches=(SharedCache(attention=inner),), weights=())
    costs = step_costs(specs.model("s", [(layer, 2)], hidden=64, vocab=64))
    (attention,) = costs.attention
    assert attention.bytes_per_token == 0
    assert attention.decode_flops_per_pair == 2 * 2 * 8 * 128


def test_states_are_read_and_written_each_step() -> None:
    costs = step_costs(specs.qwen3_next_caches())
    step = decode_step(costs, 4, 1_000)
    assert costs.state_bytes == 36 * 1_097_728
    assert step.kv_read_bytes == 4 * (36 * 1_097_728 + 12 * 2_048 * 1_000)
    assert step.kv_write_bytes == 4 * (36 * 1_097_728 + 12 * 2_048)
    assert costs.state_flops_per_token == 36 * 4 * 32 * 128 * 128


def test_quantised_weights_are_read_as_they_are_stored() -> None:
    fp8 = Quantization(method="fp8", scheme="fp8_tensor", bits=8)
    costs = step_costs(
        specs.llama_31_8b(fp8), None, lambda path: None if path == "lm_head" else "fp8_tensor"
    )
    plain = step_costs(specs.llama_31_8b())
    elements = 32 * (4_096 * (4_096 * 2 + 1_024 * 2) + 3 * 4_096 * 14_336)
    assert plain.weight_bytes - costs.weight_bytes == elements - 32 * 7 * 4
    assert plain.flops_per_token == costs.flops_per_token


def test_prefill_of_one_prompt() -> None:
    costs = step_costs(specs.llama_31_8b())
    cost = prefill(costs, 512)
    pairs = 512 * 513 // 2
    attention = 32 * 4 * 32 * 128 * pairs
    # logits only for the last token
    assert cost.flops == 512 * costs.flops_per_token + costs.head_flops_per_token + attention
    assert cost.weight_bytes == costs.weight_bytes + 512 * 4_096 * 2
    assert cost.kv_read_bytes == 0
    assert cost.kv_write_bytes == 512 * 131_072
    assert prefill(costs, 512, 3).flops == 3 * int(cost.flops)
    assert prefill(costs, 512, 3).weight_bytes == costs.weight_bytes + 3 * 512 * 4_096 * 2


def test_prefix_cache_hits_take_work_away() -> None:
    costs = step_costs(specs.llama_31_8b())
    whole, rest = prefill(costs, 1_000), prefill(costs, 1_000, cached_tokens=600)
    head = prefill(costs, 600)
    assert int(rest.flops) + int(head.flops) == int(whole.flops) + costs.head_flops_per_token
    assert rest.kv_read_bytes == 600 * 131_072
    assert rest.kv_write_bytes == 400 * 131_072
    with pytest.raises(ValueError, match="prompt_tokens - cached_tokens must be at least 1, got 0"):
        prefill(costs, 600, cached_tokens=600)


def test_a_first_token_is_a_decode_step() -> None:
    costs = step_costs(specs.gemma_3_27b())
    assert prefill(costs, 1).flops == decode_step(costs, 1, 1).flops
    later = prefill(costs, 2_000, cached_tokens=1_999)
    assert later.flops == decode_step(costs, 1, 2_000).flops


def test_grids_equal_single_steps() -> None:
    costs = step_costs(specs.gemma_3_27b())
    batch, context = np.array([1, 8, 64]), np.array([[1], [1_024], [131_072]])
    grid = decode_step(costs, batch, context)
    assert isinstance(grid.flops, np.ndarray)
    for row, tokens in enumerate(context[:, 0]):
        for column, sequences in enumerate(batch):
            one = decode_step(costs, int(sequences), int(tokens))
            assert grid.flops[row, column] == one.flops
            assert np.broadcast_to(grid.floor_bytes, (3, 3))[row, column] == one.floor_bytes


@pytest.mark.parametrize(("batch", "context"), [(0, 1), (1, 0), (-1, 5)])
def test_empty_steps_are_refused(batch: int, context: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        decode_step(NOMINAL_70B.costs(), batch, context)


def test_experts_that_are_not_routed_are_streamed() -> None:
    # Nemotron 3 Super: projections into and out of the experts' latent space, one of each
    projection = specs.matrix("latent_in", 1_024, 4_096, Shard.REPLICATED, Group.EXPERTS)
    layer = specs.mixtral_8x7b().layer_groups[0].layer
    more = specs.replaced_layer(layer, (*layer.weights, projection))
    spec = specs.model("n", [(more, 1)], hidden=4_096, vocab=32_000)
    base = specs.model("n", [(layer, 1)], hidden=4_096, vocab=32_000)
    assert step_costs(spec).weight_bytes - step_costs(base).weight_bytes == 1_024 * 4_096 * 2
    assert step_costs(spec).experts == step_costs(base).experts


def test_equal_layers_in_two_groups_are_one() -> None:
    layer = specs.llama_31_8b().layer_groups[0].layer
    sizes: dict[str, Any] = {"hidden": 4_096, "vocab": 128_256}
    whole = specs.model("m", [(layer, 32)], **sizes)
    split = specs.model("m", [(layer, 10), (layer, 22)], **sizes)
    assert step_costs(split) == step_costs(whole)
