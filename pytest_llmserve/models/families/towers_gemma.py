"""Towers of Gemma 3n and 4; runtimes keep them whole on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.models.class_defaults import defaults_of
from pytest_llmserve.models.families.vision import Draft, Tower, num_heads, vision_fields

if TYPE_CHECKING:
    from pytest_llmserve.models.fields import Fields


def gemma4(top: Fields, text: Fields) -> Tower:
    """Gemma 4: a tower with head norms, an audio tower where the file has one, two projections."""
    draft = Draft("model.vision_tower")
    heads: int | None = None
    hidden = text.size("hidden_size")
    if top.object("vision_config") is not None:
        v = vision_fields(top, "gemma4_vision")
        heads = num_heads(v)
        _vision(draft, v)
        draft.path = "model.embed_vision"
        draft.linear("embedding_projection", hidden, v.size("hidden_size"), has_bias=False)
    if top.object("audio_config") is not None:
        a = top.nested("audio_config", defaults=defaults_of("gemma4_audio"))
        _audio(draft, a)
        draft.path = "model.embed_audio"
        draft.linear("embedding_projection", hidden, a.size("output_proj_dims"), has_bias=False)
    return Tower(weights=tuple(draft.weights), num_heads=heads)


def _vision(draft: Draft, v: Fields) -> None:
    hidden, width, dim = v.size("hidden_size"), v.size("intermediate_size"), v.size("head_dim")
    depth, heads = v.size("num_hidden_layers"), num_heads(v)
    kv_heads = v.size("num_key_value_heads")
    patch = v.size("patch_size")
    draft.path = "model.vision_tower"
    draft.linear("patch_embedder.input_proj", hidden, 3 * patch * patch, has_bias=False)
    draft.table(
        "patch_embedder.position_embedding_table", 2 * v.size("position_embedding_size"), hidden
    )
    rows = (heads + 2 * kv_heads) * dim
    draft.linear("encoder.layers.qkv", rows, hidden, copies=depth, has_bias=False)
    draft.linear("encoder.layers.o_proj", hidden, heads * dim, copies=depth, has_bias=False)
    draft.vector("encoder.layers.qk_norm", dim, copies=2 * depth)
    draft.vector("encoder.layers.norm", hidden, copies=4 * depth)
    draft.linear("encoder.layers.mlp.gate_up", 2 * width, hidden, copies=depth, has_bias=False)
    draft.linear("encoder.layers.mlp.down", hidden, width, copies=depth, has_bias=False)


def _audio(draft: Draft, a: Fields) -> None:
    hidden, depth = a.size("hidden_size"), a.size("num_hidden_layers")
    channels = a.integers("subsampling_conv_channels") or []
    if len(channels) != 2:
        raise a.bad("subsampling_conv_channels", channels, "two integers")
    first, second = channels
    draft.path = "model.audio_tower"
    draft.linear("subsample.layer0", first, 9, has_bias=False)
    draft.linear("subsample.layer1", second, 9 * first, has_bias=False)
    draft.vector("subsample.norms", first + second)
    draft.linear("subsample.input_proj", hidden, first // 4 * second, has_bias=False)
    # Two feed-forwards of four times the width, attention, a light convolution, ten norms.
    draft.linear("layers.ffw_up", 4 * hidden, hidden, copies=2 * depth, has_bias=False)
    draft.linear("layers.ffw_down", hidden, 4 * hidden, copies=2 * depth, has_bias=False)
    draft.linear("layers.self_attn", hidden, hidden, copies=5 * depth, has_bias=False)
    draft.vector("layers.self_attn.per_dim_scale", hidden // num_heads(a), copies=depth)
    draft.linear("layers.lconv1d.start", 2 * hidden, hidden, copies=depth, has_bias=False)
    draft.linear("layers.lconv1d.end", hidden, hidden, copies=depth, has_bias=False)
    draft.vector("layers.lconv1d.conv", hidden * a.size("conv_kernel_size"), copies=depth)
    draft.vector("layers.norms", hidden, copies=9 * depth)
    draft.linear("output_proj", a.size("output_proj_dims"), hidden)
