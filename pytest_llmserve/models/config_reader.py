"""``read_config``: a ``config.json`` becomes a ``Shape`` and that an exact ``ModelSpec``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.models.build import build
from pytest_llmserve.models.class_defaults import defaults_of
from pytest_llmserve.models.errors import MISSING, UnsupportedModel
from pytest_llmserve.models.families import load, read_decoder
from pytest_llmserve.models.families.registry import FAMILIES, MODEL_TYPES, Family
from pytest_llmserve.models.fields import Fields
from pytest_llmserve.models.positions import (
    Rope,
    read_limits,
    read_ropes,
    rotary_tables,
    with_local_rope,
)
from pytest_llmserve.models.quantization import read_quantization
from pytest_llmserve.models.shape import Shape
from pytest_llmserve.models.spec import ContextLimits

if TYPE_CHECKING:
    from pytest_llmserve.models.families.common import Decoder
    from pytest_llmserve.models.families.vision import Tower
    from pytest_llmserve.models.spec import ModelSpec, RotaryTable

_HIDDEN: Final = ("hidden_size", "n_embd", "d_model", "n_embed")
_LAYERS: Final = (
    "num_hidden_layers",
    "n_layer",
    "num_layers",
    "n_layers",
    "layer_types",
    "layers_block_type",
    "block_configs",
    "hybrid_override_pattern",
    "decoder_layers",
)
_DTYPES: Final[Mapping[str, str]] = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    "float32": "float32",
    "float": "float32",
}


def read_config(
    config: Mapping[str, Any],
    *,
    model_id: str,
    source: str,
    hf_quant_config: Mapping[str, Any] | None = None,
    checkpoint_bytes: int | None = None,
) -> ModelSpec:
    """The exact shape of a model from its ``config.json``.

    Args:
        config: the parsed file.
        model_id: what the model is called (``meta-llama/Llama-3.1-8B-Instruct``).
        source: where the file is; messages and the spec name it.
        hf_quant_config: ``hf_quant_config.json`` beside it, where there is one.
        checkpoint_bytes: bytes of the stored tensors, where known.

    Raises:
        UnsupportedModel: the architecture is not understood; nothing is guessed from defaults.
        BadConfig: a key is missing or says something that cannot be.
    """
    shape = read_shape(config, source=source, hf_quant_config=hf_quant_config)
    return build(shape, model_id=model_id, source=source, checkpoint_bytes=checkpoint_bytes)


def read_shape(
    config: Mapping[str, Any], *, source: str, hf_quant_config: Mapping[str, Any] | None = None
) -> Shape:
    """The normalised shape of a ``config.json``: names, defaults and quirks resolved.

    Raises:
        UnsupportedModel: the architecture is not understood.
        BadConfig: a key is missing or says something that cannot be.
    """
    if not isinstance(config, Mapping):
        raise Fields({}, file=source).bad("(whole file)", config, "a JSON object")
    top = Fields(config, file=source)
    architecture, family = _family(top)
    model_type = top.text("model_type") or ""
    text, reader = _text_level(top, family, model_type)
    found = read_decoder(reader, text)
    tower = _tower(top, text, family)
    ropes = read_ropes(text)
    limits = read_limits(text, ropes)
    beside = None
    if hf_quant_config is not None:
        beside = Fields(hf_quant_config, file=f"{source} (hf_quant_config.json)")
    shape = _shape(found, tower)
    return replace(
        shape,
        architecture=architecture,
        model_type=model_type,
        limits=limits,
        dtype=_dtype(top, text),
        is_tied=_is_tied(top, text, family, found),
        quantization=read_quantization(top, text, beside),
        rotary_tables=_tables(limits, ropes, found) if family.has_rotary_tables else (),
        has_vocab_on_every_stage=family.vocab == "everywhere",
        has_embedding_on_every_stage=family.vocab != "ends",
    )


def _family(top: Fields) -> tuple[str, Family]:
    names = top.items("architectures") or ()
    model_type = top.text("model_type")
    name = names[0] if names else MODEL_TYPES.get(model_type or "")
    if name is None:
        known = f"model_type {model_type!r}" if model_type else "a config without model_type"
        raise UnsupportedModel(f"{top.file}: {known} is not understood, no architecture is named")
    if not isinstance(name, str):
        raise top.bad("architectures", list(names), "a list of class names")
    family = FAMILIES.get(name)
    if family is None:
        kind = f" (model_type {model_type!r})" if model_type else ""
        raise UnsupportedModel(f"{top.file}: architecture {name!r}{kind} is not understood")
    return name, family


def _text_level(top: Fields, family: Family, model_type: str) -> tuple[Fields, str]:
    """The level that describes the language model, and the reader for it."""
    level = top
    for key in family.text_keys:
        if level.object(key) is not None:
            level = level.nested(key)
    is_nested = level is not top
    text_type = (level.text("model_type") if is_nested else None) or family.text_type or model_type
    reader = family.reader
    if not reader:
        name = MODEL_TYPES.get(text_type)
        if name is None:
            raise UnsupportedModel(
                f"{top.file}: {level.path}model_type {text_type!r} is not understood"
            )
        reader = FAMILIES[name].reader
    text = Fields(level.values, file=level.file, path=level.path, defaults=defaults_of(text_type))
    if not is_nested:
        for keys in (_HIDDEN, _LAYERS):
            if all(text.values.get(key) is None for key in keys):
                raise text.bad(keys[0], MISSING, "an integer")
    return text, reader


def _tables(
    limits: ContextLimits, ropes: Mapping[str, Rope], found: Decoder
) -> tuple[RotaryTable, ...]:
    if found.rotary_dim is None:
        return ()
    if found.local_rope_theta is not None:
        ropes = with_local_rope(ropes, found.local_rope_theta)
    tables = rotary_tables(
        limits,
        ropes,
        found.rotary_dim,
        dims=dict(found.rotary_dims),
        partial_rotary_factor=found.rotary_partial_factor,
        dtype_bits=found.rotary_dtype_bits,
    )
    return tables * 2 if found.has_indexer_rope else tables


def _tower(top: Fields, text: Fields, family: Family) -> Tower | None:
    if not family.tower:
        return None
    tower: Tower = load(family.tower)(top, text)
    return tower


def _is_tied(top: Fields, text: Fields, family: Family, found: Decoder) -> bool:
    """The wrapper's word, then the text config's, then the wrapper class, then the text class."""
    if not family.text_keys:
        return found.is_tied
    for level in (top, text):
        if level.values.get("tie_word_embeddings") is not None:
            return level.flag("tie_word_embeddings")
    wrapper = defaults_of(top.text("model_type") or "").get("tie_word_embeddings")
    return found.is_tied if wrapper is None else bool(wrapper)


def _dtype(top: Fields, text: Fields) -> str:
    """The stated dtype; nothing stated means float32 to transformers."""
    for level in (text, top):
        found = level.text("dtype", "torch_dtype")
        if found is None or found == "auto":
            continue
        name = found.removeprefix("torch.")
        if name not in _DTYPES:
            raise level.bad("torch_dtype", found, "bfloat16, float16 or float32")
        return _DTYPES[name]
    return "float32"


def _shape(found: Decoder, tower: Tower | None) -> Shape:
    return Shape(
        architecture="",
        model_type="",
        hidden_size=found.hidden_size,
        vocab_size=found.vocab_size,
        blocks=found.blocks,
        limits=ContextLimits(candidates={}),
        dtype="",
        is_tied=found.is_tied,
        names=found.names,
        layers_path=found.layers_path if tower is None else tower.layers_path,
        has_norm_bias=found.has_norm_bias,
        has_final_norm=found.has_final_norm,
        has_lm_head_bias=found.has_lm_head_bias,
        embedding_size=found.embedding_size,
        has_whole_embedding=found.has_whole_embedding,
        extra=found.extra,
        vision=() if tower is None else tower.weights,
        vision_num_heads=None if tower is None else tower.num_heads,
        vision_intermediate_sizes=() if tower is None else tower.intermediate_sizes,
        is_multimodal=tower is not None,
        unsupported=found.unsupported if tower is None else found.unsupported + tower.unsupported,
    )
