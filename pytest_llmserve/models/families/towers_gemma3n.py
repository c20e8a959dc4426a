"""Towers of Gemma 3n: a MobileNet that the file only names, and a conformer.

Shapes as transformers 5.24.0 builds them with timm 1.0.31 (both built on torch's meta device); what
parallelism divides as vLLM 0.32.0 does: towers are whole on every rank, what embeds their outputs
is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.class_defaults import defaults_of
from pytest_llmserve.models.families.vision import ROW, Draft, Tower
from pytest_llmserve.models.spec import Shard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.models.fields import Fields

# Elements of each stage by timm's name of the network: 294,126,912 in all.
_NETWORKS: Final[Mapping[str, Mapping[str, int]]] = {
    "mobilenetv5_300m_enc": {
        "conv_stem": 1_856,
        "blocks.0": 1_492_608,
        "blocks.1": 2_439_168,
        "blocks.2": 63_407_744,
        "blocks.3": 211_540_480,
        "msfa": 15_245_056,
    }
}


def gemma3n(top: Fields, text: Fields) -> Tower:
    """Gemma 3n: both towers, also where the file says nothing of them (the class makes them)."""
    v = top.nested("vision_config", defaults=defaults_of("gemma3n_vision"))
    a = top.nested("audio_config", defaults=defaults_of("gemma3n_audio"))
    out = text.size("hidden_size")
    draft = Draft("model.vision_tower.timm_model")
    unsupported = _mobilenet(draft, v)
    _conformer(draft, a)
    for modality, tower in (("vision", v), ("audio", a)):
        draft.path = f"model.embed_{modality}"
        hidden = tower.size("hidden_size")
        draft.table("embedding", tower.size("vocab_size"), hidden, Shard.VOCAB)
        draft.vector("norms", hidden, copies=2)
        draft.linear("embedding_projection", out, hidden, ROW, has_bias=False)
    return Tower(weights=tuple(draft.weights), unsupported=unsupported)


def _mobilenet(draft: Draft, v: Fields) -> tuple[str, ...]:
    name = v.text("architecture")
    network = _NETWORKS.get(name or "")
    if network is None or v.value("model_args"):
        changed = " with model_args" if network is not None else ""
        return (f"Gemma 3n's vision tower {name!r}{changed}",)
    for stage, elements in network.items():
        draft.vector(stage, elements)
    return ()


def _conformer(draft: Draft, a: Fields) -> None:
    hidden, depth = a.size("hidden_size"), a.size("conf_num_hidden_layers")
    heads = a.size("conf_num_attention_heads")
    draft.path = "model.audio_tower"
    _subsampling(draft, a, hidden)
    draft.path = "model.audio_tower.conformer"
    # Two feed-forwards of four times the width, attention, a light convolution, nine norms.
    draft.linear("ffw_layer_1", 4 * hidden, hidden, copies=2 * depth, has_bias=False)
    draft.linear("ffw_layer_2", hidden, 4 * hidden, copies=2 * depth, has_bias=False)
    draft.linear("attention", hidden, hidden, copies=5 * depth, has_bias=False)
    draft.vector("attention.attn.per_dim_scale", hidden // heads, copies=depth)
    draft.linear("lconv1d.linear_start", 2 * hidden, hidden, copies=depth, has_bias=False)
    draft.linear("lconv1d.linear_end", hidden, hidden, copies=depth, has_bias=False)
    draft.vector("lconv1d.depthwise_conv1d", hidden * a.size("conf_conv_kernel_size"), copies=depth)
    draft.vector("norms", hidden, copies=9 * depth)
    # A mask of bools, sines and the cap of the logits in float32, six scalars.
    chunk = a.size("conf_attention_chunk_size")
    seen = chunk + a.size("conf_attention_context_left") - 1
    seen += a.count("conf_attention_context_right")
    draft.buffer("attention.attn.local_causal_valid_mask", chunk, seen, 8, copies=depth)
    draft.buffer("attention.attn.sines", hidden // 2 + 1, 1, copies=depth)
    draft.buffer("scalars", 6, 1, None, copies=depth)


def _subsampling(draft: Draft, a: Fields, hidden: int) -> None:
    """Two convolutions, padded by one on each side of the mel bins."""
    channels = a.integers("sscp_conv_channel_size") or []
    if len(channels) != 2:
        raise a.bad("sscp_conv_channel_size", channels, "two integers")
    kernels, strides = _pairs(a, "sscp_conv_kernel_size"), _pairs(a, "sscp_conv_stride_size")
    bins, inputs = a.size("input_feat_size"), 1
    for index, (outputs, kernel, stride) in enumerate(zip(channels, kernels, strides, strict=True)):
        area = kernel[0] * kernel[1]
        draft.linear(f"subsample.conv_{index}", outputs, inputs * area, has_bias=False)
        draft.vector(f"subsample.norm_{index}", outputs)
        bins = (bins + 2 - kernel[1]) // stride[1] + 1
        inputs = outputs
    draft.linear("subsample.input_proj_linear", hidden, inputs * bins, has_bias=False)


def _pairs(a: Fields, key: str) -> list[tuple[int, int]]:
    """Two pairs of positive integers: time and mel bins of each convolution."""
    found = a.items(key) or ()
    pairs = [
        (item[0], item[1])
        for item in found
        if isinstance(item, list | tuple)
        and len(item) == 2
        and all(type(side) is int and side > 0 for side in item)
    ]
    if len(pairs) != 2 or len(found) != 2:
        raise a.bad(key, found, "two pairs of positive integers")
    return pairs
