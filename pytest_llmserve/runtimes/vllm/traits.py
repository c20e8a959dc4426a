"""What vLLM asks of a model before it chooses defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pytest_llmserve.models.spec import CrossCache, LatentCache, StateCache

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs

AttentionType = Literal["decoder", "hybrid", "attention_free", "encoder_decoder"]

_POOLING_TASKS: Final = frozenset({"embed", "embedding", "classify", "reward", "score"})

# Modalities by the classes' own supported limits (0.33); all at 0 means text only.
_MODALITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "Gemma3ForConditionalGeneration": ("image",),
    "Llama4ForConditionalGeneration": ("image",),
    "Mistral3ForConditionalGeneration": ("image",),
    "LlavaForConditionalGeneration": ("image",),
    "Qwen2VLForConditionalGeneration": ("image", "video"),
    "Qwen2_5_VLForConditionalGeneration": ("image", "video"),
    "Qwen3VLForConditionalGeneration": ("image", "video"),
    "Qwen3VLMoeForConditionalGeneration": ("image", "video"),
    "Qwen3_5ForConditionalGeneration": ("image", "video"),
    "Qwen3_5MoeForConditionalGeneration": ("image", "video"),
    "Glm4vForConditionalGeneration": ("image", "video"),
    "WhisperForConditionalGeneration": ("audio",),
}
_ALL_MODALITIES: Final = ("image", "video", "audio")


def attention_type(model: ModelSpec) -> AttentionType:
    """Whether layers keep keys and values, a recurrent state, both, or an encoder's output too."""
    caches = [cache for group in model.layer_groups for cache in group.layer.caches]
    if any(isinstance(cache, CrossCache) for cache in caches):
        return "encoder_decoder"
    has_state = any(isinstance(cache, StateCache) for cache in caches)
    if not has_state:
        return "decoder"
    all_state = all(isinstance(cache, StateCache) for cache in caches)
    return "attention_free" if all_state else "hybrid"


def longest_encoder_input(model: ModelSpec) -> int:
    """Tokens of the encoder's output at most; 0 without an encoder that a decoder attends to."""
    return max(
        (
            cache.encoder_tokens
            for group in model.layer_groups
            for cache in group.layer.caches
            if isinstance(cache, CrossCache)
        ),
        default=0,
    )


def is_mla(model: ModelSpec) -> bool:
    """Whether attention is multi-head latent attention."""
    return any(
        isinstance(cache, LatentCache)
        for group in model.layer_groups
        for cache in group.layer.caches
    )


def is_moe(model: ModelSpec) -> bool:
    """Whether any layer has routed experts."""
    return any(group.layer.experts is not None for group in model.layer_groups)


def is_pooling(args: ParsedArgs) -> bool:
    """Whether the flags ask for embeddings or scores instead of text."""
    runner = _stated(args, "runner")
    task = _stated(args, "task")
    convert = _stated(args, "convert")
    if runner in ("generate", "pooling"):
        return runner == "pooling"
    return task in _POOLING_TASKS or convert in ("embed", "classify", "reward")


def is_text_only_by_limits(args: ParsedArgs, model: ModelSpec | None) -> bool:
    """Whether ``--limit-mm-per-prompt`` sets every modality of the model to 0."""
    limits = _stated(args, "limit_mm_per_prompt")
    if not isinstance(limits, dict) or model is None:
        return False
    asked = _MODALITIES.get(model.architecture, _ALL_MODALITIES)
    return all(_count(limits.get(modality)) == 0 for modality in asked)


def _count(limit: object) -> object:
    return limit.get("count") if isinstance(limit, dict) else limit


def _stated(args: ParsedArgs, dest: str) -> object:
    found = args.stated.get(dest)
    return None if found is None else found.value
