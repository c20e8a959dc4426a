"""Bytes of a quantised weight as a server stores it: packed elements, scales, zeros.

Sizes were read in vLLM 0.33's layer code and held against the parameters that vLLM 0.32 builds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.exact import cdiv
from pytest_llmserve.models.spec import Group, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_llmserve.engine.parallel import LocalShape
    from pytest_llmserve.models.spec import Quantization, Weight

DEFAULT_BLOCK: Final = (128, 128)
NF4_GROUP: Final = 64


class SchemeError(ValueError):
    """A storage scheme whose bytes are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Multiples to which MXFP4 expert kernels pad the two sides of an expert on a rank.

    vLLM 0.32 on CUDA (Marlin, TRT-LLM): 128 and 256; CUTLASS and DeepGEMM pad both to 128.
    """

    intermediate: int = 128
    hidden: int = 256

    def apply(self, weight: Weight, shape: LocalShape) -> tuple[int, int]:
        """Rows and columns after padding; a bias (one column) keeps its column."""
        rows, cols = shape.rows, shape.cols
        is_down = weight.shard is Shard.ROW or (cols == 1 and weight.shard is Shard.REPLICATED)
        rows = _round_up(rows, self.hidden if is_down else self.intermediate)
        if cols > 1:
            cols = _round_up(cols, self.intermediate if is_down else self.hidden)
        return rows, cols


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A weight on a rank and the scheme it is stored in."""

    weight: Weight
    shape: LocalShape
    scheme: str


def stored_bytes(stored: Stored, quantization: Quantization) -> int:
    """Bytes of all copies, scales included; a block scheme's scales are not (see below).

    Raises:
        SchemeError: the scheme is unknown.
    """
    rule = _SCHEMES.get(stored.scheme)
    if rule is None:
        raise SchemeError(
            f"{stored.weight.name}: bytes of scheme {stored.scheme!r} are not known; "
            f"known: {', '.join(_SCHEMES)}"
        )
    return stored.shape.copies * rule(stored, quantization)


def block_scale_bytes(fused: Iterable[Stored], quantization: Quantization) -> int:
    """Bytes of the float32 scales of one fused matrix, one for each block of it.

    The grid lies over the local matrix after fusing (q, k and v; gate and up). For experts whose
    local width is no multiple of the block, the grid is refined to the largest block that divides.
    """
    parts = list(fused)
    block_rows, block_cols = quantization.block_shape or DEFAULT_BLOCK
    first = parts[0]
    rows, cols = sum(part.shape.rows for part in parts), first.shape.cols
    if first.weight.group is Group.EXPERTS:
        block_rows = math.gcd(block_rows, *(part.shape.rows for part in parts), cols)
        block_cols = math.gcd(block_cols, *(part.shape.rows for part in parts), cols)
    return 4 * cdiv(rows, block_rows) * cdiv(cols, block_cols) * first.shape.copies


def _elements(stored: Stored) -> int:
    return stored.shape.rows * stored.shape.cols


def _fp8_tensor(stored: Stored, quantization: Quantization) -> int:
    return _elements(stored) + 4 + 4 * quantization.is_static_activation


def _fp8_channel(stored: Stored, quantization: Quantization) -> int:
    return _elements(stored) + 4 * stored.shape.rows + 4 * quantization.is_static_activation


def _fp8_block(stored: Stored, _: Quantization) -> int:
    return _elements(stored)


def _int8(stored: Stored, _: Quantization) -> int:
    return _elements(stored) + 4 * stored.shape.rows


def _int4(stored: Stored, quantization: Quantization) -> int:
    rows, cols = stored.shape.rows, stored.shape.cols
    group = quantization.group_size or cols
    groups = cdiv(cols, group if group > 0 else cols)
    zeros = 0 if quantization.is_symmetric else cdiv(rows, 2) * groups
    return cdiv(rows * cols, 2) + 2 * rows * groups + zeros


def _nvfp4(stored: Stored, _: Quantization) -> int:
    rows, cols = stored.shape.rows, stored.shape.cols
    return cdiv(rows * cols, 2) + rows * cdiv(cols, 16) + 8


def _mxfp4(stored: Stored, _: Quantization) -> int:
    rows, cols = stored.shape.rows, stored.shape.cols
    return cdiv(rows * cols, 2) + rows * cdiv(cols, 32)


def _mxfp8(stored: Stored, _: Quantization) -> int:
    rows, cols = stored.shape.rows, stored.shape.cols
    return rows * cols + rows * cdiv(cols, 32)


def _nf4(stored: Stored, _: Quantization) -> int:
    elements = _elements(stored)
    return cdiv(elements, 2) + 4 * cdiv(elements, NF4_GROUP)


def _round_up(size: int, multiple: int) -> int:
    return cdiv(size, multiple) * multiple


_SCHEMES: Final[dict[str, Callable[[Stored, Quantization], int]]] = {
    "fp8_tensor": _fp8_tensor,
    "fp8_channel": _fp8_channel,
    "fp8_block": _fp8_block,
    "int8": _int8,
    "int4": _int4,
    "nvfp4": _nvfp4,
    "mxfp4": _mxfp4,
    "mxfp8": _mxfp8,
    "nf4": _nf4,
}
