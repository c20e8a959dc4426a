"""Measured constants of the expectations, by class of GPU: one table, each row with n and source.

Fitted to public measurements (docs/speed.md has the method and the residuals). ``low`` and ``high``
are measured / predicted at about the 5th and 95th percentile of the ``n`` rows behind a class,
rounded outwards and never narrower than 0.85 to 1.25, with fewer than five rows than 0.75 to 1.6.
A class with fewer than three rows is not in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Memory = Literal["HBM NVIDIA", "HBM AMD", "GeForce", "GDDR NVIDIA", "unified NVIDIA"]
Engine = Literal["serving", "serving-2024", "llama.cpp"]
"""``serving``: vLLM, SGLang, TensorRT-LLM of 2025 and later with CUDA graphs; ``serving-2024``:
those of 2024 (vLLM 0.6); ``llama.cpp``."""

MEASURED: Final = "public benchmark tables of 2024-2026"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeClass:
    """``step = load / bandwidth_fraction + layers x layer_s + step_s``, and how far it may be off.

    ``load`` is the time of a step's bytes at the full bandwidth (or of its FLOPs at the peak).
    """

    engine: Engine
    memory: tuple[Memory, ...]
    is_moe: bool
    gpus: tuple[int, int]
    batch: tuple[int, int]
    bandwidth_fraction: float
    layer_s: float = 0.0
    step_s: float = 0.0
    low: float
    high: float
    n: int
    source: str = MEASURED

    @property
    def words(self) -> str:
        """``decode of dense models on 1 to 8 HBM NVIDIA, batch 2 to 64, serving``."""
        return f"decode of {_kind(self)}, batch {_range(self.batch)}, {self.engine}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillClass:
    """``ttft = FLOPs / (peak x mfu) + start_s`` of a lone prompt, and how far it may be off."""

    engine: Engine
    memory: tuple[Memory, ...]
    is_moe: bool
    gpus: tuple[int, int]
    weight_bits: int
    """Of the arithmetic: 16, 8 or 4."""
    mfu: float
    start_s: float
    low: float
    high: float
    n: int
    source: str = MEASURED

    @property
    def words(self) -> str:
        """``prefill of MoE models on 1 unified NVIDIA, 4 bit, serving``."""
        return f"prefill of {_kind(self)}, {self.weight_bits} bit, {self.engine}"


def _kind(row: DecodeClass | PrefillClass) -> str:
    parts = " and ".join(row.memory)
    return f"{'MoE' if row.is_moe else 'dense'} models on {_range(row.gpus)} {parts}"


def _range(ends: tuple[int, int]) -> str:
    low, high = ends
    return str(low) if low == high else f"{low} to {high}"


_FEW: Final = (1, 64)
_MANY: Final = (65, 512)

DECODE: Final[tuple[DecodeClass, ...]] = (
    DecodeClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=False, gpus=(1, 8), batch=(1, 1),
        bandwidth_fraction=0.75, layer_s=75e-6, low=0.8, high=1.45, n=15,
    ),
    DecodeClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=False, gpus=(1, 8), batch=(2, 64),
        bandwidth_fraction=0.75, layer_s=75e-6, low=0.75, high=1.65, n=3,
    ),
    DecodeClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=False, gpus=(1, 8), batch=_MANY,
        bandwidth_fraction=0.4, layer_s=120e-6, low=0.7, high=2.2, n=7,
    ),
    DecodeClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=True, gpus=(1, 1), batch=_FEW,
        bandwidth_fraction=0.7, layer_s=110e-6, low=0.75, high=1.65, n=9,
    ),
    DecodeClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=True, gpus=(2, 8), batch=(1, 1),
        bandwidth_fraction=0.75, layer_s=140e-6, low=0.7, high=2.7, n=10,
    ),
    DecodeClass(
        engine="serving", memory=("HBM AMD",), is_moe=True, gpus=(1, 1), batch=_FEW,
        bandwidth_fraction=0.55, layer_s=70e-6, low=0.75, high=2.2, n=4,
    ),
    DecodeClass(
        engine="serving", memory=("GeForce", "GDDR NVIDIA"), is_moe=False, gpus=(1, 4), batch=_FEW,
        bandwidth_fraction=0.75, layer_s=75e-6, low=0.75, high=1.6, n=3,
    ),
    DecodeClass(
        engine="serving", memory=("GeForce",), is_moe=True, gpus=(1, 1), batch=(1, 1),
        bandwidth_fraction=0.85, layer_s=40e-6, low=0.75, high=1.65, n=6,
    ),
    DecodeClass(
        engine="serving", memory=("GDDR NVIDIA",), is_moe=True, gpus=(2, 4), batch=_FEW,
        bandwidth_fraction=0.9, layer_s=140e-6, low=0.45, high=1.25, n=9,
    ),
    DecodeClass(
        engine="serving", memory=("unified NVIDIA",), is_moe=False, gpus=(1, 1), batch=_FEW,
        bandwidth_fraction=0.75, layer_s=75e-6, low=0.8, high=1.65, n=30,
    ),
    DecodeClass(
        engine="serving", memory=("unified NVIDIA",), is_moe=True, gpus=(1, 1), batch=_FEW,
        bandwidth_fraction=0.75, layer_s=130e-6, low=0.7, high=1.7, n=48,
    ),
    DecodeClass(
        engine="serving-2024", memory=("HBM NVIDIA",), is_moe=False, gpus=(1, 8), batch=(1, 1),
        bandwidth_fraction=0.9, layer_s=130e-6, low=0.8, high=1.35, n=30,
        source="Qwen2.5 speed tables, vLLM 0.6.3 on A100 80 GB, 2024-11",
    ),
    DecodeClass(
        engine="llama.cpp", memory=("GeForce",), is_moe=False, gpus=(1, 8), batch=(1, 1),
        bandwidth_fraction=0.85, step_s=3.0e-3, low=0.8, high=1.5, n=113,
    ),
    DecodeClass(
        engine="llama.cpp", memory=("GDDR NVIDIA",), is_moe=False, gpus=(1, 8), batch=(1, 1),
        bandwidth_fraction=0.85, step_s=3.0e-3, low=0.85, high=1.25, n=114,
    ),
    DecodeClass(
        engine="llama.cpp", memory=("HBM NVIDIA",), is_moe=False, gpus=(1, 8), batch=(1, 1),
        bandwidth_fraction=0.55, step_s=4.0e-3, low=0.8, high=1.35, n=75,
    ),
    DecodeClass(
        engine="llama.cpp", memory=("HBM NVIDIA",), is_moe=True, gpus=(1, 1), batch=(1, 1),
        bandwidth_fraction=0.95, step_s=4.5e-3, low=0.85, high=1.25, n=13,
    ),
    DecodeClass(
        engine="llama.cpp", memory=("GeForce",), is_moe=True, gpus=(1, 1), batch=(1, 1),
        bandwidth_fraction=0.85, step_s=2.75e-3, low=0.75, high=6.0, n=16,
    ),
    DecodeClass(
        engine="llama.cpp", memory=("unified NVIDIA",), is_moe=False, gpus=(1, 1), batch=(1, 1),
        bandwidth_fraction=0.95, step_s=5.75e-3, low=0.85, high=1.25, n=6,
    ),
    DecodeClass(
        engine="llama.cpp", memory=("unified NVIDIA",), is_moe=True, gpus=(1, 1), batch=(1, 1),
        bandwidth_fraction=0.95, step_s=5.75e-3, low=0.85, high=1.25, n=6,
    ),
)  # fmt: skip

PREFILL: Final[tuple[PrefillClass, ...]] = (
    PrefillClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=False, gpus=(1, 8), weight_bits=16,
        mfu=0.45, start_s=0.03, low=0.3, high=2.9, n=15,
    ),
    PrefillClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=False, gpus=(1, 8), weight_bits=8,
        mfu=0.5, start_s=0.06, low=0.4, high=2.0, n=7,
    ),
    PrefillClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=True, gpus=(1, 1), weight_bits=16,
        mfu=0.25, start_s=0.02, low=0.65, high=3.7, n=11,
    ),
    PrefillClass(
        engine="serving", memory=("HBM NVIDIA",), is_moe=True, gpus=(1, 8), weight_bits=8,
        mfu=0.5, start_s=0.13, low=0.6, high=2.3, n=13,
    ),
    PrefillClass(
        engine="serving", memory=("GDDR NVIDIA",), is_moe=True, gpus=(2, 8), weight_bits=4,
        mfu=0.18, start_s=0.15, low=0.75, high=1.35, n=5,
    ),
    PrefillClass(
        engine="serving", memory=("unified NVIDIA",), is_moe=False, gpus=(1, 1), weight_bits=16,
        mfu=0.475, start_s=0.15, low=0.8, high=1.8, n=25,
    ),
    PrefillClass(
        engine="serving", memory=("unified NVIDIA",), is_moe=False, gpus=(1, 1), weight_bits=8,
        mfu=0.14, start_s=0.3, low=0.75, high=1.5, n=5,
    ),
    PrefillClass(
        engine="serving", memory=("unified NVIDIA",), is_moe=True, gpus=(1, 1), weight_bits=16,
        mfu=0.375, start_s=0.15, low=0.8, high=1.6, n=24,
    ),
    PrefillClass(
        engine="serving", memory=("unified NVIDIA",), is_moe=True, gpus=(1, 1), weight_bits=8,
        mfu=0.25, start_s=0.3, low=0.75, high=2.2, n=6,
    ),
    PrefillClass(
        engine="serving", memory=("unified NVIDIA",), is_moe=True, gpus=(1, 1), weight_bits=4,
        mfu=0.075, start_s=0.08, low=0.7, high=1.35, n=22,
    ),
)  # fmt: skip
