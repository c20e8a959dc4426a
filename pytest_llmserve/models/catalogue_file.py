"""Shapes as JSON: how the bundled catalogue stores them.

A shape is its dataclasses with every default left out; the parts of a block are keyed by their
class, and positions in the stack are written as ``0-2,5``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from pytest_llmserve.models import parts as p
from pytest_llmserve.models.shape import Shape
from pytest_llmserve.models.spec import (
    ContextLimits,
    Group,
    Quantization,
    RotaryTable,
    Shard,
    Weight,
)

_PARTS: Final[Mapping[str, type]] = {
    "attention": p.Attention,
    "cross_attention": p.CrossAttention,
    "latent": p.Latent,
    "mlp": p.Mlp,
    "moe": p.Moe,
    "extra": p.Extra,
}
_STATE_PARTS: Final[Mapping[str, str]] = {
    "mamba1": "Mamba1",
    "mamba2": "Mamba2",
    "gated_delta": "GatedDelta",
    "kimi_delta": "KimiDelta",
    "lightning": "Lightning",
    "short_conv": "ShortConv",
}
_KEYS: Final = {kind.__name__: key for key, kind in _PARTS.items()} | {
    name: key for key, name in _STATE_PARTS.items()
}


def dump_shape(shape: Shape) -> dict[str, Any]:
    """The JSON object of a shape."""
    out = _plain(shape, skip=("blocks",))
    out["blocks"] = [
        {"layers": _ranges(indices), "norms": block.norms}
        | {_KEYS[type(part).__name__]: _plain(part) for part in block.parts}
        for block, indices in shape.blocks
    ]
    return out


def load_shape(entry: Mapping[str, Any]) -> Shape:
    """The shape of a JSON object that :func:`dump_shape` wrote."""
    known = {field.name for field in fields(Shape)}
    values = {key: value for key, value in entry.items() if key in known}
    values["blocks"] = tuple(_load_block(block) for block in entry["blocks"])
    values["limits"] = ContextLimits(**entry["limits"])
    values["rotary_tables"] = tuple(RotaryTable(**t) for t in entry.get("rotary_tables", ()))
    for key in ("extra", "vision"):
        values[key] = tuple(_load_weight(weight) for weight in entry.get(key, ()))
    if "quantization" in entry:
        values["quantization"] = Quantization(**_tuples(entry["quantization"]))
    for key in ("vision_intermediate_sizes", "unsupported"):
        values[key] = tuple(entry.get(key, ()))
    return Shape(**values)


def _load_block(entry: Mapping[str, Any]) -> tuple[p.Block, tuple[int, ...]]:
    parts = tuple(
        _load_part(key, value)
        for key, value in entry.items()
        if key in _PARTS or key in _STATE_PARTS
    )
    return p.Block(parts=parts, norms=entry["norms"]), _indices(entry["layers"])


def _load_part(key: str, entry: Mapping[str, Any]) -> p.Part:
    values = _tuples(entry)
    if "weights" in values:
        values["weights"] = tuple(_load_weight(weight) for weight in values["weights"])
    return _part_class(key)(**values)


def _part_class(key: str) -> Callable[..., p.Part]:
    if key in _PARTS:
        return _PARTS[key]
    from pytest_llmserve.models import state_parts

    found: Callable[..., p.Part] = getattr(state_parts, _STATE_PARTS[key])
    return found


def _load_weight(entry: Mapping[str, Any]) -> Weight:
    values = dict(entry)
    values["group"] = Group(values["group"])
    if "shard" in values:
        values["shard"] = Shard(values["shard"])
    return Weight(**values)


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    """JSON lists are tuples in our dataclasses, two deep at most."""
    return {key: _tuple(value) for key, value in entry.items()}


def _tuple(value: Any) -> Any:
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value


def _plain(item: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields(item):
        value = getattr(item, field.name)
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        if field.name not in skip and (default is MISSING or value != default):
            out[field.name] = _jsonable(value)
    return out


def _jsonable(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__dataclass_fields__"):
        return _plain(value)
    return value


def _ranges(indices: tuple[int, ...]) -> str:
    """``(0, 1, 2, 5)`` as ``0-2,5``."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in runs)


def _indices(text: str) -> tuple[int, ...]:
    out: list[int] = []
    for run in text.split(","):
        first, _, last = run.partition("-")
        out.extend(range(int(first), int(last or first) + 1))
    return tuple(out)
