"""How many tokens a causal query reads, by kind of attention, and sums of it over positions.

The query at position ``j`` (1-based) reads ``j`` tokens in full attention, ``min(j, w)`` in a
sliding window of ``w`` and ``(j - 1) % c + 1`` in chunks of ``c``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_llmserve.engine.exact import add, integers, minimum, mul, sub

if TYPE_CHECKING:
    from pytest_llmserve.engine.exact import IntLike


@dataclass(frozen=True, slots=True)
class Reach:
    """Which earlier tokens a query reads; ``limit`` is the window, the chunk or a top-k.

    ``top``: an indexer picks ``limit`` of all tokens, so all are kept.
    """

    kind: Literal["full", "window", "chunk", "top"] = "full"
    limit: int = 0

    def attended(self, position: IntLike) -> IntLike:
        """Tokens that the query at this 1-based position reads, itself included."""
        position = integers("position", position)
        if self.kind == "full":
            return position
        if self.kind != "chunk":
            return minimum(position, self.limit)
        before = sub(position, minimum(position, 1))
        return add(before % self.limit, minimum(position, 1))

    def held(self, tokens: int) -> int:
        """Tokens of a sequence that its cache keeps: a window or a chunk at most."""
        return tokens if self.kind in {"full", "top"} else min(tokens, self.limit)

    def pairs(self, tokens: IntLike) -> IntLike:
        """Query-key pairs of the first ``tokens`` positions: the sum of :meth:`attended`."""
        tokens = integers("tokens", tokens)
        if self.kind == "full":
            return _triangle(tokens)
        if self.kind != "chunk":
            inside = minimum(tokens, self.limit)
            return add(_triangle(inside), mul(sub(tokens, inside), self.limit))
        chunks, rest = tokens // self.limit, tokens % self.limit
        return add(mul(chunks, _triangle(self.limit)), _triangle(rest))

    def pairs_of_all_prefixes(self, tokens: int) -> int:
        """Pairs of reading every prefix of 1, 2, ... ``tokens`` tokens anew: sum of the pairs."""
        if self.kind == "full":
            return _tetrahedron(tokens)
        limit = self.limit
        if self.kind != "chunk":
            inside = min(tokens, limit)
            beyond = tokens - inside
            return (
                _tetrahedron(inside)
                + beyond * _triangle_int(inside)
                + limit * _triangle_int(beyond)
            )
        chunks, rest = divmod(tokens, limit)
        whole = _triangle_int(limit)
        return (
            whole * limit * (chunks * (chunks - 1) // 2)
            + chunks * _tetrahedron(limit)
            + rest * chunks * whole
            + _tetrahedron(rest)
        )


def _triangle(count: IntLike) -> IntLike:
    # halve the even factor first: no larger intermediate than the result
    even = count // 2 * (1 - count % 2) + (count + 1) // 2 * (count % 2)
    odd = count % 2 * count + (1 - count % 2) * (count + 1)
    return mul(even, odd)


def _triangle_int(count: int) -> int:
    return count * (count + 1) // 2


def _tetrahedron(count: int) -> int:
    return count * (count + 1) * (count + 2) // 6
