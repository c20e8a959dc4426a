"""Parts of recurrent layers. Apart from ``parts``, since most models have none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """A selective state space of the first kind (Jamba, Falcon-Mamba)."""

    intermediate_size: int
    state_size: int
    time_step_rank: int
    conv_kernel: int
    has_conv_bias: bool = True
    has_bias: bool = False
    has_inner_norms: bool = False
    """Norms on dt, B and C (Jamba)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """A state space with scalar decay per head (Nemotron-H, Granite 4 H, Falcon-H1)."""

    num_heads: int
    head_dim: int
    state_size: int
    num_groups: int
    conv_kernel: int
    has_conv_bias: bool = True
    has_bias: bool = False
    has_gate_norm: bool = True
    state_dtype_bits: int | None = None
    """What the config asks for the recurrent state, ``None`` where it does not."""
    chunk_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """A gated delta net (Qwen3-Next, Qwen3.5)."""

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    is_split: bool = False
    """qkv, z, b and a are four matrices in the checkpoint (Qwen3.5), not two (Qwen3-Next)."""
    state_dtype_bits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """Kimi delta attention: a decay per channel."""

    num_heads: int
    head_dim: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lightning:
    """Linear attention with a fixed decay (MiniMax-Text-01, M1)."""

    num_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv:
    """A gated short convolution (LFM2)."""

    conv_kernel: int
    has_bias: bool = False


StatePart = Mamba1 | Mamba2 | GatedDelta | KimiDelta | Lightning | ShortConv
