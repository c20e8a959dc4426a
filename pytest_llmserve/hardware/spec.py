"""What the engine needs to know of one accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from pytest_llmserve.units import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One way to cut a device into isolated slices, as ``nvidia-smi mig -lgip`` lists it."""

    name: str
    """``1g.10gb``: the number before ``gb`` is rounded and never used as a size."""
    max_count: int
    """Slices of this profile alone that fit one device."""
    memory_fraction: Fraction
    """Share of the device's memory, and (inferred) of its bandwidth."""
    compute_fraction: Fraction
    """Share of the device's multiprocessors, and so of its peaks."""
    memory_total_bytes: Interval | None
    """What the framework reports inside a slice; ``None`` where neither read nor estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """List prices of one device on demand, over providers; ``date`` is the oldest one's."""

    low_usd_per_hour: float
    high_usd_per_hour: float
    date: str
    """ISO date, empty where no source prints one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One device as a framework sees it (half of an MI250X, one MIG slice, one H100).

    Unknown figures are ``None`` or absent, never zero and never derived from another part.
    """

    id: str
    name: str
    vendor: str
    architecture: str
    compute_capability: tuple[int, int] | None
    """CUDA compute capability, ``(9, 0)`` for H100; ``None`` where the vendor has none."""
    memory_total_bytes: Interval | None
    """What the framework reports (``torch`` total), which utilisation multiplies."""
    memory_marketed_bytes: int
    """The number on the box; for words only, never for a budget."""
    hbm_bytes_per_s: int | None
    """Upper bound of the memory bandwidth: floors divide by it."""
    hbm_safe_bytes_per_s: int | None
    """Bandwidth to expect of the part where public figures differ; at most the one above."""
    dense_flops_per_s: Mapping[str, int]
    """Dense peak by dtype (``bf16 fp16 fp8 int8 fp4 tf32 fp32``), never with sparsity."""
    link_bytes_per_s: int | None = None
    """GPU-to-GPU fabric, one direction."""
    memory_kind: str = ""
    """``HBM3``, ``GDDR6X``, ``LPDDR5X unified``…; empty where no source says."""
    pcie_bytes_per_s: int | None = None
    """The slot, one direction, theoretical: the link of parts without a fabric."""
    price: GpuPrice | None = None
    is_unified_memory: bool = False
    is_boost_guarded: bool = False
    """GeForce: real clocks beat the rated boost, floors allow 1.2 x the rated peak."""
    mig_profile: str | None = None
    """The slice this is (``1g.10gb``); ``None`` for a whole device."""
    mig_profiles: tuple[MigProfile, ...] = ()
    """Ways to cut this device; empty where it cannot be cut or no profile is known."""
    source: str = ""
    """Where the figures stand: ``catalogue h100-sxm-80gb`` or the user's file."""

    @property
    def capability(self) -> int | None:
        """Compute capability times ten, as runtimes compare it: 90 for 9.0."""
        if self.compute_capability is None:
            return None
        return self.compute_capability[0] * 10 + self.compute_capability[1]
