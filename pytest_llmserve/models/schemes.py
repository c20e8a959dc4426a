"""Which storage scheme one module of a quantised checkpoint has.

Ignore lists name modules exactly, by prefix, by ``*`` pattern or by ``re:`` pattern, under whatever
wrapper the exporter saw (``model.language_model.layers.0…``, ``language_model.model.layers.0…``),
so wrappers are stripped from both sides before comparing.
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.models.spec import Quantization

_WRAPPERS: Final = frozenset(
    ("model", "language_model", "backbone", "transformer", "thinker", "text_model", "decoder")
)
_VISION: Final = frozenset(
    (
        "visual",
        "vision_tower",
        "vision_model",
        "vision_encoder",
        "audio_tower",
        "multi_modal_projector",
        "mm_projector",
        "embed_vision",
        "embed_audio",
        "merger",
        "connector",
    )
)
_EMBEDDINGS: Final = frozenset(
    ("embed_tokens", "wte", "wpe", "word_embeddings", "embeddings", "embed_in", "tok_embeddings")
)
_HEADS: Final = frozenset(("lm_head", "output_layer", "embed_out", "output"))
# Routers and what else every loader keeps whole, listed or not.
_NEVER: Final = frozenset(("gate", "router", "wg", "shared_expert_gate", "wk", "weights_proj"))
_FUSED: Final = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "qkv_proj": "q_proj",
    "gate_up_proj": "gate_proj",
    "in_proj_qkvz": "in_proj_qkv",
    "in_proj_ba": "in_proj_b",
}
_MAX_TABLES: Final = 64


class SchemeTable:
    """A quantisation made ready for many questions."""

    __slots__ = ("_exact", "_names", "_patterns", "_prefixes", "_quant", "_regexes", "_stored")

    def __init__(self, quant: Quantization) -> None:
        self._quant = quant
        self._exact: set[str] = set()
        self._names: set[str] = set()
        prefixes: list[str] = []
        self._patterns: list[re.Pattern[str]] = []
        self._regexes: list[re.Pattern[str]] = []
        for entry in quant.ignore:
            if entry.startswith("re:"):
                self._regexes.append(re.compile(entry[3:]))
            elif entry.endswith("*") and not set("*?[") & set(entry[:-1]):
                prefixes.append(_core(entry[:-1]))
            elif "*" in entry:
                self._patterns.append(re.compile(translate(_core(entry))))
            elif "." not in entry:
                self._names.add(entry)
            else:
                self._exact.add(_core(entry))
        self._prefixes = tuple(prefix for prefix in prefixes if prefix)
        self._stored = {_core(name): scheme for name, scheme in quant.per_module.items()}

    def scheme_of(self, module_path: str) -> str | None:
        """The scheme of one module, ``None`` where it is stored unquantised."""
        core = _core(module_path)
        if self._stored:
            return self._listed(core, module_path)
        components = core.split(".")
        leaf = components[-1]
        if leaf in _HEADS and len(components) == 1 and not self._quant.is_lm_head_quantized:
            return None
        if leaf in _EMBEDDINGS or leaf in _NEVER or components[0] in _VISION:
            return None
        if self._quant.is_experts_only and "experts" not in components:
            return None
        return None if self._is_ignored(core, components, module_path) else self._quant.scheme

    def _listed(self, core: str, module_path: str) -> str | None:
        """MIXED_PRECISION: only what is listed, under its own or a fused name, or a parent's."""
        components = core.split(".")
        for name in (*_spellings(core), *_parents(components)):
            if name in self._stored:
                return self._stored[name]
        for pattern, scheme in self._stored.items():
            if pattern.startswith("re:"):
                if re.match(pattern[3:], module_path):
                    return scheme
            elif pattern == "*":
                is_left_out = components[-1] in _HEADS | _EMBEDDINGS | _NEVER
                if not is_left_out and not self._is_ignored(core, components, module_path):
                    return scheme
        return None

    def _is_ignored(self, core: str, components: list[str], module_path: str) -> bool:
        if not self._names.isdisjoint(components):
            return True
        spellings = tuple(_spellings(core))
        if any(name in self._exact for name in (*spellings, *_parents(components))):
            return True
        if self._prefixes and core.startswith(self._prefixes):
            return True
        if any(pattern.match(core) for pattern in self._patterns):
            return True
        return any(regex.match(path) for regex in self._regexes for path in (module_path, core))


def _core(path: str) -> str:
    """The path without wrappers: ``model.language_model.layers.0.mlp`` is ``layers.0.mlp``."""
    while True:
        head, dot, rest = path.partition(".")
        if not dot or head not in _WRAPPERS:
            return path
        path = rest


def _spellings(core: str) -> Iterator[str]:
    """The path and the same with its leaf as part of a fused matrix, or as one of its parts."""
    yield core
    parent, _, leaf = core.rpartition(".")
    if leaf in _FUSED:
        yield f"{parent}.{_FUSED[leaf]}"
    if parent.endswith(".experts"):
        yield f"{parent}.0.{_FUSED.get(leaf, leaf)}"


def _parents(components: list[str]) -> Iterator[str]:
    for end in range(len(components) - 1, 0, -1):
        yield ".".join(components[:end])


_tables: dict[int, tuple[Quantization, SchemeTable]] = {}


def scheme_of(quant: Quantization | None, module_path: str) -> str | None:
    """The storage scheme of one module: ``fp8_block``, ``int4``…, ``None`` unquantised.

    Args:
        quant: what the checkpoint says, ``None`` for an unquantised one.
        module_path: the whole path (``model.layers.0.mlp.down_proj``, ``lm_head``); of an expert,
            that of expert 0.
    """
    if quant is None:
        return None
    cached = _tables.get(id(quant))
    if cached is None or cached[0] is not quant:
        if len(_tables) >= _MAX_TABLES:
            _tables.clear()
        cached = _tables[id(quant)] = (quant, SchemeTable(quant))
    return cached[1].scheme_of(module_path)
