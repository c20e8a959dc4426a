"""Vision towers and their projectors.

Layouts as transformers 5.24 builds them; which parts tensor parallelism divides as vLLM 0.32 does
(design notes, section 6.7): patch and position embeddings and norms are whole on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.class_defaults import defaults_of
from pytest_llmserve.models.fields import Fields
from pytest_llmserve.models.spec import Group, Shard, Weight

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMN, ROW, WHOLE = Shard.COLUMN, Shard.ROW, Shard.REPLICATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """The weights of everything but the language model, and what parallelism has to divide."""

    weights: tuple[Weight, ...]
    num_heads: int | None = None
    intermediate_sizes: tuple[int, ...] = ()
    layers_path: str = "model.language_model.layers"
    unsupported: tuple[str, ...] = ()


class Draft:
    """Collects the weights of one tower."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.weights: list[Weight] = []

    def linear(
        self,
        name: str,
        rows: int,
        cols: int,
        shard: Shard = WHOLE,
        *,
        copies: int = 1,
        has_bias: bool = True,
    ) -> None:
        """A matrix and its bias, ``copies`` times."""
        path = f"{self.path}.{name}"
        self._add(path, rows, cols, shard, copies, is_matmul=True)
        if has_bias:
            self._add(f"{path}.bias", rows, 1, WHOLE if shard is ROW else shard, copies)

    def vector(self, name: str, size: int, *, copies: int = 1) -> None:
        """A norm weight, an embedding row or a gate."""
        self._add(f"{self.path}.{name}", size, 1, WHOLE, copies)

    def table(self, name: str, rows: int, cols: int, shard: Shard = WHOLE) -> None:
        """An embedding that is looked up."""
        self._add(f"{self.path}.{name}", rows, cols, shard, 1)

    def buffer(
        self, name: str, rows: int, cols: int, dtype_bits: int | None = 32, *, copies: int = 1
    ) -> None:
        """A table that is computed, not trained."""
        weight = Weight(
            name=f"{self.path}.{name}",
            group=Group.VISION,
            rows=rows,
            cols=cols,
            copies=copies,
            dtype_bits=dtype_bits,
            is_matmul=False,
            is_parameter=False,
        )
        self.weights.append(weight)

    def rotary(self, head_dim: int) -> None:
        """The tower's own cos/sin table: 8192 positions in vLLM 0.32, half a head wide."""
        self.buffer("rotary_pos_emb", 8192, head_dim // 2, dtype_bits=None)

    def blocks(
        self,
        name: str,
        depth: int,
        hidden: int,
        width: int,
        *,
        is_gated: bool = False,
        has_qkv_bias: bool = True,
        has_o_bias: bool = True,
        has_mlp_bias: bool = True,
        has_norm_bias: bool = True,
    ) -> None:
        """Transformer blocks: qkv, output, two norms and an MLP."""
        self.linear(f"{name}.qkv", 3 * hidden, hidden, COLUMN, copies=depth, has_bias=has_qkv_bias)
        self.linear(f"{name}.proj", hidden, hidden, ROW, copies=depth, has_bias=has_o_bias)
        norms = 2 * (2 if has_norm_bias else 1)
        self.vector(f"{name}.norm", hidden, copies=norms * depth)
        for up in ("gate", "up") if is_gated else ("up",):
            self.linear(
                f"{name}.mlp.{up}", width, hidden, COLUMN, copies=depth, has_bias=has_mlp_bias
            )
        self.linear(f"{name}.mlp.down", hidden, width, ROW, copies=depth, has_bias=has_mlp_bias)

    def _add(
        self, name: str, rows: int, cols: int, shard: Shard, copies: int, *, is_matmul: bool = False
    ) -> None:
        weight = Weight(
            name=name,
            group=Group.VISION,
            rows=rows,
            cols=cols,
            shard=shard,
            copies=copies,
            is_matmul=is_matmul,
        )
        if rows and cols and copies:
            self.weights.append(weight)

    def done(
        self, heads: int, *widths: int, layers_path: str = "model.language_model.layers"
    ) -> Tower:
        """The finished tower."""
        return Tower(
            weights=tuple(self.weights),
            num_heads=heads,
            intermediate_sizes=tuple(sorted(set(widths))),
            layers_path=layers_path,
        )


# What a wrapper class fills in for a file without vision_config (transformers 5.24).
_PIXTRAL_12B: Final[Mapping[str, object]] = {
    "model_type": "pixtral",
    "intermediate_size": 4096,
    "hidden_size": 1024,
    "patch_size": 14,
    "image_size": 1540,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
_CLIP_L: Final[Mapping[str, object]] = {
    "model_type": "clip_vision_model",
    "intermediate_size": 4096,
    "hidden_size": 1024,
    "patch_size": 14,
    "image_size": 336,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
_ABSENT_TOWERS: Final[Mapping[str, Mapping[str, object]]] = {
    "mistral3": _PIXTRAL_12B,
    "llava": _CLIP_L,
    "llava_next": _CLIP_L,
}


def vision_fields(top: Fields, default_type: str) -> Fields:
    """The vision level with its class's defaults; a file without one has the class's tower."""
    level = top.nested("vision_config")
    if not level.values:
        absent = _ABSENT_TOWERS.get(top.text("model_type") or "", {})
        level = Fields(absent, file=top.file, path=level.path)
    kind = level.text("model_type") or default_type
    defaults = defaults_of(kind) or defaults_of(default_type)
    if not {"hidden_size", "depth", "num_hidden_layers"} & set(defaults):
        defaults = defaults_of(default_type)
    return Fields(level.values, file=top.file, path=level.path, defaults=defaults)


def num_heads(v: Fields) -> int:
    """Attention heads of a tower."""
    return v.size("num_heads", "num_attention_heads")


def patch_inputs(v: Fields) -> int:
    """Inputs of the patch embedding: channels x frames x patch x patch."""
    channels = v.size("in_channels", "in_chans", "num_channels", default=3)
    frames = v.size("temporal_patch_size", default=1)
    patch = side(v, "patch_size")
    return channels * frames * patch * patch


def side(v: Fields, key: str) -> int:
    """A side in pixels: a number, or two equal ones."""
    if not isinstance(v.value(key), list):
        return v.size(key)
    sides = set(v.integers(key) or ())
    if len(sides) != 1 or 0 in sides:
        raise v.bad(key, v.value(key), "a number or two equal ones")
    return sides.pop()
