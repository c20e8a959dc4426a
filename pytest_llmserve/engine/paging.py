"""Paged KV memory: blocks, what paging wastes and saves, how much a pool holds.

A contiguous allocator reserves ``max_model_len`` tokens for each sequence; a paged one hands out
blocks as the sequence grows and wastes less than one block each (Kwon et al., PagedAttention,
SOSP 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmserve.engine.exact import cdiv, floordiv, integers, like, mul, sub

if TYPE_CHECKING:
    from pytest_llmserve.engine.exact import Count, IntLike


def blocks_for(tokens: Count, block_size: int) -> Count:
    """Blocks that hold ``tokens``: the last one may be partly empty."""
    return like(tokens, cdiv(tokens, block_size))


def paged_tokens(tokens: Count, block_size: int) -> Count:
    """Tokens that the blocks of a sequence could hold."""
    return like(tokens, mul(cdiv(tokens, block_size), block_size))


def paged_waste_tokens(tokens: Count, block_size: int) -> Count:
    """Token slots that stay empty in a sequence's last block; always less than one block."""
    return like(tokens, sub(paged_tokens(tokens, block_size), tokens))


def contiguous_waste_tokens(tokens: Count, max_model_len: int) -> Count:
    """Token slots that stay empty where each sequence reserves the longest length.

    Raises:
        ValueError: a sequence longer than ``max_model_len``.
    """
    integers("max_model_len", max_model_len, 1)
    return like(tokens, integers("max_model_len - tokens", sub(max_model_len, tokens)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PagingSaving:
    """Paged against contiguous allocation of the same sequences, in bytes."""

    used_bytes: int
    paged_bytes: int
    contiguous_bytes: int

    @property
    def paged_waste_bytes(self) -> int:
        """Empty slots in last blocks."""
        return self.paged_bytes - self.used_bytes

    @property
    def contiguous_waste_bytes(self) -> int:
        """Empty slots up to the longest length."""
        return self.contiguous_bytes - self.used_bytes

    @property
    def saved_bytes(self) -> int:
        """What paging leaves free for other sequences (negative: block rounding costs more)."""
        return self.contiguous_bytes - self.paged_bytes


def paging_saving(
    lengths: tuple[int, ...], *, block_size: int, max_model_len: int, bytes_per_token: int
) -> PagingSaving:
    """What a paged allocator saves for sequences of the given lengths, in tokens.

    Raises:
        ValueError: a length above ``max_model_len`` or a size below one.
    """
    integers("block_size", block_size, 1)
    for length in lengths:
        contiguous_waste_tokens(length, max_model_len)
    paged = sum(paged_tokens(length, block_size) for length in lengths)
    return PagingSaving(
        used_bytes=sum(lengths) * bytes_per_token,
        paged_bytes=paged * bytes_per_token,
        contiguous_bytes=len(lengths) * max_model_len * bytes_per_token,
    )


def capacity_tokens(pool_bytes: Count, bytes_per_token: int, block_size: int = 1) -> Count:
    """Tokens in the whole blocks of a pool."""
    blocks = floordiv(pool_bytes, mul(bytes_per_token, block_size))
    return like(pool_bytes, mul(blocks, block_size))


def capacity_requests(pool_bytes: IntLike, request_bytes: IntLike) -> IntLike:
    """Requests of a given size that a pool holds at once."""
    return floordiv(pool_bytes, request_bytes)


def capacity_requests_paged(
    pool_bytes: IntLike, tokens: IntLike, *, bytes_per_token: int, block_size: int
) -> IntLike:
    """Requests of ``tokens`` each that the whole blocks of a pool hold at once."""
    blocks = floordiv(pool_bytes, mul(bytes_per_token, block_size))
    return floordiv(blocks, cdiv(tokens, block_size))
