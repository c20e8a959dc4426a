"""The same arithmetic over whole grids: model x context x concurrency in one numpy call.

Every cell equals what the scalar functions say of it; a cell past int64 is an ``OverflowError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.engine.exact import floordiv, integers, mul
from pytest_llmserve.engine.phases import decode_step
from pytest_llmserve.engine.roofline import ridge_point

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_llmserve.engine.attention import RequestBytes
    from pytest_llmserve.engine.costs import StepCosts
    from pytest_llmserve.engine.exact import IntLike

    Ints = NDArray[np.integer[Any]]

CHUNK_CELLS: Final = 1 << 18  # 2 MiB of int64 a temporary: stays in cache


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSweep:
    """KV need against the pool, over a grid.

    Axes: model, context (tokens of a request), concurrency (requests at once).
    """

    request_bytes: Ints
    """Bytes of one request: (models, contexts)."""
    max_requests: Ints
    """Requests of that length that the model's pool holds: (models, contexts)."""
    need_bytes: Ints
    """Bytes of all requests: (models, contexts, concurrencies)."""
    fits: NDArray[np.bool_]
    """Whether they fit the model's pool: (models, contexts, concurrencies)."""


def kv_sweep(
    models: Sequence[RequestBytes],
    contexts: IntLike,
    concurrencies: IntLike,
    pool_bytes: Sequence[int],
) -> KvSweep:
    """KV need of every model at every context and concurrency, against that model's pool.

    Args:
        models: what a request of each model holds (:func:`attention.request_bytes`).
        contexts: tokens of a request, 1-dimensional.
        concurrencies: requests at once, 1-dimensional.
        pool_bytes: KV pool of each model, same order as ``models``.

    Raises:
        ValueError: the pools and models differ in number, or an axis is no vector.
        OverflowError: a cell does not fit into int64.
    """
    import numpy as np

    if len(models) != len(pool_bytes):
        raise ValueError(f"{len(models)} models but {len(pool_bytes)} pools")
    lengths, counts = _axis("contexts", contexts), _axis("concurrencies", concurrencies)
    per_request = np.empty((len(models), lengths.size), dtype=np.int64)
    most = np.empty_like(per_request)
    need = np.empty((*per_request.shape, counts.size), dtype=np.int64)
    fits = np.empty(need.shape, dtype=np.bool_)
    for row, (model, pool) in enumerate(zip(models, pool_bytes, strict=True)):
        per_request[row] = model.of(lengths)
        most[row] = floordiv(pool, np.maximum(per_request[row], 1))
        for part in _chunks(lengths.size, counts.size):
            need[row, part] = mul(per_request[row, part, None], counts)
            np.less_equal(need[row, part], pool, out=fits[row, part])
    return KvSweep(request_bytes=per_request, max_requests=most, need_bytes=need, fits=fits)


def tpot_floor_sweep_s(
    costs: StepCosts,
    peak_flops_per_s: float,
    bytes_per_s: float,
    contexts: IntLike,
    concurrencies: IntLike,
) -> NDArray[np.float64]:
    """Floor of a decode step in seconds, by (context, concurrency), for one model on one GPU.

    Raises:
        ValueError: a rate that is not positive, or an axis that is no vector.
        OverflowError: a cell's FLOPs or bytes do not fit into int64.
    """
    import numpy as np

    ridge_point(peak_flops_per_s, bytes_per_s)  # refuses rates that are not positive
    lengths, counts = _axis("contexts", contexts), _axis("concurrencies", concurrencies)
    floors = np.empty((lengths.size, counts.size))
    for part in _chunks(lengths.size, counts.size):
        cost = decode_step(costs, counts, lengths[part, None])
        compute_s = cost.flops / np.float64(peak_flops_per_s)
        memory_s = cost.floor_bytes / np.float64(bytes_per_s)
        np.maximum(compute_s, memory_s, out=floors[part])
    return floors


def _chunks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows, each of at most ``CHUNK_CELLS`` cells (but at least one row)."""
    step = max(1, CHUNK_CELLS // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, start + step)


def _axis(name: str, values: IntLike) -> Ints:
    import numpy as np

    axis = np.atleast_1d(np.asarray(integers(name, values, 1)))
    if axis.ndim != 1:
        raise ValueError(f"{name} must be 1-dimensional, got shape {axis.shape}")
    return axis
