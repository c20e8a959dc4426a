"""The roofline: what a kernel can reach, given its FLOPs per byte.

``attainable = min(peak, bandwidth x intensity)``; the ridge point ``peak / bandwidth`` is the
intensity at which both roofs meet (Williams, Waterman, Patterson, CACM 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Bound(StrEnum):
    """Which roof limits a piece of work."""

    MEMORY = "memory"
    COMPUTE = "compute"


def ridge_point(peak_flops_per_s: float, bytes_per_s: float) -> float:
    """FLOP/byte above which a kernel is compute bound: peak / bandwidth.

    Raises:
        ValueError: a rate that is not positive.
    """
    _positive(peak_flops_per_s, bytes_per_s)
    return peak_flops_per_s / bytes_per_s


def arithmetic_intensity(flops: float, moved_bytes: float) -> float:
    """FLOP per byte moved.

    Raises:
        ValueError: nothing is moved, or a negative amount of work.
    """
    if flops < 0 or moved_bytes <= 0:
        raise ValueError(f"no intensity of {flops} FLOP over {moved_bytes} bytes")
    return flops / moved_bytes


def attainable_flops_per_s(
    intensity_flop_per_byte: float, peak_flops_per_s: float, bytes_per_s: float
) -> float:
    """Highest rate at that intensity: min(peak, bandwidth x intensity)."""
    _positive(peak_flops_per_s, bytes_per_s)
    return min(peak_flops_per_s, bytes_per_s * intensity_flop_per_byte)


def utilisation(
    intensity_flop_per_byte: float, peak_flops_per_s: float, bytes_per_s: float
) -> float:
    """Share of the peak that the roofline allows at that intensity, 0 to 1."""
    attainable = attainable_flops_per_s(intensity_flop_per_byte, peak_flops_per_s, bytes_per_s)
    return attainable / peak_flops_per_s


def bound_of(flops: int, moved_bytes: int, peak_flops_per_s: float, bytes_per_s: float) -> Bound:
    """Which roof limits the work; at the ridge point itself it is compute."""
    _positive(peak_flops_per_s, bytes_per_s)
    is_memory = flops * bytes_per_s < moved_bytes * peak_flops_per_s
    return Bound.MEMORY if is_memory else Bound.COMPUTE


def floor_time_s(
    flops: int, moved_bytes: int, peak_flops_per_s: float, bytes_per_s: float
) -> float:
    """Shortest time of the work: max(FLOPs / peak, bytes / bandwidth)."""
    _positive(peak_flops_per_s, bytes_per_s)
    return max(flops / peak_flops_per_s, moved_bytes / bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """A matrix product ``(m x k) @ (k x n)``: ``m`` tokens through a weight of ``n`` x ``k``.

    Bytes count each operand and the result once: what a perfect cache would move.
    """

    m: int
    n: int
    k: int
    dtype_bytes: int = 2

    @property
    def flops(self) -> int:
        """2 x m x n x k: a multiplication and an addition each."""
        return 2 * self.m * self.n * self.k

    @property
    def moved_bytes(self) -> int:
        """(m k + k n + m n) x bytes of an element."""
        return self.dtype_bytes * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def intensity_flop_per_byte(self) -> float:
        """FLOP per byte moved."""
        return arithmetic_intensity(self.flops, self.moved_bytes)


def _positive(peak_flops_per_s: float, bytes_per_s: float) -> None:
    if peak_flops_per_s <= 0 or bytes_per_s <= 0:
        raise ValueError(
            f"rates must be positive, got {peak_flops_per_s} FLOP/s and {bytes_per_s} byte/s"
        )
