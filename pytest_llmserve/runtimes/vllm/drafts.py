"""What drafts tokens beside a model, as a small model of its own: weights and caches alike.

Checked against drafts that vLLM 0.32.0 builds beside their targets (read and run there).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.spec import (
    Group,
    KvCache,
    LatentCache,
    Layer,
    LayerGroup,
    Shard,
    Weight,
)
from pytest_llmserve.runtimes.vllm.speculative import DRAFT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

DRAFT_ARCHITECTURES: Final = (
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "DFlashDraftModel",
)
"""Classes that cannot serve by themselves."""
_OWN_LAYER: Final = "mtp"
_NO_WEIGHTS: Final = ("ngram", "ngram_gpu", "suffix", "custom_class", "extract_hidden_states")
_SHARES_VOCABULARY: Final = ("eagle", "eagle3", "dflash")
_READABLE: Final = (*_SHARES_VOCABULARY, DRAFT_MODEL)
# The projection of an own draft layer is sharded by TP in these, whole in DeepSeek, GLM and MiMo.
_SHARDED_PROJECTION: Final = ("qwen3_next", "qwen3_5", "nemotron_h")
_SLIDING_DRAFT: Final = ("mimo_v2",)
_ONE_MIXER_A_LAYER: Final = ("nemotron_h",)


class UnknownDraftError(ValueError):
    """Speculative decoding with a draft model whose files were not given."""


def draft_of(settings: VllmSettings, model: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
    """The draft with what it holds of its own, ``None`` where nothing is loaded for drafting.

    Args:
        settings: the server's.
        model: the target.
        given: the draft model that the settings name, where its config was found.

    Raises:
        UnknownDraftError: a draft is loaded whose size the files do not tell.
    """
    method = settings.speculative_method.value
    if method is None and settings.num_speculative_tokens.value:
        raise UnknownDraftError("speculative tokens without a method or a model")
    if method is None or method in _NO_WEIGHTS:
        return None
    if _is_own_layer(method):
        if _is_another(settings.draft_model, model):
            raise UnknownDraftError(_words(method, settings.draft_model))
        return _own_draft(model)
    if given is None or given.unsupported or method not in _READABLE:
        raise UnknownDraftError(_words(method, settings.draft_model))
    if given.id == model.id:
        raise UnknownDraftError("the model drafts for itself, by which of its layers is not told")
    if method not in _SHARES_VOCABULARY:
        return replace(given, has_vocab_on_every_stage=True)
    return _beside_target(given, model, method)


def _is_own_layer(method: str) -> bool:
    return method == _OWN_LAYER or method.endswith(f"_{_OWN_LAYER}")


def _is_another(name: str | None, model: ModelSpec) -> bool:
    """Whether an own-layer method is given another model than the target."""
    last = (name or "").rstrip("/").rpartition("/")[2].lower()
    return bool(last) and last != model.id.rpartition("/")[2].lower()


def _words(method: str, name: str | None) -> str:
    which = f"of {name}" if name else f"that {method} drafts with"
    return f"the config {which} was not given"


def _beside_target(given: ModelSpec, model: ModelSpec, method: str) -> ModelSpec:
    """An EAGLE or DFlash draft: embedding and (but for EAGLE-3) lm_head are the target's."""
    dropped = [Group.EMBEDDING] if method == "eagle3" else [Group.EMBEDDING, Group.LM_HEAD]
    outside = tuple(weight for weight in given.outside if weight.group not in dropped)
    if method == "eagle":
        h = given.hidden_size
        outside += (Weight(name="fc", group=Group.OTHER, rows=h, cols=2 * h),)
    # A table equal to the target's is the same object.
    tables = tuple(t for t in given.rotary_tables if t not in model.rotary_tables)
    return replace(
        given, outside=outside, vision=(), rotary_tables=tables, has_vocab_on_every_stage=True
    )


def _own_draft(model: ModelSpec) -> ModelSpec:
    """The model's next-token layer: one more layer, its norms, and 2 hidden widths to one."""
    h = model.hidden_size
    is_sharded = model.model_type.startswith(_SHARDED_PROJECTION)
    projection = Weight(
        name="mtp.eh_proj",
        group=Group.OTHER,
        rows=h,
        cols=2 * h,
        shard=Shard.COLUMN if is_sharded else Shard.REPLICATED,
    )
    norms = Weight(name="mtp.norms", group=Group.OTHER, rows=h, copies=3, is_matmul=False)
    return replace(
        model,
        num_layers=1,
        layer_groups=(LayerGroup(layer=_own_layer(model), indices=(0,)),),
        outside=(projection, norms),
        vision=(),
        rotary_tables=(),
        has_vocab_on_every_stage=True,
    )


def _own_layer(model: ModelSpec) -> Layer:
    """What the draft repeats: the last layer with full attention.

    MiMo-V2's slides and is dense; where a layer is a mixer or an MLP (Nemotron), the draft has
    the last of both.
    """
    if model.model_type.startswith(_SLIDING_DRAFT):
        mixer, mlp = _last(model, _slides), _last(model, _is_dense)
        return _joined(mixer, mlp, (Group.ATTENTION, Group.NORM), (Group.MLP,))
    mixer = _last(model, _attends_to_all)
    if model.model_type.startswith(_ONE_MIXER_A_LAYER):
        body = _last(model, lambda layer: not layer.caches)
        return replace(body, caches=mixer.caches, weights=mixer.weights + body.weights)
    return mixer


def _last(model: ModelSpec, is_wanted: Callable[[Layer], bool]) -> Layer:
    found = [group for group in model.layer_groups if is_wanted(group.layer)]
    return max(found or model.layer_groups, key=lambda group: group.indices[-1]).layer


def _joined(
    mixer: Layer, mlp: Layer, of_mixer: tuple[Group, ...], of_mlp: tuple[Group, ...]
) -> Layer:
    weights = [weight for weight in mixer.weights if weight.group in of_mixer]
    weights += [weight for weight in mlp.weights if weight.group in of_mlp]
    return Layer(caches=mixer.caches, weights=tuple(weights))


def _attends_to_all(layer: Layer) -> bool:
    return any(
        isinstance(cache, LatentCache) or (isinstance(cache, KvCache) and cache.kind == "full")
        for cache in layer.caches
    )


def _slides(layer: Layer) -> bool:
    return any(isinstance(cache, KvCache) and cache.kind == "sliding" for cache in layer.caches)


def _is_dense(layer: Layer) -> bool:
    return layer.experts is None and any(w.group is Group.MLP for w in layer.weights)
