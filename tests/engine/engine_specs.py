"""Models written out by hand from their public config.json, for the engine's own tests."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_llmserve.hardware.spec import GpuSpec
from pytest_llmserve.models.spec import (
    Cache,
    ContextLimits,
    Experts,
    Group,
    IndexerCache,
    KvCache,
    LatentCache,
    Layer,
    LayerGroup,
    ModelSpec,
    Quantization,
    RotaryTable,
    Shard,
    StateCache,
    StateTensor,
    Weight,
)

if TYPE_CHECKING:
    from pytest_llmserve.engine.exact import IntLike


def matrix(name: str, rows: int, cols: int, shard: Shard, group: Group = Group.MLP) -> Weight:
    return Weight(name=name, group=group, rows=rows, cols=cols, shard=shard)


def norms(hidden_size: int, count: int = 2, name: str = "input_layernorm") -> Weight:
    return Weight(name=name, group=Group.NORM, rows=hidden_size, copies=count, is_matmul=False)


def heads_layer(
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    intermediate: int,
    window: int | None = None,
) -> Layer:
    """A llama-shaped layer: q, k, v, o, gate, up, down and two norms."""
    cache = KvCache(
        kind="full" if window is None else "sliding",
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        window=window,
    )
    kv = [
        Weight(
            name=f"self_attn.{part}_proj",
            group=Group.ATTENTION,
            rows=kv_heads * head_dim,
            cols=hidden,
            shard=Shard.KV,
            kv_heads=kv_heads,
        )
        for part in "kv"
    ]
    width = heads * head_dim
    return Layer(
        caches=(cache,),
        weights=(
            matrix("self_attn.q_proj", width, hidden, Shard.COLUMN, Group.ATTENTION),
            *kv,
            matrix("self_attn.o_proj", hidden, width, Shard.ROW, Group.ATTENTION),
            matrix("mlp.gate_proj", intermediate, hidden, Shard.COLUMN),
            matrix("mlp.up_proj", intermediate, hidden, Shard.COLUMN),
            matrix("mlp.down_proj", hidden, intermediate, Shard.ROW),
            norms(hidden),
        ),
    )


def outside(hidden: int, vocab: int, *, is_tied: bool = False) -> tuple[Weight, ...]:
    embedding = Weight(
        name="model.embed_tokens",
        group=Group.EMBEDDING,
        rows=vocab,
        cols=hidden,
        shard=Shard.VOCAB,
        is_matmul=False,
    )
    head = matrix("lm_head", vocab, hidden, Shard.VOCAB, Group.LM_HEAD)
    final = norms(hidden, 1, "model.norm")
    return (embedding, final) if is_tied else (embedding, final, head)


def model(
    id: str,
    layers: list[tuple[Layer, int]],
    *,
    hidden: int,
    vocab: int,
    heads: int = 1,
    kv_heads: int = 1,
    is_tied: bool = False,
    quantization: Quantization | None = None,
    rotary: tuple[RotaryTable, ...] = (),
) -> ModelSpec:
    groups, first = [], 0
    for layer, count in layers:
        groups.append(LayerGroup(layer=layer, indices=tuple(range(first, first + count))))
        first += count
    return ModelSpec(
        id=id,
        architecture="TestForCausalLM",
        model_type="test",
        hidden_size=hidden,
        vocab_size=vocab,
        num_layers=first,
        num_attention_heads=heads,
        num_kv_heads=kv_heads,
        intermediate_sizes=(),
        layer_groups=tuple(groups),
        outside=outside(hidden, vocab, is_tied=is_tied),
        is_tied=is_tied,
        dtype="bfloat16",
        limits=ContextLimits(candidates={}),
        quantization=quantization,
        rotary_tables=rotary,
    )


def llama(
    id: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocab: int,
    positions: int = 131_072,
    quantization: Quantization | None = None,
) -> ModelSpec:
    layer = heads_layer(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate=intermediate,
    )
    return model(
        id,
        [(layer, layers)],
        hidden=hidden,
        vocab=vocab,
        heads=heads,
        kv_heads=kv_heads,
        quantization=quantization,
        rotary=(RotaryTable(rows=positions, width=hidden // heads),),
    )


def llama_2_7b() -> ModelSpec:
    return llama(
        "meta-llama/Llama-2-7b-hf",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=32,
        intermediate=11008,
        vocab=32000,
        positions=4096,
    )


def llama_31_8b(quantization: Quantization | None = None) -> ModelSpec:
    return llama(
        "meta-llama/Llama-3.1-8B",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        intermediate=14336,
        vocab=128256,
        quantization=quantization,
    )


def llama_31_70b() -> ModelSpec:
    return llama(
        "meta-llama/Llama-3.1-70B",
        layers=80,
        hidden=8192,
        heads=64,
        kv_heads=8,
        intermediate=28672,
        vocab=128256,
    )


def mixtral_8x7b() -> ModelSpec:
    dense = heads_layer(hidden=4096, heads=32, kv_heads=8, head_dim=128, intermediate=8)
    kept = tuple(w for w in dense.weights if w.group is not Group.MLP)
    router = Weight(name="block_sparse_moe.gate", group=Group.ROUTER, rows=8, cols=4096)
    experts = tuple(
        Weight(
            name=f"block_sparse_moe.experts.{part}",
            group=Group.EXPERTS,
            rows=4096 if part == "w2" else 14336,
            cols=14336 if part == "w2" else 4096,
            shard=Shard.ROW if part == "w2" else Shard.COLUMN,
            copies=8,
        )
        for part in ("w1", "w3", "w2")
    )
    layer = Layer(
        caches=dense.caches,
        weights=(*kept, router, *experts),
        experts=Experts(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=14336),
    )
    return model(
        "mistralai/Mixtral-8x7B-v0.1",
        [(layer, 32)],
        hidden=4096,
        vocab=32000,
        heads=32,
        kv_heads=8,
    )


def deepseek_v3_caches(*, has_indexer: bool = False) -> ModelSpec:
    """The caches of DeepSeek-V3 and V3.2; of the weights only kv_b_proj."""
    latent = LatentCache(
        num_heads=128,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )
    caches: tuple[Cache, ...] = (latent,)
    if has_indexer:
        caches += (IndexerCache(index_head_dim=128),)
    kv_b = matrix("self_attn.kv_b_proj", 128 * 256, 512, Shard.COLUMN, Group.ATTENTION)
    return model(
        "deepseek-ai/DeepSeek-V3",
        [(Layer(caches=caches, weights=(kv_b,)), 61)],
        hidden=7168,
        vocab=129280,
        heads=128,
        kv_heads=128,
        quantization=Quantization(method="fp8", scheme="fp8_block", bits=8, block_shape=(128, 128)),
    )


def gemma_3_27b() -> ModelSpec:
    """62 layers: 10 full, 52 with a window of 1024 tokens; 16 KV heads of 128."""
    shape: dict[str, Any] = {
        "hidden": 5376,
        "heads": 32,
        "kv_heads": 16,
        "head_dim": 128,
        "intermediate": 21504,
    }
    return model(
        "google/gemma-3-27b-it",
        [(heads_layer(**shape, window=1024), 52), (heads_layer(**shape), 10)],
        hidden=5376,
        vocab=262208,
        heads=32,
        kv_heads=16,
        is_tied=True,
    )


def qwen3_next_caches() -> ModelSpec:
    """12 full layers with 2 KV heads of 256, 36 with a gated delta net."""
    full = KvCache(kind="full", num_heads=16, num_kv_heads=2, head_dim=256, v_head_dim=256)
    state = StateCache(
        kind="gdn",
        tensors=(
            StateTensor(shape=(3, 8192), sharded_axis=1, role="conv"),
            StateTensor(shape=(32, 128, 128), sharded_axis=0, role="recurrent"),
        ),
    )
    return model(
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        [
            (Layer(caches=(full,), weights=(norms(2048),)), 12),
            (Layer(caches=(state,), weights=(norms(2048),)), 36),
        ],
        hidden=2048,
        vocab=151936,
        heads=16,
        kv_heads=2,
    )


def gpu(**changes: Any) -> GpuSpec:
    """An H100 SXM: 3.35 TB/s, 989.4 TFLOP/s dense bf16, 1978.9 fp8 (NVIDIA's datasheet)."""
    figures: dict[str, Any] = {
        "id": "h100-sxm-80gb",
        "name": "NVIDIA H100 SXM5 80GB",
        "vendor": "NVIDIA",
        "architecture": "Hopper",
        "compute_capability": (9, 0),
        "memory_total_bytes": None,
        "memory_marketed_bytes": 80 * 10**9,
        "hbm_bytes_per_s": 3_350 * 10**9,
        "hbm_safe_bytes_per_s": 3_350 * 10**9,
        "dense_flops_per_s": {
            "bf16": 989_400 * 10**9,
            "fp16": 989_400 * 10**9,
            "fp8": 1_978_900 * 10**9,
            "tf32": 494_700 * 10**9,
        },
    }
    return GpuSpec(**(figures | changes))


def replaced(spec: ModelSpec, **changes: Any) -> ModelSpec:
    return dataclasses.replace(spec, **changes)


def replaced_layer(layer: Layer, weights: tuple[Weight, ...]) -> Layer:
    return dataclasses.replace(layer, weights=weights)


def listed(counts: IntLike) -> list[Any]:
    """The elements of what must be an array."""
    assert isinstance(counts, np.ndarray)
    elements: list[Any] = counts.tolist()
    return elements
