"""From a ``Shape`` to its ``ModelSpec``: the one place where weights and caches are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pytest_llmserve.models import build_layers as layers
from pytest_llmserve.models.names import names_of
from pytest_llmserve.models.parts import (
    Attention,
    Block,
    CrossAttention,
    Extra,
    Latent,
    Mlp,
    Moe,
)
from pytest_llmserve.models.spec import (
    Cache,
    Experts,
    Group,
    Layer,
    LayerGroup,
    ModelSpec,
    Shard,
    Weight,
)

if TYPE_CHECKING:
    from pytest_llmserve.models.parts import Part
    from pytest_llmserve.models.shape import Shape

Names = Mapping[str, str]


def build(
    shape: Shape, *, model_id: str, source: str, checkpoint_bytes: int | None = None
) -> ModelSpec:
    """The exact weights and caches of a shape."""
    names = names_of(shape.names)
    attention = _headline_heads(shape)
    return ModelSpec(
        id=model_id,
        architecture=shape.architecture,
        model_type=shape.model_type,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        num_layers=shape.num_layers,
        num_attention_heads=attention[0],
        num_kv_heads=attention[1],
        intermediate_sizes=_intermediate_sizes(shape),
        layer_groups=tuple(
            LayerGroup(layer=_layer(block, shape, names), indices=indices)
            for block, indices in shape.blocks
        ),
        outside=tuple(_outside(shape, names)),
        vision=shape.vision,
        is_tied=shape.is_tied,
        dtype=shape.dtype,
        limits=shape.limits,
        quantization=shape.quantization,
        rotary_tables=shape.rotary_tables,
        is_multimodal=shape.is_multimodal,
        vision_num_heads=shape.vision_num_heads,
        vision_intermediate_sizes=shape.vision_intermediate_sizes,
        layers_path=shape.layers_path,
        has_vocab_on_every_stage=shape.has_vocab_on_every_stage,
        has_embedding_on_every_stage=shape.has_embedding_on_every_stage,
        checkpoint_bytes=checkpoint_bytes,
        unsupported=shape.unsupported,
        source=source,
    )


def _layer(block: Block, shape: Shape, names: Names) -> Layer:
    hidden = shape.hidden_size
    weights: list[Weight] = []
    caches: list[Cache] = []
    experts: Experts | None = None
    for part in block.parts:
        made, kept = _weights_and_caches(part, hidden, names)
        weights.extend(made)
        caches.extend(kept)
        if isinstance(part, Moe):
            experts = Experts(
                num_experts=part.num_experts,
                num_experts_per_tok=part.num_experts_per_tok,
                moe_intermediate_size=part.intermediate_size,
            )
    if block.norms:
        weights.extend(_norms(names["norm"], shape, block.norms))
    return Layer(caches=tuple(caches), weights=tuple(weights), experts=experts)


def _weights_and_caches(
    part: Part, hidden_size: int, names: Names
) -> tuple[Iterator[Weight], Iterator[Cache]]:
    match part:
        case Attention():
            weights = layers.attention_weights(part, hidden_size, names)
            return weights, layers.attention_caches(part)
        case CrossAttention():
            weights = layers.cross_weights(part, hidden_size, names)
            return weights, layers.cross_caches(part)
        case Latent():
            weights = layers.latent_weights(part, hidden_size, names)
            return weights, layers.latent_caches(part)
        case Mlp():
            return layers.mlp_weights(part, hidden_size, names), iter(())
        case Moe():
            return layers.moe_weights(part, hidden_size, names), iter(())
        case Extra():
            return layers.extra_weights(part), iter(())
        case _:
            from pytest_llmserve.models.build_state import state_weights_and_caches

            return state_weights_and_caches(part, hidden_size, names)


def _norms(name: str, shape: Shape, count: int) -> Iterator[Weight]:
    for path in (name, f"{name}.bias") if shape.has_norm_bias else (name,):
        yield Weight(
            name=path,
            group=Group.NORM,
            rows=shape.hidden_size,
            copies=count,
            is_matmul=False,
        )


def _outside(shape: Shape, names: Names) -> Iterator[Weight]:
    width = shape.embedding_size or shape.hidden_size
    yield Weight(
        name=names["embedding"],
        group=Group.EMBEDDING,
        rows=shape.vocab_size,
        cols=width,
        shard=Shard.REPLICATED if shape.has_whole_embedding else Shard.VOCAB,
        is_matmul=False,
    )
    yield from shape.extra
    if shape.has_final_norm:
        yield from _norms(names["final_norm"], shape, 1)
    if not shape.is_tied:
        yield Weight(
            name=names["lm_head"],
            group=Group.LM_HEAD,
            rows=shape.vocab_size,
            cols=width,
            shard=Shard.VOCAB,
        )
    if shape.has_lm_head_bias:
        bias = f"{names['lm_head']}.bias"
        yield layers.vector(bias, Group.LM_HEAD, shape.vocab_size, Shard.VOCAB)


def _headline_heads(shape: Shape) -> tuple[int, int]:
    """Heads and KV heads as headlines: of the first attention layer, 0 and 0 without one."""
    for block, _ in shape.blocks:
        for part in block.parts:
            if isinstance(part, Attention):
                return part.num_heads, part.num_kv_heads
            if isinstance(part, Latent):
                return part.num_heads, part.num_heads
    return 0, 0


def _intermediate_sizes(shape: Shape) -> tuple[int, ...]:
    sizes: set[int] = set()
    for block, _ in shape.blocks:
        for part in block.parts:
            if isinstance(part, Mlp | Moe):
                sizes.add(part.intermediate_size)
            if isinstance(part, Moe) and part.shared_intermediate_size:
                sizes.add(part.shared_intermediate_size)
    return tuple(sorted(sizes))
