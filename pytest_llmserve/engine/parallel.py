"""How tensor, pipeline and expert parallelism cut a model: what one rank holds of a dimension."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.exact import cdiv
from pytest_llmserve.models.spec import Group, Shard

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec, Weight

VOCAB_MULTIPLE: Final = 64
"""``DEFAULT_VOCAB_PADDING_SIZE`` of vLLM's vocab_parallel_embedding.py."""


class ShardingError(ValueError):
    """A dimension that the parallel size does not divide; the message names both."""

    def __init__(self, dimension: str, size: int, divisor: int) -> None:
        super().__init__(f"{dimension} {size} is not divisible by {divisor}")
        self.dimension = dimension
        self.size = size
        self.divisor = divisor


class PartitionError(ValueError):
    """A layer partition that does not give every stage its layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One GPU of an instance, as far as its place decides what it holds.

    ``expert_ranks`` is the number of ranks that share the routed experts: TP x DP x PCP in vLLM,
    ``None``: as many as ``tensor_parallel_size``. They share by whole experts where
    ``has_expert_parallel``, else each cuts every expert's width.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    pipeline_stage: int = 0
    layer_partition: tuple[int, ...] | None = None
    """Layers of each stage as the user dealt them (``VLLM_PP_LAYER_PARTITION``)."""
    expert_ranks: int | None = None
    has_expert_parallel: bool = False
    is_vision_replicated: bool = False
    """A full copy of the vision tower on every rank (``--mm-encoder-tp-mode data``)."""
    has_vision: bool = True
    """False where the tower is left out (``--language-model-only``)."""

    def __post_init__(self) -> None:
        if min(self.tensor_parallel_size, self.pipeline_parallel_size) < 1:
            raise ValueError("parallel sizes must be at least 1")
        if not 0 <= self.pipeline_stage < self.pipeline_parallel_size:
            raise ValueError(
                f"pipeline stage {self.pipeline_stage} is not one of {self.pipeline_parallel_size}"
            )

    @property
    def is_first_stage(self) -> bool:
        """Whether this stage reads the token ids."""
        return self.pipeline_stage == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this stage writes the logits."""
        return self.pipeline_stage == self.pipeline_parallel_size - 1

    @property
    def expert_shards(self) -> int:
        """Ranks that share the routed experts."""
        return self.expert_ranks or self.tensor_parallel_size

    def layers(self, spec: ModelSpec) -> range:
        """Positions of the layers on this rank's pipeline stage."""
        stages = stage_layers(spec.num_layers, self.pipeline_parallel_size, self.layer_partition)
        return stages[self.pipeline_stage]


def stage_layers(
    num_layers: int, pipeline_parallel_size: int, partition: tuple[int, ...] | None = None
) -> tuple[range, ...]:
    """The layers of each pipeline stage.

    Without a partition they are dealt evenly; a remainder goes one each to the stages from the
    second-to-last backwards (vLLM 0.33, ``get_pp_indices``): 61 layers in 2 stages are 31 + 30.

    Raises:
        PartitionError: the partition has another number of stages or of layers.
    """
    if partition is None:
        share, rest = divmod(num_layers, pipeline_parallel_size)
        counts = [share] * pipeline_parallel_size
        for back in range(2, rest + 2):
            counts[-back] += 1
    else:
        counts = list(partition)
        if len(counts) != pipeline_parallel_size or sum(counts) != num_layers:
            raise PartitionError(
                f"layer partition {','.join(map(str, counts))} must have "
                f"{pipeline_parallel_size} entries that add up to {num_layers} layers"
            )
    ends = list(accumulate(counts))
    return tuple(range(end - count, end) for end, count in zip(ends, counts, strict=True))


def divide(dimension: str, size: int, divisor: int) -> int:
    """``size / divisor`` where it is whole.

    Raises:
        ShardingError: it is not.
    """
    if size % divisor:
        raise ShardingError(dimension, size, divisor)
    return size // divisor


def padded_vocab_rows(vocab_rows: int, tensor_parallel_size: int) -> int:
    """Rows of a vocabulary matrix on one rank: padded to a multiple of 64, then divided."""
    padded = cdiv(vocab_rows, VOCAB_MULTIPLE) * VOCAB_MULTIPLE
    return divide(
        f"vocabulary (padded to a multiple of {VOCAB_MULTIPLE})", padded, tensor_parallel_size
    )


def local_kv_heads(num_kv_heads: int, tensor_parallel_size: int) -> int:
    """KV heads of one rank: the share of the heads, but at least one (then a copy)."""
    return max(1, num_kv_heads // tensor_parallel_size)


@dataclass(frozen=True, slots=True)
class LocalShape:
    """What one rank stores of a weight: ``copies`` matrices of ``rows`` x ``cols``."""

    rows: int
    cols: int
    copies: int

    @property
    def num_elements(self) -> int:
        """Elements of all copies."""
        return self.rows * self.cols * self.copies


def local_shape(weight: Weight, rank: Rank) -> LocalShape:
    """The part of a weight that a rank stores; for experts dealt whole, of the fullest rank.

    Raises:
        ShardingError: a dimension that the parallel size does not divide.
    """
    shards, copies = rank.tensor_parallel_size, weight.copies
    if weight.group is Group.EXPERTS:
        shards = rank.expert_shards
        if rank.has_expert_parallel:
            return LocalShape(weight.rows, weight.cols, cdiv(copies, shards))
    elif weight.group is Group.VISION and rank.is_vision_replicated:
        shards = 1
    rows, cols = weight.rows, weight.cols
    match weight.shard:
        case Shard.COLUMN:
            rows = divide(f"{weight.name} output", rows, shards)
        case Shard.ROW:
            cols = divide(f"{weight.name} input", cols, shards)
        case Shard.KV:
            rows = _kv_rows(weight, shards)
        case Shard.VOCAB:
            rows = padded_vocab_rows(rows, shards)
        case Shard.REPLICATED:
            pass
    return LocalShape(rows, cols, copies)


def _kv_rows(weight: Weight, shards: int) -> int:
    heads = weight.kv_heads
    if heads % shards and shards % heads:
        raise ShardingError(f"{weight.name} KV heads", heads, shards)
    return local_kv_heads(heads, shards) * divide(f"{weight.name} output", weight.rows, heads)
