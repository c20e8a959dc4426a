"""Positions: length limits, rope scaling and the cos/sin tables that runtimes keep.

Rows of a table per rope type as vLLM 0.32 allocates them (design notes, section 6.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmserve.models.fields import Fields
from pytest_llmserve.models.spec import ContextLimits, RotaryTable

# vLLM takes the minimum over those present, in this spelling.
LENGTH_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_OTHER_NAMES: Final[Mapping[str, str]] = {"n_ctx": "n_positions"}
_NO_DIMS: Final[Mapping[str, int]] = {}
_INTERLEAVED_MROPE: Final = "mrope_interleaved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """One rope setting; ``type`` is ``default`` where nothing is scaled."""

    type: str = "default"
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    partial_rotary_factor: float | None = None
    is_interleaved_mrope: bool = False
    theta: float | None = None


def read_ropes(c: Fields) -> Mapping[str, Rope]:
    """The rope settings by layer type; ``""`` where the file has one for all layers."""
    for key in ("rope_parameters", "rope_scaling"):
        block = c.object(key)
        if block is None:
            continue
        nested = {name: value for name, value in block.items() if isinstance(value, Mapping)}
        if nested:
            return {name: _rope(c, key, value) for name, value in nested.items()}
        return {"": _rope(c, key, block)}
    return {"": Rope()}


def _rope(c: Fields, key: str, block: Mapping[str, Any]) -> Rope:
    inner = Fields(block, file=c.file, path=f"{c.path}{key}.")
    kind = inner.text("rope_type", "type") or "default"
    original = inner.optional_size("original_max_position_embeddings")
    factor = inner.number("factor") if inner.value("factor") is not None else None
    partial = inner.value("partial_rotary_factor")
    is_mrope = inner.value("mrope_section") is not None
    return Rope(
        type="mrope" if is_mrope and kind == "default" else kind,
        factor=factor,
        original_max_position_embeddings=original,
        partial_rotary_factor=None if partial is None else inner.number("partial_rotary_factor"),
        is_interleaved_mrope=is_mrope and inner.flag(_INTERLEAVED_MROPE),
        theta=inner.number("rope_theta") if inner.value("rope_theta") is not None else None,
    )


def with_local_rope(ropes: Mapping[str, Rope], theta: float) -> Mapping[str, Rope]:
    """The same with an unscaled rope for the layers that slide."""
    if "" not in ropes:
        return ropes
    return {"full_attention": ropes[""], "sliding_attention": Rope(theta=theta)}


def main_rope(ropes: Mapping[str, Rope]) -> Rope:
    """The rope of the layers that see everything: it decides how far the context reaches."""
    if "" in ropes:
        return ropes[""]
    return ropes.get("full_attention") or next(iter(ropes.values()))


def read_limits(c: Fields, ropes: Mapping[str, Rope]) -> ContextLimits:
    """Every length key of the text config, class defaults included, and the rope scaling."""
    candidates = {key: c.size(key) for key in LENGTH_KEYS if c.optional_size(key) is not None}
    for other, key in _OTHER_NAMES.items():
        if not candidates and c.optional_size(other) is not None:
            candidates[key] = c.size(other)
    rope = main_rope(ropes)
    original = rope.original_max_position_embeddings
    if rope.type in {"longrope", "su"}:
        original = c.optional_size("original_max_position_embeddings") or original
    return ContextLimits(
        candidates=candidates,
        model_max_length=c.optional_size("model_max_length"),
        rope_type=None if rope.type == "default" else rope.type,
        rope_factor=rope.factor,
        original_max_position_embeddings=original,
    )


def rotary_tables(
    limits: ContextLimits,
    ropes: Mapping[str, Rope],
    head_dim: int,
    *,
    dims: Mapping[str, int] = _NO_DIMS,
    partial_rotary_factor: float = 1.0,
    dtype_bits: int | None = None,
) -> tuple[RotaryTable, ...]:
    """The tables of a model: one per distinct setting, none without a known length."""
    lengths = limits.candidates
    length = limits.model_max_length or (min(lengths.values()) if lengths else None)
    if length is None:
        return ()
    tables: list[RotaryTable] = []
    for name, rope in {rope: (name, rope) for name, rope in ropes.items()}.values():
        part = rope.partial_rotary_factor
        dim = dims.get(name, head_dim)
        share = partial_rotary_factor if part is None else part
        # a proportional rope turns every pair, the later ones by nothing: whole width
        width = dim if rope.type == "proportional" else int(dim * share)
        if width:
            rows = _rows(rope, length, limits)
            tables.append(RotaryTable(rows=rows, width=width, dtype_bits=dtype_bits))
    return tuple(tables)


def _rows(rope: Rope, length: int, limits: ContextLimits) -> int:
    original = rope.original_max_position_embeddings
    if rope.type == "mrope":
        return length if rope.is_interleaved_mrope else 4 * length
    if rope.type in {"yarn", "deepseek_yarn"} and rope.factor is not None:
        return int((original or length) * rope.factor)
    if rope.type == "linear" and rope.factor is not None:
        return int(length * rope.factor)
    if rope.type in {"longrope", "su"}:
        return (limits.original_max_position_embeddings or 0) + length
    return length
