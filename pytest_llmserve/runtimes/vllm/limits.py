"""How long a context the model's own config allows, as each version derives it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.spec import KvCache
from pytest_llmserve.runtimes.vllm.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from pytest_llmserve.models.spec import ContextLimits, ModelSpec
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs

_FALLBACK_LEN: Final = 2048

# max_position_embeddings is already the long length for these (0.33, config/model.py).
_UNSCALED: Final = frozenset(
    {"su", "longrope", "llama3", "deepseek_yarn", "deepseek_llama_scaling", "default", "mrope"}
)
_LENGTH_KEYS: Final = frozenset(
    {
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "model_max_length",
        "max_target_positions",
        "max_sequence_length",
        "max_seq_length",
        "seq_len",
    }
)
_ROPE_KEYS: Final = frozenset({"rope_scaling", "rope_parameters", "rope_theta"})
# Overrides that change neither a size nor a limit.
_HARMLESS_KEYS: Final = frozenset(
    {"classifier_from_token", "method", "use_cache", "dtype", "torch_dtype", "id2label"}
)
UNDERSTOOD_OVERRIDES: Final = _LENGTH_KEYS | _ROPE_KEYS | _HARMLESS_KEYS


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Derived:
    """The model's limit: ``limit`` is what a user may ask, ``default`` what no flag gives.

    ``limit`` is ``None`` where the config names no length: then any length is accepted.
    """

    limit: int | None
    default: int
    key: str
    model_max_length: int | None = None


def derive(model: ModelSpec, args: ParsedArgs, version: Version) -> Derived:
    """The version's derivation, config overrides on the command line included."""
    limits = overridden(model.limits, args)
    key, length = _shortest(limits)
    window = _window(model)
    is_window_off = "disable_sliding_window" in args.stated and bool(
        args.stated["disable_sliding_window"].value
    )
    if is_window_off and window is not None and (length is None or window < length):
        key, length = "sliding_window", window
    if length is None:
        return Derived(None, _FALLBACK_LEN, key)
    scaled = int(length * _factor(limits, length, model.model_type, version))
    default = scaled
    if limits.rope_type == "longrope" and limits.original_max_position_embeddings:
        default = limits.original_max_position_embeddings
    return Derived(scaled, default, key, limits.model_max_length)


def _shortest(limits: ContextLimits) -> tuple[str, int | None]:
    if limits.model_max_length is not None:
        return "model_max_length", limits.model_max_length
    if not limits.candidates:
        return "max_position_embeddings", None
    key = min(limits.candidates, key=lambda name: limits.candidates[name])
    return key, limits.candidates[key]


def _window(model: ModelSpec) -> int | None:
    windows = [
        cache.window
        for group in model.layer_groups
        for cache in group.layer.caches
        if isinstance(cache, KvCache) and cache.kind == "sliding" and cache.window
    ]
    return min(windows, default=None)


def _factor(limits: ContextLimits, length: int, model_type: str, version: Version) -> float:
    """What RoPE scaling multiplies the length by; yarn's rule changed in 0.30."""
    kind = limits.rope_type
    if kind is None or kind in _UNSCALED or limits.rope_factor is None or "gemma3" in model_type:
        return 1.0
    if kind == "yarn":
        if at_least(version, "0.30"):
            return 1.0
        original = limits.original_max_position_embeddings or length
        return original * limits.rope_factor / length
    return limits.rope_factor


def overridden(limits: ContextLimits, args: ParsedArgs) -> ContextLimits:
    """The limits after ``--hf-overrides``, ``--rope-scaling`` and ``--rope-theta``."""
    overrides = args.stated.get("hf_overrides")
    changes: dict[str, object] = {}
    if overrides is not None and isinstance(overrides.value, dict):
        changes.update(overrides.value)
        inner = changes.get("text_config")
        if isinstance(inner, dict):
            changes.update(inner)
    scaling = args.stated.get("rope_scaling")
    if scaling is not None:
        changes["rope_scaling"] = scaling.value
    for key in sorted(_LENGTH_KEYS & changes.keys()):
        value = changes[key]
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            limits = _with_length(limits, key, value)
    rope = changes.get("rope_parameters") or changes.get("rope_scaling")
    return _with_rope(limits, rope) if isinstance(rope, dict) else limits


def _with_length(limits: ContextLimits, key: str, value: int) -> ContextLimits:
    if key == "model_max_length":
        return replace(limits, model_max_length=value)
    return replace(limits, candidates={**limits.candidates, key: value})


def _with_rope(limits: ContextLimits, rope: Mapping[str, object]) -> ContextLimits:
    """A nested override is merged into the config's own block, key by key."""
    kind = rope.get("rope_type") or rope.get("type") or limits.rope_type
    factor = rope.get("factor", limits.rope_factor)
    original = rope.get("original_max_position_embeddings")
    return replace(
        limits,
        rope_type=kind if isinstance(kind, str) and kind != "default" else None,
        rope_factor=float(factor) if isinstance(factor, int | float) else None,
        original_max_position_embeddings=original
        if isinstance(original, int)
        else limits.original_max_position_embeddings,
    )
