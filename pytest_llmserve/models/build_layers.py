"""From parts to the weights and caches of a layer: attention, MLP and experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.models.spec import (
    Cache,
    CrossCache,
    Group,
    IndexerCache,
    KvCache,
    LatentCache,
    Shard,
    SharedCache,
    Weight,
)

if TYPE_CHECKING:
    from pytest_llmserve.models.parts import Attention, CrossAttention, Extra, Latent, Mlp, Moe

Names = Mapping[str, str]


def vector(
    name: str, group: Group, rows: int, shard: Shard = Shard.REPLICATED, kv_heads: int = 0
) -> Weight:
    """A bias, a norm or any other weight that is added or scaled with, never multiplied."""
    return Weight(
        name=name, group=group, rows=rows, shard=shard, kv_heads=kv_heads, is_matmul=False
    )


def linear(
    name: str, group: Group, rows: int, cols: int, shard: Shard, *, has_bias: bool = False
) -> Iterator[Weight]:
    """A matrix of ``rows`` outputs x ``cols`` inputs, and its bias where it has one.

    The bias of a row-parallel layer is whole on every rank, that of a column-parallel one divided.
    """
    yield Weight(name=name, group=group, rows=rows, cols=cols, shard=shard)
    if has_bias:
        bias_shard = Shard.REPLICATED if shard is Shard.ROW else shard
        yield vector(f"{name}.bias", group, rows, bias_shard)


def attention_weights(part: Attention, hidden_size: int, names: Names) -> Iterator[Weight]:
    """Projections q, k, v and o, with what a family adds to them."""
    group = Group.ATTENTION
    inputs = part.input_size or hidden_size
    v_head_dim = part.v_head_dim or part.head_dim
    q_rows = part.num_heads * part.head_dim * (2 if part.has_query_gate else 1)
    yield from linear(names["q"], group, q_rows, inputs, Shard.COLUMN, has_bias=part.has_qkv_bias)
    if not part.reads_shared_cache:
        for role, head_dim in (("k", part.head_dim), ("v", v_head_dim)):
            yield from _kv(part, names[role], head_dim, inputs, is_key=role == "k")
    o_cols = part.num_heads * v_head_dim
    yield from linear(names["o"], group, hidden_size, o_cols, Shard.ROW, has_bias=part.has_o_bias)
    yield from _head_norms(part, names)
    if part.has_sinks:
        yield vector(names["sinks"], group, part.num_heads, Shard.COLUMN)
    if part.sparse_index_dim is not None:
        index_rows = (part.sparse_index_heads or 1) * part.sparse_index_dim
        yield from linear(names["index_q"], group, index_rows, inputs, Shard.COLUMN)
        yield from linear(names["index_k"], group, part.sparse_index_dim, inputs, Shard.REPLICATED)
        yield Weight(
            name=names["index_norm"],
            group=Group.NORM,
            rows=part.sparse_index_dim,
            copies=2,
            is_matmul=False,
        )


def _kv(
    part: Attention, name: str, head_dim: int, inputs: int, *, is_key: bool
) -> Iterator[Weight]:
    rows = part.num_kv_heads * head_dim
    yield Weight(
        name=name,
        group=Group.ATTENTION,
        rows=rows,
        cols=inputs,
        shard=Shard.KV,
        kv_heads=part.num_kv_heads,
        is_parameter=is_key or not part.has_unstored_v,
    )
    if part.has_qkv_bias:
        bias = vector(f"{name}.bias", Group.ATTENTION, rows, Shard.KV, part.num_kv_heads)
        yield replace(bias, is_parameter=not (is_key and part.has_unstored_k_bias))


def _head_norms(part: Attention, names: Names) -> Iterator[Weight]:
    if part.qk_norm is None:
        return
    is_wide = part.qk_norm != "head"
    is_sharded = part.qk_norm == "width_sharded"
    yield vector(
        names["q_norm"],
        Group.NORM,
        part.head_dim * (part.num_heads if is_wide else 1),
        Shard.COLUMN if is_sharded else Shard.REPLICATED,
    )
    if part.reads_shared_cache:
        return
    yield vector(
        names["k_norm"],
        Group.NORM,
        part.head_dim * (part.num_kv_heads if is_wide else 1),
        Shard.KV if is_sharded else Shard.REPLICATED,
        part.num_kv_heads if is_sharded else 0,
    )


def attention_caches(part: Attention) -> Iterator[Cache]:
    """Keys and values, or the work of reading another layer's."""
    if part.is_cross:
        return
    cache = KvCache(
        kind=part.kind,
        num_heads=part.num_heads,
        num_kv_heads=part.num_kv_heads,
        head_dim=part.head_dim,
        v_head_dim=part.v_head_dim or part.head_dim,
        window=part.window,
        max_attended_tokens=part.sparse_topk_tokens,
    )
    yield SharedCache(attention=cache) if part.reads_shared_cache else cache
    if part.sparse_index_dim is not None:
        yield IndexerCache(index_head_dim=part.sparse_index_dim)


def cross_weights(part: CrossAttention, hidden_size: int, names: Names) -> Iterator[Weight]:
    """The decoder's side of cross attention."""
    group, width = Group.ATTENTION, part.num_heads * part.head_dim
    yield from linear(names["cross_q"], group, width, hidden_size, Shard.COLUMN, has_bias=True)
    yield from linear(names["cross_o"], group, hidden_size, width, Shard.ROW, has_bias=True)


def cross_caches(part: CrossAttention) -> Iterator[Cache]:
    """Keys and values of the encoder's output."""
    attention = KvCache(
        kind="full",
        num_heads=part.num_heads,
        num_kv_heads=part.num_heads,
        head_dim=part.head_dim,
        v_head_dim=part.head_dim,
    )
    yield CrossCache(attention=attention, encoder_tokens=part.encoder_tokens)


def latent_weights(part: Latent, hidden_size: int, names: Names) -> Iterator[Weight]:
    """MLA: the down projections are whole on every rank, the others divided by heads."""
    group = Group.ATTENTION
    whole = Shard.REPLICATED
    q_rows = part.num_heads * (part.qk_nope_head_dim + part.qk_rope_head_dim)
    if part.q_lora_rank is None:
        yield from linear(names["q"], group, q_rows, hidden_size, Shard.COLUMN)
    else:
        rank = part.q_lora_rank
        yield from linear(names["q_a"], group, rank, hidden_size, whole, has_bias=part.has_bias)
        yield vector(names["q_a_norm"], Group.NORM, rank)
        yield from linear(names["q_b"], group, q_rows, rank, Shard.COLUMN)
    kv_a_rows = part.kv_lora_rank + part.qk_rope_head_dim
    yield from linear(names["kv_a"], group, kv_a_rows, hidden_size, whole, has_bias=part.has_bias)
    yield vector(names["kv_a_norm"], Group.NORM, part.kv_lora_rank)
    kv_b_rows = part.num_heads * (part.qk_nope_head_dim + part.v_head_dim)
    yield from linear(names["kv_b"], group, kv_b_rows, part.kv_lora_rank, Shard.COLUMN)
    o_cols = part.num_heads * part.v_head_dim
    yield from linear(names["o"], group, hidden_size, o_cols, Shard.ROW, has_bias=part.has_bias)
    yield from _indexer(part, hidden_size, names)


def _indexer(part: Latent, hidden_size: int, names: Names) -> Iterator[Weight]:
    if part.index_head_dim is None or part.has_shared_indexer:
        return
    heads = part.index_num_heads or 1
    whole = Shard.REPLICATED
    rank = part.q_lora_rank or hidden_size
    rows = heads * part.index_head_dim
    yield from linear(names["indexer_q"], Group.ATTENTION, rows, rank, whole)
    yield from linear(names["indexer_k"], Group.ATTENTION, part.index_head_dim, hidden_size, whole)
    yield from linear(names["indexer_weights"], Group.ATTENTION, heads, hidden_size, whole)
    yield Weight(
        name=names["indexer_norm"],
        group=Group.NORM,
        rows=part.index_head_dim,
        copies=2,
        dtype_bits=32,
        is_matmul=False,
    )


def latent_caches(part: Latent) -> Iterator[Cache]:
    """One latent row a token, or plain heads where runtimes expand them; and the indexer's keys."""
    if part.caches_heads:
        yield KvCache(
            kind="full",
            num_heads=part.num_heads,
            num_kv_heads=part.num_heads,
            head_dim=part.qk_nope_head_dim + part.qk_rope_head_dim,
            v_head_dim=part.qk_nope_head_dim + part.qk_rope_head_dim,
        )
    else:
        yield LatentCache(
            num_heads=part.num_heads,
            kv_lora_rank=part.kv_lora_rank,
            qk_rope_head_dim=part.qk_rope_head_dim,
            qk_nope_head_dim=part.qk_nope_head_dim,
            v_head_dim=part.v_head_dim,
            max_attended_tokens=part.index_topk,
        )
    if part.index_head_dim is not None and not part.has_shared_indexer:
        yield IndexerCache(index_head_dim=part.index_head_dim)


def mlp_weights(part: Mlp, hidden_size: int, names: Names) -> Iterator[Weight]:
    """Column-parallel up (and gate), row-parallel down."""
    weights = _gated(
        part.intermediate_size,
        hidden_size,
        Group.MLP,
        (names["gate"] if part.is_gated else None, names["up"], names["down"]),
        has_bias=part.has_bias,
    )
    for weight in weights:
        yield replace(weight, shard=Shard.REPLICATED) if part.is_replicated else weight


def _gated(
    width: int,
    hidden_size: int,
    group: Group,
    paths: tuple[str | None, str, str],
    *,
    has_bias: bool = False,
) -> Iterator[Weight]:
    gate, up, down = paths
    for path in (gate, up):
        if path is not None:
            yield from linear(path, group, width, hidden_size, Shard.COLUMN, has_bias=has_bias)
    yield from linear(down, group, hidden_size, width, Shard.ROW, has_bias=has_bias)


def moe_weights(part: Moe, hidden_size: int, names: Names) -> Iterator[Weight]:
    """The router, the routed experts and the shared one."""
    yield from _router(part, hidden_size, names)
    inputs = part.latent_size or hidden_size
    if part.latent_size is not None:
        whole = Shard.REPLICATED
        yield from linear(names["latent_in"], Group.EXPERTS, inputs, hidden_size, whole)
        yield from linear(names["latent_out"], Group.EXPERTS, hidden_size, inputs, whole)
    roles = ("expert_gate", "expert_up") if part.is_gated else ("expert_up",)
    width = part.intermediate_size
    for role in roles:
        yield from _experts(part, names[role], width, inputs, Shard.COLUMN)
    yield from _experts(part, names["expert_down"], inputs, width, Shard.ROW)
    if part.shared_intermediate_size:
        path = names["shared"]
        gate = f"{path}.gate_proj" if part.is_gated else None
        paths = (gate, f"{path}.up_proj", f"{path}.down_proj")
        shared = part.shared_intermediate_size
        yield from _gated(shared, hidden_size, Group.SHARED_EXPERTS, paths)
    if part.has_shared_gate:
        yield Weight(
            name=names["shared_gate"], group=Group.SHARED_EXPERTS, rows=1, cols=hidden_size
        )


def _router(part: Moe, hidden_size: int, names: Names) -> Iterator[Weight]:
    path, group, bits = names["router"], Group.ROUTER, part.router_dtype_bits
    yield Weight(name=path, group=group, rows=part.num_experts, cols=hidden_size, dtype_bits=bits)
    if part.has_router_bias:
        yield Weight(
            name=f"{path}.bias",
            group=group,
            rows=part.num_experts,
            dtype_bits=bits,
            is_matmul=False,
        )
    if part.has_correction_bias:
        yield Weight(
            name=f"{path}.e_score_correction_bias",
            group=group,
            rows=part.num_experts,
            dtype_bits=32,
            is_matmul=False,
            is_parameter=False,
        )
    if part.has_expert_scale:
        yield vector(f"{path}.scale", group, hidden_size)
        yield vector(f"{path}.per_expert_scale", group, part.num_experts)


def _experts(part: Moe, path: str, rows: int, cols: int, shard: Shard) -> Iterator[Weight]:
    yield Weight(
        name=path, group=Group.EXPERTS, rows=rows, cols=cols, shard=shard, copies=part.num_experts
    )
    if part.has_bias:
        yield Weight(
            name=f"{path}.bias",
            group=Group.EXPERTS,
            rows=rows,
            shard=Shard.REPLICATED if shard is Shard.ROW else shard,
            copies=part.num_experts,
            is_matmul=False,
        )


def extra_weights(part: Extra) -> Iterator[Weight]:
    """One family's own small weights."""
    for name, rows, cols in part.shapes:
        is_matmul = cols > 1
        yield Weight(name=name, group=Group.OTHER, rows=rows, cols=cols, is_matmul=is_matmul)
    yield from part.weights
