"""Laws that the engine's arithmetic keeps for every model, GPU and load."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.engine.attention import (
    cache_token_bytes,
    kv_bytes,
    kv_bytes_per_request,
    kv_bytes_per_token,
    local_kv_heads,
    request_bytes,
)
from pytest_llmserve.engine.costs import NominalModel, StepCosts, step_costs
from pytest_llmserve.engine.exact import INT64_MAX, mul
from pytest_llmserve.engine.latency import tpot_floor, ttft_floor
from pytest_llmserve.engine.memoization import with_kv_cache, without_kv_cache
from pytest_llmserve.engine.paging import (
    blocks_for,
    capacity_requests,
    capacity_requests_paged,
    capacity_tokens,
    paged_waste_tokens,
)
from pytest_llmserve.engine.parallel import Rank, stage_layers
from pytest_llmserve.engine.phases import decode_step
from pytest_llmserve.engine.roofline import attainable_flops_per_s, utilisation
from pytest_llmserve.engine.sweep import kv_sweep
from pytest_llmserve.engine.weights import weight_bytes_on_rank
from pytest_llmserve.hardware.spec import GpuSpec
from pytest_llmserve.models.spec import (
    Cache,
    ContextLimits,
    Experts,
    Group,
    KvCache,
    LatentCache,
    Layer,
    LayerGroup,
    ModelSpec,
    Shard,
    StateCache,
    StateTensor,
    Weight,
)

TOKENS = st.integers(1, 10**6)
BATCHES = st.integers(1, 4_096)
TP = st.sampled_from([1, 2, 4, 8, 16])
KV_DTYPES = st.sampled_from(["auto", "fp8", "int8_per_token_head", "int4_per_token_head"])
KINDS: tuple[Literal["full", "sliding", "chunked"], ...] = ("full", "sliding", "chunked")
HEAD_DIMS = st.sampled_from([64, 128, 256])


@st.composite
def kv_caches(draw: st.DrawFn) -> KvCache:
    num_kv_heads = draw(st.sampled_from([1, 2, 4, 8, 16]))
    window = draw(st.none() | st.integers(1, 8_192))
    kinds = (KINDS[0],) if window is None else KINDS[1:]
    return KvCache(
        kind=draw(st.sampled_from(kinds)),
        num_heads=num_kv_heads * draw(st.sampled_from([1, 4, 8])),
        num_kv_heads=num_kv_heads,
        head_dim=draw(HEAD_DIMS),
        v_head_dim=draw(HEAD_DIMS),
        window=window,
    )


@st.composite
def state_caches(draw: st.DrawFn) -> StateCache:
    heads = 16 * draw(st.integers(1, 4))
    return StateCache(
        kind="gdn",
        tensors=(
            StateTensor(shape=(3, heads * 64), sharded_axis=1, role="conv"),
            StateTensor(shape=(heads, 64, 64), sharded_axis=0, role="recurrent"),
        ),
    )


LATENTS = st.builds(
    LatentCache,
    num_heads=st.sampled_from([16, 128]),
    kv_lora_rank=st.just(512),
    qk_rope_head_dim=st.just(64),
    qk_nope_head_dim=st.just(128),
    v_head_dim=st.just(128),
)


ANY_CACHE: st.SearchStrategy[Cache] = st.one_of(kv_caches(), LATENTS, state_caches())


def a_layer(cache: Cache, width: int, num_experts: int | None) -> Layer:
    def weight(name: str, rows: int, cols: int, shard: Shard, copies: int = 1) -> Weight:
        group = Group.MLP if num_experts is None else Group.EXPERTS
        return Weight(name=name, group=group, rows=rows, cols=cols, shard=shard, copies=copies)

    copies = num_experts or 1
    weights = (
        weight("up", 4 * width, width, Shard.COLUMN, copies),
        weight("down", width, 4 * width, Shard.ROW, copies),
        Weight(name="norm", group=Group.NORM, rows=width, is_matmul=False),
    )
    experts = None
    if num_experts is not None:
        experts = Experts(
            num_experts=num_experts, num_experts_per_tok=2, moe_intermediate_size=4 * width
        )
    return Layer(caches=(cache,), weights=weights, experts=experts)


@st.composite
def models(draw: st.DrawFn, caches: st.SearchStrategy[Cache] = ANY_CACHE) -> ModelSpec:
    width = 64 * draw(st.integers(1, 32))
    vocab = draw(st.integers(1, 200_000))
    groups, first = [], 0
    for cache in draw(st.lists(caches, min_size=1, max_size=3)):
        num_experts = draw(st.none() | st.sampled_from([4, 8, 64]))
        count = draw(st.integers(1, 40))
        layer = a_layer(cache, width, num_experts)
        groups.append(LayerGroup(layer=layer, indices=tuple(range(first, first + count))))
        first += count
    embedding = Weight(
        name="embed",
        group=Group.EMBEDDING,
        rows=vocab,
        cols=width,
        shard=Shard.VOCAB,
        is_matmul=False,
    )
    head = Weight(name="lm_head", group=Group.LM_HEAD, rows=vocab, cols=width, shard=Shard.VOCAB)
    return ModelSpec(
        id="model",
        architecture="Model",
        model_type="model",
        hidden_size=width,
        vocab_size=vocab,
        num_layers=first,
        num_attention_heads=1,
        num_kv_heads=1,
        intermediate_sizes=(4 * width,),
        layer_groups=tuple(groups),
        outside=(embedding, head),
        is_tied=False,
        dtype="bfloat16",
        limits=ContextLimits(candidates={}),
    )


FULL_MODELS = models(
    kv_caches().map(lambda cache: dataclasses.replace(cache, kind="full", window=None))
)


def gpu(peak: int, bandwidth: int) -> GpuSpec:
    return GpuSpec(
        id="gpu",
        name="gpu",
        vendor="any",
        architecture="any",
        compute_capability=None,
        memory_total_bytes=None,
        memory_marketed_bytes=1,
        hbm_bytes_per_s=bandwidth,
        hbm_safe_bytes_per_s=bandwidth,
        dense_flops_per_s={"bf16": peak},
    )


PEAKS = st.integers(10**12, 10**16)
BANDWIDTHS = st.integers(10**11, 10**14)


@given(FULL_MODELS, TOKENS, KV_DTYPES, TP)
def test_kv_is_linear_in_tokens(model: ModelSpec, tokens: int, dtype: str, tp: int) -> None:
    one = kv_bytes_per_token(model, dtype, tp)
    assert kv_bytes_per_request(model, tokens, dtype, tp) == tokens * one


@given(TOKENS, BATCHES, BATCHES)
def test_kv_is_linear_in_batch(tokens: int, left: int, right: int) -> None:
    both = kv_bytes(32, 8, 128, tokens, left + right)
    assert both == kv_bytes(32, 8, 128, tokens, left) + kv_bytes(32, 8, 128, tokens, right)


@given(models(), TOKENS, TOKENS, KV_DTYPES.filter(lambda dtype: dtype in {"auto", "fp8"}))
def test_kv_never_shrinks_with_tokens_and_is_subadditive(
    model: ModelSpec, left: int, right: int, dtype: str
) -> None:
    held = [kv_bytes_per_request(model, n, dtype) for n in (left, right, left + right)]
    assert max(held[:2]) <= held[2] <= held[0] + held[1]


@given(kv_caches(), KV_DTYPES, TP)
def test_grouped_queries_take_at_most_what_all_heads_take(
    cache: KvCache, dtype: str, tp: int
) -> None:
    every = dataclasses.replace(cache, num_kv_heads=cache.num_heads)
    one = dataclasses.replace(cache, num_kv_heads=1)
    sizes = [
        cache_token_bytes(c, kv_cache_dtype=dtype, tensor_parallel_size=tp)
        for c in (one, cache, every)
    ]
    assert sizes == sorted(sizes)


def without_window(cache: Cache) -> KvCache:
    assert isinstance(cache, KvCache)
    return dataclasses.replace(cache, kind="full", window=None)


@given(models(kv_caches()), TOKENS)
def test_a_window_takes_at_most_what_full_attention_takes(model: ModelSpec, tokens: int) -> None:
    groups = tuple(
        dataclasses.replace(
            group,
            layer=dataclasses.replace(
                group.layer,
                caches=tuple(without_window(cache) for cache in group.layer.caches),
            ),
        )
        for group in model.layer_groups
    )
    full = dataclasses.replace(model, layer_groups=groups)
    assert kv_bytes_per_request(model, tokens) <= kv_bytes_per_request(full, tokens)
    assert kv_bytes_per_token(model) == kv_bytes_per_token(full)


@given(LATENTS)
def test_mla_takes_less_than_the_heads_it_stands_for(latent: LatentCache) -> None:
    expanded = KvCache(
        kind="full",
        num_heads=latent.num_heads,
        num_kv_heads=latent.num_heads,
        head_dim=latent.qk_nope_head_dim + latent.qk_rope_head_dim,
        v_head_dim=latent.v_head_dim,
    )
    assert cache_token_bytes(latent) < cache_token_bytes(expanded)


@given(models(), TOKENS, TP)
def test_the_ranks_caches_add_up_to_at_least_the_whole(
    model: ModelSpec, tokens: int, tp: int
) -> None:
    whole = kv_bytes_per_request(model, tokens)
    each = kv_bytes_per_request(model, tokens, "auto", tp)
    assert tp * each >= whole
    assert each <= whole


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), TP)
def test_every_rank_has_a_head_and_none_is_lost(heads: int, tp: int) -> None:
    local = local_kv_heads(heads, tp)
    assert local >= 1
    assert local * tp == max(heads, tp)


@given(models(), TP, st.booleans())
def test_the_ranks_weights_add_up_to_at_least_the_whole(
    model: ModelSpec, tp: int, has_expert_parallel: bool
) -> None:
    whole = weight_bytes_on_rank(model).bytes_by_group
    rank = Rank(tensor_parallel_size=tp, has_expert_parallel=has_expert_parallel)
    each = weight_bytes_on_rank(model, rank).bytes_by_group
    for group, size in whole.items():
        assert each[group] <= size <= tp * each[group]


@given(models(), st.integers(1, 8))
def test_stages_hold_every_weight_once(model: ModelSpec, stages: int) -> None:
    parts = [
        weight_bytes_on_rank(
            model, Rank(pipeline_parallel_size=stages, pipeline_stage=stage)
        ).total_bytes
        for stage in range(stages)
    ]
    assert sum(parts) == weight_bytes_on_rank(model).total_bytes


@given(st.integers(0, 500), st.integers(1, 16))
def test_stages_differ_by_at_most_one_layer_and_the_last_is_smallest(
    num_layers: int, stages: int
) -> None:
    sizes = [len(stage) for stage in stage_layers(num_layers, stages)]
    assert sum(sizes) == num_layers
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes)


@given(st.integers(0, 10**15), st.integers(1, 10**12))
def test_capacity_is_the_most_that_fits(pool: int, request: int) -> None:
    capacity = capacity_requests(pool, request)
    assert capacity * request <= pool < (capacity + 1) * request


@given(st.integers(0, 10**13), st.integers(1, 10**6), st.integers(1, 1_024), TOKENS)
def test_paged_capacity_is_the_most_that_fits(
    pool: int, token_bytes: int, block_size: int, tokens: int
) -> None:
    block = token_bytes * block_size
    requests = capacity_requests_paged(
        pool, tokens, bytes_per_token=token_bytes, block_size=block_size
    )
    one = blocks_for(tokens, block_size) * block
    assert requests * one <= pool < (requests + 1) * one + block
    assert capacity_tokens(pool, token_bytes, block_size) <= pool // token_bytes


@given(st.integers(0, 10**9), st.integers(1, 4_096))
def test_paging_wastes_less_than_a_block(tokens: int, block_size: int) -> None:
    assert 0 <= paged_waste_tokens(tokens, block_size) < block_size


@given(FULL_MODELS, TOKENS, BATCHES, BATCHES)
def test_intensity_rises_with_batch(model: ModelSpec, context: int, left: int, right: int) -> None:
    small, large = sorted((left, right))
    costs = step_costs(model)
    a, b = decode_step(costs, small, context), decode_step(costs, large, context)
    assert a.flops * b.floor_bytes <= b.flops * a.floor_bytes


@given(st.floats(1e-3, 1e6), PEAKS, BANDWIDTHS)
def test_no_rate_is_above_either_roof(intensity: float, peak: int, bandwidth: int) -> None:
    rate = attainable_flops_per_s(intensity, peak, bandwidth)
    assert rate <= peak
    assert rate <= bandwidth * intensity
    assert 0 < utilisation(intensity, peak, bandwidth) <= 1


@given(models(), TOKENS, BATCHES, PEAKS, BANDWIDTHS, st.integers(1, 10**14))
def test_floors_fall_with_bandwidth_and_peak(
    model: ModelSpec, context: int, batch: int, peak: int, bandwidth: int, more: int
) -> None:
    costs = step_costs(model)
    slow = tpot_floor(costs, gpu(peak, bandwidth), "bfloat16", batch=batch, context=context)
    for better in (gpu(peak, bandwidth + more), gpu(peak + more, bandwidth)):
        fast = tpot_floor(costs, better, "bfloat16", batch=batch, context=context)
        assert slow is not None
        assert fast is not None
        assert fast.floor_s <= slow.floor_s


@given(models(), TOKENS, BATCHES, TP)
def test_more_gpus_never_raise_a_floor(model: ModelSpec, context: int, batch: int, tp: int) -> None:
    part = gpu(10**15, 10**12)
    one = tpot_floor(step_costs(model), part, "bfloat16", batch=batch, context=context)
    rank = Rank(tensor_parallel_size=tp)
    many = tpot_floor(step_costs(model, rank), part, "bfloat16", batch=batch, context=context)
    assert one is not None
    assert many is not None
    assert many.floor_s <= one.floor_s


@given(FULL_MODELS, st.integers(2, 100_000), st.data())
def test_a_prefix_cache_never_raises_the_first_token_floor(
    model: ModelSpec, prompt: int, data: st.DataObject
) -> None:
    cached = data.draw(st.integers(0, prompt - 1))
    costs = step_costs(model)
    part = gpu(10**15, 10**13)
    whole = ttft_floor(costs, part, "bfloat16", prompt_tokens=prompt)
    rest = ttft_floor(costs, part, "bfloat16", prompt_tokens=prompt, cached_tokens=cached)
    assert whole is not None
    assert rest is not None
    assert rest.flops <= whole.flops


@given(models(), BATCHES, TOKENS)
def test_a_floor_reads_at_most_what_a_step_can_read(
    model: ModelSpec, batch: int, context: int
) -> None:
    costs = step_costs(model)
    floor = decode_step(costs, batch, context)
    most = decode_step(costs, batch, context, reads_distinct_experts=True)
    assert floor.weight_bytes <= most.weight_bytes
    assert floor.floor_bytes <= floor.moved_bytes


@given(models(kv_caches()), st.integers(1, 5_000), st.integers(1, 500))
def test_a_cache_never_costs_operations(model: ModelSpec, prompt: int, new: int) -> None:
    costs = step_costs(model)
    cached, anew = with_kv_cache(costs, prompt, new), without_kv_cache(costs, prompt, new)
    assert cached.flops <= anew.flops


@given(
    st.lists(models(), min_size=1, max_size=3),
    st.lists(TOKENS, min_size=1, max_size=5),
    st.lists(BATCHES, min_size=1, max_size=5),
    st.integers(0, 10**12),
)
def test_a_sweep_equals_the_scalar_functions(
    specs: list[ModelSpec], contexts: list[int], concurrencies: list[int], pool: int
) -> None:
    grid = kv_sweep(
        [request_bytes(spec) for spec in specs],
        np.array(contexts),
        np.array(concurrencies),
        [pool] * len(specs),
    )
    for m, spec in enumerate(specs):
        for t, tokens in enumerate(contexts):
            one = kv_bytes_per_request(spec, tokens)
            assert grid.max_requests[m, t] == capacity_requests(pool, one)
            for n, count in enumerate(concurrencies):
                assert grid.need_bytes[m, t, n] == one * count
                assert bool(grid.fits[m, t, n]) == (one * count <= pool)


@given(
    models(), st.lists(TOKENS, min_size=1, max_size=4), st.lists(BATCHES, min_size=1, max_size=4)
)
def test_a_grid_of_steps_equals_single_steps(
    model: ModelSpec, contexts: list[int], batches: list[int]
) -> None:
    costs: StepCosts = step_costs(model)
    try:
        grid = decode_step(costs, np.array(batches), np.array(contexts)[:, None])
    except OverflowError:
        worst = decode_step(costs, max(batches), max(contexts))
        assert max(int(worst.flops), int(worst.floor_bytes)) > INT64_MAX
        return
    flops = np.broadcast_to(grid.flops, (len(contexts), len(batches)))
    read = np.broadcast_to(grid.floor_bytes, flops.shape)
    for t, context in enumerate(contexts):
        for n, batch in enumerate(batches):
            one = decode_step(costs, batch, context)
            assert (flops[t, n], read[t, n]) == (one.flops, one.floor_bytes)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=4), st.integers(-(2**40), 2**40))
def test_array_products_are_exact_or_refused(values: list[int], factor: int) -> None:
    exact = [value * factor for value in values]
    if max(abs(value) for value in exact) > INT64_MAX:
        with pytest.raises(OverflowError):
            mul(np.array(values), factor)
    else:
        assert np.asarray(mul(np.array(values), factor)).tolist() == exact


@given(st.integers(1, 10**13), st.integers(1, 4))
def test_a_nominal_token_costs_two_flops_a_parameter(params: int, width: int) -> None:
    step = decode_step(NominalModel(num_params=params, bytes_per_param=width).costs(), 1, 1)
    assert step.flops == 2 * params
    assert step.floor_bytes == params * width
