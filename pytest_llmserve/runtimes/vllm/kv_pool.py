"""Blocks, capacity and the start-up check of one rank's pool, by version.

All figures are exact once the pool's size in bytes is known. Source: vLLM 0.33.0
``v1/core/kv_cache_utils.py`` and the versions named in :mod:`version_rules`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_llmserve.units import GIB

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.kv_groups import RankLayout
    from pytest_llmserve.runtimes.vllm.kv_specs import KvSpec
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings
    from pytest_llmserve.runtimes.vllm.version_rules import KvRules

NO_MEMORY_SAYS: Final = (
    "No available memory for the cache blocks. "
    "Try increasing `gpu_memory_utilization` when initializing the engine."
)
_AUTO_FIT_SAYS: Final = (
    "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token."
)
_V1_RUNNER_METHODS: Final = ("suffix", "medusa", "mlp_speculator", "custom_class")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KvCheck:
    """The start-up check: does one request of ``max_model_len`` fit the pool?"""

    fits: bool
    max_model_len: int
    need_bytes: int
    available_bytes: int
    """What the check compares with: the pool, less the null block since 0.29."""
    estimated_max_len: int
    server_says: str
    """The server's own words where it refuses, else empty."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankPool:
    """One rank's cache layout with all that decides how many blocks a request takes."""

    layout: RankLayout
    rules: KvRules
    in_flight_tokens: int
    """Tokens that may be in flight beyond a window: batched tokens x concurrent batches."""
    token_shards: int = 1
    """Ranks that a request's tokens are spread over (context parallelism)."""
    printed_shards: int = 1
    encoder_tokens: int | None = None
    """What cross attention is sized with; ``None``: the encoder's longest input."""
    blocks_override: int | None = None
    checked: RankLayout | None = None
    """The layout whose need the check asks for, where that is not this rank's own."""
    _counted: tuple[tuple[KvSpec, int], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Most groups are equal: count each kind once.
        object.__setattr__(self, "_counted", tuple(Counter(self.layout.specs).items()))

    def num_blocks(self, pool_bytes: int) -> int:
        """Blocks of a pool of this size; the null block is one of them."""
        if self.blocks_override is not None:
            return self.blocks_override
        if not self.layout.bytes_per_block:
            return 1
        return max(0, pool_bytes) // self.layout.bytes_per_block

    def blocks_of(self, spec: KvSpec, num_tokens: int) -> int:
        """The most blocks that one request of this length takes in a group of such layers."""
        block = spec.block_size
        if spec.kind == "mamba":
            return _cdiv(num_tokens, block) if spec.state_blocks is None else spec.state_blocks
        if spec.encoder_tokens is not None:
            kept = spec.encoder_tokens if self.encoder_tokens is None else self.encoder_tokens
            return _cdiv(kept, block)
        if spec.kind == "sliding" and spec.window is not None:
            kept = min(spec.window - 1 + self.in_flight_tokens, num_tokens)
            return _cdiv(kept, block) + 1
        if spec.kind == "chunked" and spec.window is not None:
            return _cdiv(min(spec.window + self.in_flight_tokens, num_tokens), block)
        return _cdiv(_cdiv(num_tokens, self.token_shards), block)

    def request_blocks(self, num_tokens: int) -> int:
        """The most blocks that one request of this length takes, over all groups."""
        return sum(count * self.blocks_of(spec, num_tokens) for spec, count in self._counted)

    def need_bytes(self, num_tokens: int) -> int:
        """Bytes that the start-up check asks for one request of this length."""
        layout = self.checked or self.layout
        if not layout.specs:
            return 0
        if self.rules.check == "layers":
            return sum(
                count * spec.page_bytes * self.blocks_of(spec, num_tokens)
                for spec, count in layout.layers
            )
        if self.rules.check == "first_group":
            return layout.bytes_per_block * self.blocks_of(layout.specs[0], num_tokens)
        return layout.bytes_per_block * self.request_blocks(num_tokens)

    def request_bytes(self, num_tokens: int) -> int:
        """Bytes that a request of this length really holds while it decodes.

        Windows keep only what attention still reads; states keep the running one, and the last
        cached one where prefixes are cached; cross attention keeps the encoder's longest input.
        """
        blocks = 0
        for spec, count in self._counted:
            most = self.blocks_of(spec, num_tokens)
            if spec.window is not None and spec.kind in ("sliding", "chunked"):
                kept = min(spec.window, num_tokens)
                most = min(most, _cdiv(kept, spec.block_size) + 1)
            if spec.encoder_tokens is not None:
                most = _cdiv(spec.encoder_tokens, spec.block_size)
            blocks += count * most
        return self.layout.bytes_per_block * blocks

    def capacity(self, num_blocks: int, max_model_len: int) -> tuple[int, float]:
        """What the server prints: ``GPU KV cache size`` in tokens and ``Maximum concurrency``."""
        specs = self.layout.specs
        if not specs:
            return 0, 0.0
        smallest = min(spec.block_size for spec in specs)
        if self.rules.capacity == "blocks":
            tokens = num_blocks * smallest
            return tokens, tokens / max_model_len
        concurrency = num_blocks / self.request_blocks(max_model_len)
        if self.rules.capacity == "concurrency":
            return int(concurrency * max_model_len), concurrency
        return num_blocks // len(specs) * smallest * self.printed_shards, concurrency

    def check_bytes(self, pool_bytes: int) -> int:
        """The memory that the start-up check compares the need with."""
        if self.blocks_override is not None and self.rules.override_counts_in_check:
            pool_bytes = self.blocks_override * self.layout.bytes_per_block
        if self.rules.reserves_null_block:
            pool_bytes -= self.layout.bytes_per_block
        return pool_bytes

    def estimate_max_len(self, pool_bytes: int, limit: int) -> int:
        """The longest request, up to ``limit`` tokens, that the start-up check admits; 0: none."""
        memory = self.check_bytes(pool_bytes)
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.need_bytes(middle) <= memory:
                low = middle
            else:
                high = middle - 1
        return low

    def check(self, pool_bytes: int, max_model_len: int, *, is_auto: bool = False) -> KvCheck:
        """What the server answers at start-up for a pool of this size.

        ``is_auto``: ``max_model_len`` is only the upper end (``--max-model-len auto``).
        """
        memory = self.check_bytes(pool_bytes)
        estimate = self.estimate_max_len(pool_bytes, max_model_len)
        length = estimate if is_auto else max_model_len
        need = self.need_bytes(length)
        has_memory = not self.layout.specs or (pool_bytes > 0 and memory > 0)
        says = ""
        if not has_memory:
            says = NO_MEMORY_SAYS
        elif is_auto and estimate == 0:
            says = _AUTO_FIT_SAYS
        elif need > memory:
            says = self._too_small_says(length, need, memory, estimate)
        return KvCheck(
            fits=not says,
            max_model_len=length,
            need_bytes=need,
            available_bytes=memory,
            estimated_max_len=estimate,
            server_says=says,
        )

    def _too_small_says(self, length: int, need: int, memory: int, estimate: int) -> str:
        says = (
            f"To serve at least one request with the {self.rules.model_possessive} max seq len "
            f"({length}), ({round(need / GIB, 2)} GiB KV cache is needed, which is larger than "
            f"the available KV cache memory ({round(memory / GIB, 2)} GiB)."
        )
        if estimate:
            says += (
                f" Based on the available memory, the estimated maximum model length is {estimate}."
            )
        return says


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def concurrent_batches(settings: VllmSettings, rules: KvRules, model: ModelSpec) -> int:
    """Batches in flight at once, by which windows are sized since 0.26.

    2 with async scheduling; pipelines keep one more than their stages where the second model
    runner schedules them asynchronously (dense models since 0.28, all since 0.29).
    """
    if not rules.counts_in_flight:
        return 1
    stages = settings.pipeline_parallel_size.value
    if stages == 1:
        return 2 if settings.async_scheduling.value else 1
    is_dense = all(group.layer.experts is None for group in model.layer_groups)
    is_second_runner = (
        (rules.has_second_runner or (rules.has_second_runner_if_dense and is_dense))
        and settings.env.get("VLLM_USE_V2_MODEL_RUNNER", "1") != "0"
        and settings.speculative_method.value not in _V1_RUNNER_METHODS
    )
    return stages + 1 if is_second_runner and settings.async_scheduling.value else stages


def rank_pool(
    layout: RankLayout,
    settings: VllmSettings,
    rules: KvRules,
    model: ModelSpec,
    *,
    checked: RankLayout | None = None,
) -> RankPool:
    """The pool of a rank that keeps this layout; ``checked``: as in :class:`RankPool`."""
    dcp = settings.decode_context_parallel_size.value
    pcp = settings.prefill_context_parallel_size.value
    batched = settings.max_num_batched_tokens.value
    return RankPool(
        layout=layout,
        rules=rules,
        in_flight_tokens=batched * concurrent_batches(settings, rules, model),
        token_shards=dcp * (pcp if rules.shards_pcp else 1),
        printed_shards=(dcp if rules.multiplies_dcp else 1) * (pcp if rules.multiplies_pcp else 1),
        encoder_tokens=batched if rules.counts_encoder_budget else None,
        blocks_override=settings.num_gpu_blocks_override.value,
        checked=checked,
    )
