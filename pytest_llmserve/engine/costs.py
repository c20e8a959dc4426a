"""``StepCosts``: the coefficients of a model's work on one GPU, from which every step is computed.

Made once per model and rank; a step of any batch and context is then a few multiplications, on
Python ints or on numpy arrays. Everything is a lower bound of what must be read or computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pytest_llmserve.engine.attention import cache_token_bytes, dtype_bits, state_bytes
from pytest_llmserve.engine.exact import cdiv
from pytest_llmserve.engine.kv_formats import AUTO
from pytest_llmserve.engine.parallel import Rank, local_shape
from pytest_llmserve.engine.positions import Reach
from pytest_llmserve.engine.weights import RankStore
from pytest_llmserve.models.spec import (
    CrossCache,
    Group,
    IndexerCache,
    KvCache,
    LatentCache,
    SharedCache,
    StateCache,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.engine.weights import SchemeOf
    from pytest_llmserve.models.spec import Layer, ModelSpec, Weight

# Read in rows by token id, or not in a text step at all.
_NOT_STREAMED: Final = (Group.EMBEDDING, Group.VISION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertCosts:
    """The routed experts of equal layers: bytes and FLOPs of one expert, over those layers."""

    num_experts: int
    """Experts on the fullest rank."""
    total_experts: int
    """Experts of the model, of which a token chooses."""
    floor_experts: int
    """Experts that a step reads at least on the busiest rank, however tokens are routed."""
    experts_per_token: int
    bytes_each: int
    flops_per_token: int
    """Of all the experts that a token visits, on an average rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCosts:
    """Layers with equal attention, summed: FLOPs of a query-key pair, bytes of a cached token."""

    reach: Reach
    decode_flops_per_pair: int
    prefill_flops_per_pair: int
    bytes_per_token: int
    """Of one cached token in these layers."""

    def plus(self, other: AttentionCosts) -> AttentionCosts:
        """Both together; they reach equally far."""
        return AttentionCosts(
            reach=self.reach,
            decode_flops_per_pair=self.decode_flops_per_pair + other.decode_flops_per_pair,
            prefill_flops_per_pair=self.prefill_flops_per_pair + other.prefill_flops_per_pair,
            bytes_per_token=self.bytes_per_token + other.bytes_per_token,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """What one GPU must read and compute, in coefficients of batch and tokens."""

    name: str
    weight_bytes: int
    """Streamed in every step: all but the input embedding, the vision tower and the experts."""
    flops_per_token: int
    """Of every token through the layers' matrices, 2 x parameters; experts apart."""
    head_flops_per_token: int
    """Of the tokens whose logits are needed."""
    activation_bytes_per_token: int
    """Inputs and outputs of each matrix: moved by GEMMs, no part of a floor."""
    embedding_bytes_per_token: int
    state_bytes: int
    """Recurrent states of one sequence: read and written in each decode step."""
    state_flops_per_token: int
    experts: tuple[ExpertCosts, ...] = ()
    attention: tuple[AttentionCosts, ...] = ()
    num_layers: int = 0
    """Layers that a step launches one after the other; 0 where no shape is known."""
    num_gpus: int = 1
    """GPUs of the tensor-parallel group whose results each layer sums up."""
    reduced_bytes_per_token: int = 0
    """Partial results that tensor parallelism adds up over all GPUs: two vectors a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalModel:
    """A model of which only the number of parameters is known: every one is read and used.

    70e9 parameters of 2 bytes: 140 GB and 140 GFLOP a token, 1 FLOP/byte.
    """

    num_params: int
    bytes_per_param: int = 2
    kv_bytes_per_token: int = 0

    def costs(self, tensor_parallel_size: int = 1) -> StepCosts:
        """The coefficients; attention FLOPs are left out, since no shape is known."""
        kv = self.kv_bytes_per_token // tensor_parallel_size
        attention = AttentionCosts(
            reach=Reach(),
            decode_flops_per_pair=0,
            prefill_flops_per_pair=0,
            bytes_per_token=kv,
        )
        return StepCosts(
            name=f"{self.num_params / 1e9:g}e9 parameters x {self.bytes_per_param} B",
            weight_bytes=self.num_params * self.bytes_per_param // tensor_parallel_size,
            flops_per_token=2 * self.num_params // tensor_parallel_size,
            head_flops_per_token=0,
            activation_bytes_per_token=0,
            embedding_bytes_per_token=0,
            state_bytes=0,
            state_flops_per_token=0,
            attention=(attention,) if kv else (),
        )


def step_costs(
    spec: ModelSpec,
    rank: Rank | None = None,
    scheme_of: SchemeOf | None = None,
    *,
    kv_cache_dtype: str = AUTO,
    model_dtype_bits: int | None = None,
) -> StepCosts:
    """The coefficients of a model on one GPU of a tensor-parallel group, all its layers.

    A token passes the pipeline stages one after the other, so stages divide nothing here.

    Args:
        spec: the model.
        rank: parallel sizes; ``None``: one GPU. Its pipeline stage is not looked at.
        scheme_of: storage scheme by module path; ``None``: nothing is quantised.
        kv_cache_dtype: the runtime's word; ``auto`` is the model's dtype.
        model_dtype_bits: width of the serving dtype; ``None``: the checkpoint's.

    Raises:
        ShardingError: a dimension that a parallel size does not divide.
        KvDtypeError: a KV dtype that is unknown for one of the model's caches.
        SchemeError: a storage scheme whose bytes are not known.
    """
    rank = rank or Rank()
    whole = Rank(
        tensor_parallel_size=rank.tensor_parallel_size,
        expert_ranks=rank.expert_ranks,
        has_expert_parallel=rank.has_expert_parallel,
    )
    bits = model_dtype_bits or dtype_bits(spec.dtype)
    builder = _Builder(
        spec=spec,
        rank=whole,
        store=RankStore.of(spec, whole, scheme_of, bits),
        bits=bits,
        kv_cache_dtype=kv_cache_dtype,
    )
    return builder.build()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Builder:
    spec: ModelSpec
    rank: Rank
    store: RankStore
    bits: int
    kv_cache_dtype: str

    def build(self) -> StepCosts:
        spec = self.spec
        heads = [w for w in spec.outside if self._is_head(w)]
        streamed = [w for w in spec.outside if w.group not in _NOT_STREAMED or self._is_head(w)]
        weight_bytes = self.store.total_bytes(streamed)
        flops = activations = states = state_flops = 0
        for group in spec.layer_groups:
            layer, count = group.layer, len(group.indices)
            dense = [w for w in layer.weights if not _is_routed(w)]
            weight_bytes += sum(self.store.total_bytes(dense, index) for index in group.indices)
            flops += count * sum(self._flops(w) for w in dense)
            activations += count * sum(self._activation_bytes(layer, w) for w in layer.weights)
            for cache in layer.caches:
                if isinstance(cache, StateCache):
                    states += count * state_bytes(
                        cache,
                        model_dtype_bits=self.bits,
                        tensor_parallel_size=self.rank.tensor_parallel_size,
                    )
                    state_flops += count * _state_flops(cache, self.rank.tensor_parallel_size)
        return StepCosts(
            name=spec.id,
            weight_bytes=weight_bytes,
            flops_per_token=flops,
            head_flops_per_token=sum(2 * local_shape(w, self.rank).num_elements for w in heads),
            activation_bytes_per_token=activations,
            embedding_bytes_per_token=spec.hidden_size * self.bits // 8,
            state_bytes=states,
            state_flops_per_token=state_flops,
            experts=tuple(self._experts()),
            attention=self._attention(),
            num_layers=spec.num_layers,
            num_gpus=self.rank.tensor_parallel_size,
            reduced_bytes_per_token=self._reduced_bytes(),
        )

    def _reduced_bytes(self) -> int:
        """After attention and after the MLP, a vector of the model's width in each layer."""
        if self.rank.tensor_parallel_size == 1:
            return 0
        return 2 * self.spec.num_layers * self.spec.hidden_size * self.bits // 8

    def _is_head(self, weight: Weight) -> bool:
        """Whether the weight makes logits: lm_head, or a tied embedding of the model's width."""
        if weight.group is Group.LM_HEAD:
            return weight.is_matmul
        is_table = weight.rows == self.spec.vocab_size and weight.group is Group.EMBEDDING
        return self.spec.is_tied and is_table and weight.cols == self.spec.hidden_size

    def _flops(self, weight: Weight) -> int:
        return 2 * local_shape(weight, self.rank).num_elements if weight.is_matmul else 0

    def _activation_bytes(self, layer: Layer, weight: Weight) -> int:
        if not weight.is_matmul:
            return 0
        shape = local_shape(weight, self.rank)
        visits = weight.copies
        if _is_routed(weight) and layer.experts is not None:
            visits = layer.experts.num_experts_per_tok
        return visits * (shape.rows + shape.cols) * self.bits // 8

    def _experts(self) -> Iterator[ExpertCosts]:
        rank, tp = self.rank, self.rank.tensor_parallel_size
        for group in self.spec.layer_groups:
            experts = group.layer.experts
            routed = [w for w in group.layer.weights if _is_routed(w)]
            if experts is None or not routed:
                continue
            copies = local_shape(routed[0], rank).copies
            total = sum(self.store.total_bytes(routed, index) for index in group.indices)
            visited = experts.num_experts_per_tok
            elements = sum(w.rows * w.cols for w in routed if w.is_matmul) * len(group.indices)
            yield ExpertCosts(
                num_experts=copies,
                total_experts=experts.num_experts,
                # whole experts: some rank holds at least this many of those a token visits
                floor_experts=cdiv(visited, rank.expert_shards)
                if rank.has_expert_parallel
                else visited,
                experts_per_token=visited,
                bytes_each=total // copies,
                flops_per_token=2 * elements * visited // tp,
            )

    def _attention(self) -> tuple[AttentionCosts, ...]:
        has_indexer = any(
            isinstance(cache, IndexerCache)
            for group in self.spec.layer_groups
            for cache in group.layer.caches
        )
        found: dict[Reach, AttentionCosts] = {}
        for group in self.spec.layer_groups:
            for cache in group.layer.caches:
                # Keys of the encoder's output are read too: left out, so that a floor stays one.
                if isinstance(cache, StateCache | CrossCache):
                    continue
                more = self._cache(cache, group.layer, len(group.indices), has_indexer)
                known = found.get(more.reach)
                found[more.reach] = more if known is None else known.plus(more)
        return tuple(found.values())

    def _cache(
        self,
        cache: KvCache | LatentCache | IndexerCache | SharedCache,
        layer: Layer,
        count: int,
        has_indexer: bool,
    ) -> AttentionCosts:
        token_bytes = count * cache_token_bytes(
            cache,
            kv_cache_dtype=self.kv_cache_dtype,
            model_dtype_bits=self.bits,
            tensor_parallel_size=self.rank.tensor_parallel_size,
            is_latent_layer=any(isinstance(other, LatentCache) for other in layer.caches),
        )
        decode, prefill = _pair_flops(cache, self.rank.tensor_parallel_size)
        return AttentionCosts(
            reach=_reach(cache, has_indexer=has_indexer),
            decode_flops_per_pair=count * decode,
            prefill_flops_per_pair=count * prefill,
            bytes_per_token=token_bytes,
        )


def _is_routed(weight: Weight) -> bool:
    return weight.group is Group.EXPERTS and weight.copies > 1


def _pair_flops(
    cache: KvCache | LatentCache | IndexerCache | SharedCache, tensor_parallel_size: int
) -> tuple[int, int]:
    """FLOPs of one query-key pair in one layer on one rank, in decode and in prefill.

    2 x heads x (key size + value size). MLA decodes on the latent itself (its up-projections are
    absorbed) and prefills on expanded heads. An indexer's scores are left out.
    """
    match cache:
        case SharedCache():
            return _pair_flops(cache.attention, tensor_parallel_size)
        case KvCache():
            heads = max(1, cache.num_heads // tensor_parallel_size)
            flops = 2 * heads * (cache.head_dim + cache.v_head_dim)
            return flops, flops
        case LatentCache():
            heads = max(1, cache.num_heads // tensor_parallel_size)
            latent = 2 * cache.kv_lora_rank + cache.qk_rope_head_dim
            expanded = cache.qk_nope_head_dim + cache.qk_rope_head_dim + cache.v_head_dim
            return 2 * heads * latent, 2 * heads * expanded
        case IndexerCache():
            return 0, 0


def _reach(
    cache: KvCache | LatentCache | IndexerCache | SharedCache, *, has_indexer: bool
) -> Reach:
    if isinstance(cache, IndexerCache):
        return Reach()
    attention = cache.attention if isinstance(cache, SharedCache) else cache
    if isinstance(attention, KvCache) and attention.window is not None:
        kind: Literal["chunk", "window"] = "chunk" if attention.kind == "chunked" else "window"
        return Reach(kind, attention.window)
    # Where an indexer picks the tokens and its top-k is not known, one token is all that is sure.
    top = attention.max_attended_tokens or (1 if has_indexer else None)
    return Reach() if top is None else Reach("top", top)


def _state_flops(cache: StateCache, tensor_parallel_size: int) -> int:
    """Of one token: each element of a recurrent state is scaled, added to, and read out (x 2)."""
    elements = 0
    for tensor in cache.tensors:
        if tensor.role == "recurrent":
            size = 1
            for axis in tensor.shape:
                size *= axis
            elements += size // (tensor_parallel_size if tensor.sharded_axis is not None else 1)
    return 4 * elements
