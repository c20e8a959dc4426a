"""Bytes that a model caches: per token, per request and per state, by attention kind.

The closed form of plain attention is ``2 x layers x kv_heads x head_dim x tokens x batch x bytes``
(:func:`kv_bytes`); the rest is what windows, MLA, indexers, shared caches and recurrent states
change about it. Bytes are per GPU (per tensor-parallel rank) unless said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, overload

from pytest_llmserve.engine.exact import add, integers, like, minimum, mul
from pytest_llmserve.engine.kv_formats import (
    AUTO,
    KvDtypeError,
    indexer_token_bytes,
    kv_head_token_bytes,
    latent_token_bytes,
)
from pytest_llmserve.engine.parallel import divide, local_kv_heads
from pytest_llmserve.models.spec import (
    CrossCache,
    IndexerCache,
    KvCache,
    LatentCache,
    SharedCache,
    StateCache,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.engine.exact import Count, IntLike
    from pytest_llmserve.models.spec import Cache, ModelSpec

__all__ = [
    "KvDtypeError",
    "RequestBytes",
    "cache_token_bytes",
    "cached_tokens",
    "dtype_bits",
    "kv_bytes",
    "kv_bytes_per_request",
    "kv_bytes_per_token",
    "kv_head_token_bytes",
    "local_kv_heads",
    "request_bytes",
    "state_bytes",
]

_DTYPE_BITS: Final = {"bfloat16": 16, "float16": 16, "float32": 32}


def dtype_bits(dtype: str) -> int:
    """Width of a model dtype.

    Raises:
        ValueError: a dtype other than bfloat16, float16 and float32.
    """
    if dtype not in _DTYPE_BITS:
        raise ValueError(f"unknown dtype {dtype!r}; valid: {', '.join(_DTYPE_BITS)}")
    return _DTYPE_BITS[dtype]


@overload
def kv_bytes(
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    tokens: int,
    batch: int = 1,
    dtype_bytes: int = 2,
) -> int: ...
@overload
def kv_bytes(
    num_layers: IntLike,
    num_kv_heads: IntLike,
    head_dim: IntLike,
    tokens: IntLike,
    batch: IntLike = 1,
    dtype_bytes: IntLike = 2,
) -> IntLike: ...
def kv_bytes(
    num_layers: IntLike,
    num_kv_heads: IntLike,
    head_dim: IntLike,
    tokens: IntLike,
    batch: IntLike = 1,
    dtype_bytes: IntLike = 2,
) -> IntLike:
    """Bytes of keys and values: 2 x layers x KV heads x head size x tokens x batch x bytes.

    Each argument is a Python int or a numpy integer array; arrays broadcast.

    Raises:
        TypeError: an argument is no integer.
        ValueError: a negative argument.
        OverflowError: an array's result does not fit into int64.
    """
    named = {
        "num_layers": num_layers,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "tokens": tokens,
        "batch": batch,
        "dtype_bytes": dtype_bytes,
    }
    return mul(2, *(integers(name, value) for name, value in named.items()))


def cache_token_bytes(
    cache: Cache,
    *,
    kv_cache_dtype: str = AUTO,
    model_dtype_bits: int = 16,
    tensor_parallel_size: int = 1,
    is_latent_layer: bool = True,
) -> int:
    """Bytes that one token adds to one layer's cache on one rank.

    MLA rows and indexer keys are whole on every rank. A shared cache, a cross cache (it grows with
    the encoder's input) and a state add nothing. An indexer beside MLA keeps 8-bit keys with
    scales, one beside plain heads (MiniMax-M3) 16-bit keys, whatever the KV dtype:
    ``is_latent_layer`` says which.

    Raises:
        KvDtypeError: a KV dtype that is unknown for this kind of cache.
    """
    match cache:
        case KvCache():
            row = kv_head_token_bytes(
                cache.head_dim, cache.v_head_dim, kv_cache_dtype, model_dtype_bits
            )
            return local_kv_heads(cache.num_kv_heads, tensor_parallel_size) * row
        case LatentCache():
            return latent_token_bytes(
                cache.kv_lora_rank, cache.qk_rope_head_dim, kv_cache_dtype, model_dtype_bits
            )
        case IndexerCache():
            if is_latent_layer:
                return indexer_token_bytes(cache.index_head_dim)
            return 2 * cache.index_head_dim
        case SharedCache() | CrossCache() | StateCache():
            return 0


def cached_tokens(cache: Cache, tokens: IntLike) -> IntLike:
    """Tokens that a request of ``tokens`` keeps in one layer's cache, once it runs.

    A sliding window or a chunk keeps its own length at most; what a runtime reserves on top while
    it prefills is the runtime's affair.
    """
    tokens = integers("tokens", tokens)
    if isinstance(cache, KvCache) and cache.window is not None:
        return minimum(tokens, cache.window)
    if isinstance(cache, SharedCache | CrossCache | StateCache):
        return mul(tokens, 0)
    return tokens


def state_bytes(
    cache: StateCache,
    *,
    model_dtype_bits: int = 16,
    conv_dtype_bits: int | None = None,
    recurrent_dtype_bits: int | None = None,
    tensor_parallel_size: int = 1,
) -> int:
    """Bytes of one layer's recurrent state for one sequence on one rank.

    A tensor's width is the one the user asked for, else the one its architecture fixes, else (for
    a recurrent tensor) the convolution's, else the model's.

    Raises:
        ShardingError: the sharded axis is not divisible by ``tensor_parallel_size``.
    """
    total = 0
    for tensor in cache.tensors:
        elements = math.prod(tensor.shape)
        if tensor.sharded_axis is not None:
            width = tensor.shape[tensor.sharded_axis]
            divide(f"{cache.kind} {tensor.role} state", width, tensor_parallel_size)
            elements //= tensor_parallel_size
        asked = conv_dtype_bits if tensor.role == "conv" else recurrent_dtype_bits
        bits = asked or tensor.dtype_bits or conv_dtype_bits or model_dtype_bits
        total += elements * bits // 8
    return total


@dataclass(frozen=True, slots=True)
class RequestBytes:
    """What a request holds on one rank, as a function of its tokens.

    ``fixed_bytes + sum over windows of bytes x min(tokens, window)``.
    """

    fixed_bytes: int
    """Recurrent states and cross caches: the same for every request."""
    token_bytes_by_window: Mapping[int | None, int]
    """Bytes of one token in all layers of that window or chunk; ``None``: they keep every token."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one more token adds while it is inside every window."""
        return sum(self.token_bytes_by_window.values())

    def of(self, tokens: Count) -> Count:
        """Bytes of a request of ``tokens``, prompt and answer together.

        Raises:
            OverflowError: an array's result does not fit into int64.
        """
        length = integers("tokens", tokens)
        total = add(mul(length, 0), self.fixed_bytes)
        for window, token_bytes in self.token_bytes_by_window.items():
            kept = length if window is None else minimum(length, window)
            total = add(total, mul(token_bytes, kept))
        return like(tokens, total)


def request_bytes(
    spec: ModelSpec,
    kv_cache_dtype: str = AUTO,
    tensor_parallel_size: int = 1,
    *,
    model_dtype_bits: int | None = None,
    conv_dtype_bits: int | None = None,
    recurrent_dtype_bits: int | None = None,
    stage: range | None = None,
) -> RequestBytes:
    """What a request holds on one rank once it runs, without page rounding.

    Full attention and MLA keep every token, windows and chunks their own length at most, states a
    fixed size, shared caches nothing, cross caches the longest input of the encoder.

    Args:
        spec: the model.
        kv_cache_dtype: the runtime's word; ``auto`` is the model's dtype.
        tensor_parallel_size: ranks that share the KV heads.
        model_dtype_bits: width of the serving dtype; ``None``: the checkpoint's.
        conv_dtype_bits: width of convolution states; ``None``: see :func:`state_bytes`.
        recurrent_dtype_bits: width of recurrent states; ``None``: see :func:`state_bytes`.
        stage: positions of the layers on this pipeline stage; ``None``: all.

    Raises:
        KvDtypeError: a KV dtype that is unknown for one of the model's caches.
        ShardingError: a state that ``tensor_parallel_size`` does not divide.
    """
    bits = model_dtype_bits or dtype_bits(spec.dtype)
    token_bytes = partial(
        cache_token_bytes,
        kv_cache_dtype=kv_cache_dtype,
        model_dtype_bits=bits,
        tensor_parallel_size=tensor_parallel_size,
    )
    fixed = 0
    by_window: dict[int | None, int] = {}
    for group in spec.layer_groups:
        count = sum(stage is None or index in stage for index in group.indices)
        is_latent = any(isinstance(cache, LatentCache) for cache in group.layer.caches)
        for cache in group.layer.caches:
            if isinstance(cache, StateCache):
                fixed += count * state_bytes(
                    cache,
                    model_dtype_bits=bits,
                    conv_dtype_bits=conv_dtype_bits,
                    recurrent_dtype_bits=recurrent_dtype_bits,
                    tensor_parallel_size=tensor_parallel_size,
                )
            elif isinstance(cache, CrossCache):
                fixed += count * token_bytes(cache.attention) * cache.encoder_tokens
            else:
                window = cache.window if isinstance(cache, KvCache) else None
                held = count * token_bytes(cache, is_latent_layer=is_latent)
                by_window[window] = by_window.get(window, 0) + held
    return RequestBytes(fixed, by_window)


def kv_bytes_per_token(
    spec: ModelSpec,
    kv_cache_dtype: str = AUTO,
    tensor_parallel_size: int = 1,
    *,
    model_dtype_bits: int | None = None,
    stage: range | None = None,
) -> int:
    """Bytes that one token adds on one rank, over all layers, while it is inside every window.

    Arguments and errors as for :func:`request_bytes`.
    """
    return request_bytes(
        spec,
        kv_cache_dtype,
        tensor_parallel_size,
        model_dtype_bits=model_dtype_bits,
        stage=stage,
    ).bytes_per_token


def kv_bytes_per_request(
    spec: ModelSpec,
    tokens: Count,
    kv_cache_dtype: str = AUTO,
    tensor_parallel_size: int = 1,
    *,
    model_dtype_bits: int | None = None,
    stage: range | None = None,
) -> Count:
    """Bytes that a request of ``tokens`` holds on one rank once it runs: see :func:`request_bytes`.

    ``tokens`` is an int or an integer array.
    """
    return request_bytes(
        spec,
        kv_cache_dtype,
        tensor_parallel_size,
        model_dtype_bits=model_dtype_bits,
        stage=stage,
    ).of(tokens)
