"""Bytes of a model's weights on one GPU: sharded, padded and quantised as a server stores them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from pytest_llmserve.engine.attention import dtype_bits
from pytest_llmserve.engine.parallel import LocalShape, Rank, local_shape
from pytest_llmserve.engine.quantized import Padding, Stored, block_scale_bytes, stored_bytes
from pytest_llmserve.models.spec import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_llmserve.models.spec import Layer, ModelSpec, Weight

    SchemeOf: TypeAlias = Callable[[str], str | None]
    """Storage scheme of a module path (``model.layers.0.mlp.up_proj``); ``None``: unquantised."""

# Matrices that servers fuse into one: the block grid of FP8 scales lies over the fused matrix.
FUSED: Final[Mapping[str, str]] = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "w1": "w13",
    "w3": "w13",
    "q_a_proj": "fused_qkv_a_proj",
    "kv_a_proj_with_mqa": "fused_qkv_a_proj",
    "in_proj_qkv": "in_proj_qkvz",
    "in_proj_z": "in_proj_qkvz",
}
# Where whole experts are dealt out, each rank keeps an int32 for every expert of a layer: which of
# its own it is, or none (vLLM 0.32, ``expert_map``).
EXPERT_MAP_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Bytes of weights on one rank, by group, with the cos/sin tables beside them."""

    bytes_by_group: Mapping[Group, int]
    rotary_bytes: int

    @property
    def total_bytes(self) -> int:
        """All weights and tables of the rank."""
        return sum(self.bytes_by_group.values()) + self.rotary_bytes


def weight_bytes_on_rank(
    spec: ModelSpec,
    rank: Rank | None = None,
    scheme_of: SchemeOf | None = None,
    *,
    model_dtype_bits: int | None = None,
    mxfp4_padding: Padding | None = None,
    layer_extra_bytes: Callable[[Layer], int] | None = None,
) -> RankWeights:
    """Bytes of weights and buffers that a server holds on one rank after loading.

    Args:
        spec: the model.
        rank: the GPU's place; ``None``: one GPU holds all.
        scheme_of: storage scheme by module path; ``None``: nothing is quantised.
        model_dtype_bits: width of the serving dtype; ``None``: the checkpoint's.
        mxfp4_padding: how the runtime's kernels pad MXFP4 experts; ``None``: not at all.
        layer_extra_bytes: what the runtime keeps for a layer besides its weights, such as the
            scalars that scale attention; ``None``: nothing.

    Raises:
        ShardingError: a dimension that a parallel size does not divide.
        SchemeError: a scheme whose bytes are not known.
    """
    rank = rank or Rank()
    bits = model_dtype_bits or dtype_bits(spec.dtype)
    store = RankStore.of(spec, rank, scheme_of, bits, mxfp4_padding)
    total: Counter[Group] = Counter()
    stage = rank.layers(spec)
    for group in spec.layer_groups:
        indices = [index for index in group.indices if index in stage]
        for index in indices:
            total.update(store.bytes_by_group(group.layer.weights, index))
        if layer_extra_bytes is not None:
            total[Group.OTHER] += layer_extra_bytes(group.layer) * len(indices)
        if group.layer.experts is not None and rank.has_expert_parallel:
            map_bytes = EXPERT_MAP_BYTES * group.layer.experts.num_experts
            total[Group.ROUTER] += map_bytes * len(indices)
    outside = [w for w in spec.outside if _is_on_stage(spec, w, rank)]
    outside += spec.vision if rank.has_vision else ()
    total.update(store.bytes_by_group(outside))
    return RankWeights(bytes_by_group=dict(total), rotary_bytes=_rotary_bytes(spec, bits))


def absorbed_mla_bytes_on_rank(
    spec: ModelSpec, rank: Rank, scheme_of: SchemeOf, *, model_dtype_bits: int | None = None
) -> int:
    """Bytes of the dequantised copies of ``kv_b_proj`` that MLA keeps beside a quantised one.

    heads / TP x kv_lora_rank x (qk_nope + v_head_dim) x dtype bytes per layer (vLLM 0.33);
    unquantised: views of the weight, nothing extra.
    """
    bits = model_dtype_bits or dtype_bits(spec.dtype)
    total = 0
    for group in spec.layer_groups:
        for weight in group.layer.weights:
            if not weight.name.endswith("kv_b_proj"):
                continue
            quantised = sum(
                scheme_of(f"{spec.layers_path}.{index}.{weight.name}") is not None
                for index in group.indices
                if index in rank.layers(spec)
            )
            total += quantised * local_shape(weight, rank).num_elements * bits // 8
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStore:
    """Turns weights into bytes on one rank; equal layers stored alike are computed once."""

    spec: ModelSpec
    rank: Rank
    scheme_of: SchemeOf | None
    bits: int
    padding: Padding | None
    _seen: dict[tuple[tuple[int, ...], tuple[str | None, ...]], Counter[Group]] = field(
        default_factory=dict
    )

    @classmethod
    def of(
        cls,
        spec: ModelSpec,
        rank: Rank,
        scheme_of: SchemeOf | None,
        bits: int,
        padding: Padding | None = None,
    ) -> RankStore:
        """A store of a model on a rank, for weights of ``bits`` unless they say otherwise."""
        is_plain = spec.quantization is None
        return cls(
            spec=spec,
            rank=rank,
            scheme_of=None if is_plain else scheme_of,
            bits=bits,
            padding=padding,
        )

    def total_bytes(self, weights: Sequence[Weight], index: int | None = None) -> int:
        """Bytes of weights of the layer at ``index``, or (``None``) outside the layers."""
        return sum(self.bytes_by_group(weights, index).values())

    def bytes_by_group(self, weights: Sequence[Weight], index: int | None = None) -> Counter[Group]:
        """The same by group; the weights are the spec's own objects."""
        prefix = "" if index is None else f"{self.spec.layers_path}.{index}."
        schemes: tuple[str | None, ...] = (None,) * len(weights)
        if self.scheme_of is not None:
            scheme_of = self.scheme_of
            schemes = tuple(scheme_of(prefix + w.name) if w.is_matmul else None for w in weights)
        key = (tuple(map(id, weights)), schemes)
        if key not in self._seen:
            self._seen[key] = self._compute(weights, schemes)
        return self._seen[key]

    def _compute(self, weights: Sequence[Weight], schemes: Sequence[str | None]) -> Counter[Group]:
        total: Counter[Group] = Counter()
        fused: dict[str, list[Stored]] = {}
        quantization = self.spec.quantization
        is_padded = self._has_mxfp4_experts(weights, schemes)
        for weight, scheme in zip(weights, schemes, strict=True):
            shape = local_shape(weight, self.rank)
            if is_padded and self.padding and weight.group is Group.EXPERTS:
                shape = LocalShape(*self.padding.apply(weight, shape), shape.copies)
            if scheme is None or quantization is None:
                total[weight.group] += shape.num_elements * (weight.dtype_bits or self.bits) // 8
                continue
            stored = Stored(weight=weight, shape=shape, scheme=scheme)
            total[weight.group] += stored_bytes(stored, quantization)
            if scheme == "fp8_block":
                fused.setdefault(_fused_name(weight.name), []).append(stored)
        if quantization is not None:
            for parts in fused.values():
                total[parts[0].weight.group] += block_scale_bytes(parts, quantization)
        return total

    @staticmethod
    def _has_mxfp4_experts(weights: Iterable[Weight], schemes: Iterable[str | None]) -> bool:
        pairs = zip(weights, schemes, strict=True)
        return any(w.group is Group.EXPERTS and scheme == "mxfp4" for w, scheme in pairs)


def _fused_name(name: str) -> str:
    parent, _, last = name.rpartition(".")
    return f"{parent}.{FUSED.get(last, last)}"


def _is_on_stage(spec: ModelSpec, weight: Weight, rank: Rank) -> bool:
    """Whether a weight outside the layers is on this pipeline stage."""
    if spec.has_vocab_on_every_stage:
        return True
    match weight.group:
        case Group.EMBEDDING:
            is_head = spec.is_tied and rank.is_last_stage
            return rank.is_first_stage or is_head or spec.has_embedding_on_every_stage
        case Group.LM_HEAD | Group.NORM:
            return rank.is_last_stage
        case _:
            return True


def _rotary_bytes(spec: ModelSpec, bits: int) -> int:
    tables = spec.rotary_tables
    return sum(t.rows * t.width * (t.dtype_bits or bits) // 8 for t in tables)
