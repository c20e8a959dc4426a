"""``Deployment``: a launch whose runtime, model, GPU and settings are known, and its ``Plan``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.manifests.launch import Launch
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.units import Interval
    from pytest_llmserve.verdict import Location, Problem

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Setting(Generic[T_co]):
    """A value and where it came from.

    ``source`` is said in messages: ``line 31``, ``vllm 0.33 default``, ``config.json``.
    ``location`` is set when the user wrote the value in a file.
    """

    value: T_co
    source: str
    location: Location | None = None

    @property
    def is_stated(self) -> bool:
        """Whether a person wrote the value, as opposed to a default."""
        return self.location is not None or self.source == "argument"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingSettings:
    """What every runtime decides, after its defaults; ``None`` where it depends on an unknown."""

    tensor_parallel_size: Setting[int]
    pipeline_parallel_size: Setting[int]
    data_parallel_size: Setting[int]
    max_model_len: Setting[int | None]
    max_num_seqs: Setting[int]
    max_num_batched_tokens: Setting[int]
    dtype: Setting[str | None]
    """Resolved: ``bfloat16``, ``float16`` or ``float32``; never ``auto``."""
    kv_cache_dtype: Setting[str]
    """``auto`` (the model's dtype) or the runtime's word for a quantised cache."""
    quantization: Setting[str | None]

    @property
    def world_size(self) -> int:
        """GPUs that one instance needs."""
        return (
            self.tensor_parallel_size.value
            * self.pipeline_parallel_size.value
            * self.data_parallel_size.value
        )


RefusalRule = Literal[
    "parallelism", "gpus", "context", "dtype", "quantization", "scheduler", "flags", "other"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The runtime would stop with an error, whatever the memory."""

    rule: RefusalRule
    headline: str
    """Our sentence: number first, at most 100 columns."""
    server_says: str
    """The runtime's own words, by which a user will search."""
    expected: str = ""
    location: Location | None = None
    is_certain: bool = True
    """False where the rule rests on an inference (marked so in the source)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deployment:
    """One server on one kind of GPU, ready to be planned and judged."""

    name: str
    location: Location | None
    runtime: str
    version: Setting[Version]
    is_version_assumed: bool
    model_ref: Setting[str] | None
    model: ModelSpec | None
    gpu: GpuSpec | None
    gpu_source: str
    gpu_location: Location | None
    gpu_count: Setting[int] | None
    """GPUs given to one instance; ``None`` where the files do not say."""
    settings: ServingSettings
    refusals: tuple[Refusal, ...] = ()
    problems: tuple[Problem, ...] = ()
    launch: Launch | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VramLedger:
    """Where the memory of the fullest GPU of an instance goes, in bytes.

    ``kv_available = budget - weights - activations - non_torch - graphs`` (graphs only where
    ``graphs_in_budget``); the sources say where each figure came from.
    """

    gpu_total_bytes: Interval
    budget_bytes: Interval
    weights_bytes: Interval
    activations_bytes: Interval
    non_torch_bytes: Interval
    graphs_bytes: Interval
    graphs_in_budget: bool
    kv_available_bytes: Interval
    sources: dict[str, str]
    """By field name without the unit: ``weights`` -> ``70.55e9 params x 2 B / TP 2``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """Layers whose blocks are handed out together."""

    num_layers: int
    kind: str
    block_size: int
    page_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KvPool:
    """The paged pool on the fullest GPU, for the expected size of the pool and both ends of it.

    ``capacity_tokens`` and ``max_concurrency`` are what the runtime prints; ``need_bytes`` is what
    its start-up check asks for one request of ``max_model_len``; ``request_bytes`` is what such a
    request really holds once it runs.
    """

    bytes_per_token: int
    block_size: int
    bytes_per_block: int
    groups: tuple[KvGroup, ...]
    max_model_len: int
    num_blocks: Interval
    capacity_tokens: Interval
    max_concurrency: tuple[float, float, float]
    request_bytes: int
    need_bytes: int
    check_bytes: Interval
    """What the start-up check compares the need with: the pool less what it reserves."""
    estimated_max_len: Interval
    """Longest single request that the pool would admit."""
    server_says: str = ""
    """The server's own words where it refuses at the expected size of the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A figure that cannot be told, and why, in words for the user."""

    what: str
    why: str
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What the runtime would do with the GPU; ``None`` where it cannot be told."""

    vram: VramLedger | None
    kv: KvPool | None
    unknown: tuple[Unknown, ...] = ()
