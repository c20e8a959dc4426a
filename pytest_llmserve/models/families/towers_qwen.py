"""Vision towers of Qwen-VL and GLM-V: patches over frames, mergers of 2 x 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.models.class_defaults import defaults_of
from pytest_llmserve.models.families.vision import (
    COLUMN,
    ROW,
    Draft,
    Tower,
    num_heads,
    patch_inputs,
    vision_fields,
)

if TYPE_CHECKING:
    from pytest_llmserve.models.fields import Fields


def qwen2_vl(top: Fields, text: Fields) -> Tower:
    """Qwen2-VL: LayerNorms, MLP of mlp_ratio times the width."""
    v = vision_fields(top, "qwen2_vl_vision")
    hidden = v.size("embed_dim")
    width = int(hidden * v.number("mlp_ratio"))
    draft = Draft("visual")
    draft.linear("patch_embed", hidden, patch_inputs(v), has_bias=False)
    draft.blocks("blocks", v.size("depth"), hidden, width)
    _merger(draft, v, hidden, v.size("hidden_size"), has_norm_bias=True)
    return draft.done(num_heads(v), width, layers_path="model.layers")


def qwen25_vl(top: Fields, text: Fields) -> Tower:
    """Qwen2.5-VL: RMSNorms, a gated MLP."""
    v = vision_fields(top, "qwen2_5_vl_vision")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    draft = Draft("visual")
    draft.linear("patch_embed", hidden, patch_inputs(v), has_bias=False)
    draft.blocks("blocks", v.size("depth"), hidden, width, is_gated=True, has_norm_bias=False)
    _merger(draft, v, hidden, v.size("out_hidden_size"), has_norm_bias=False)
    return draft.done(num_heads(v), width, layers_path="model.layers")


def _merger(draft: Draft, v: Fields, hidden: int, out: int, *, has_norm_bias: bool) -> None:
    merged = hidden * v.size("spatial_merge_size") ** 2
    draft.vector("merger.ln_q", hidden, copies=2 if has_norm_bias else 1)
    draft.linear("merger.mlp.0", merged, merged, COLUMN)
    draft.linear("merger.mlp.2", out, merged, ROW)


def qwen3_vl(top: Fields, text: Fields) -> Tower:
    """Qwen3-VL: position table, deepstack mergers after some of the blocks."""
    v = vision_fields(top, "qwen3_vl_vision")
    return _qwen3(v, len(v.items("deepstack_visual_indexes") or ()))


def qwen3_5(top: Fields, text: Fields) -> Tower:
    """Qwen3.5: the same without deepstack mergers."""
    return _qwen3(vision_fields(top, "qwen3_5_vision"), 0)


def _qwen3(v: Fields, num_deep_mergers: int) -> Tower:
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    draft = Draft("model.visual")
    draft.linear("patch_embed", hidden, patch_inputs(v))
    draft.table("pos_embed", v.size("num_position_embeddings"), hidden)
    draft.blocks("blocks", v.size("depth"), hidden, width)
    merged = hidden * v.size("spatial_merge_size") ** 2
    draft.rotary(hidden // num_heads(v))
    draft.vector("merger.norm", hidden, copies=2)
    draft.vector("deepstack_merger_list.norm", merged, copies=2 * num_deep_mergers)
    mergers = 1 + num_deep_mergers
    draft.linear("merger.linear_fc1", merged, merged, COLUMN, copies=mergers)
    draft.linear("merger.linear_fc2", v.size("out_hidden_size"), merged, ROW, copies=mergers)
    return draft.done(num_heads(v), width)


def glm4v(top: Fields, text: Fields) -> Tower:
    """GLM-4.1V and 4.5V: gated MLP as wide as the output, a convolution that downsamples."""
    v = vision_fields(top, "glm4v_vision")
    hidden, out = v.size("hidden_size"), v.size("out_hidden_size")
    context = v.size("intermediate_size")
    draft = Draft("model.visual")
    draft.linear("patch_embed", hidden, patch_inputs(v))
    grid = v.size("image_size") // v.size("patch_size")
    draft.table("embeddings.position_embedding", grid * grid, hidden)
    draft.blocks(
        "blocks",
        v.size("depth"),
        hidden,
        out,
        is_gated=True,
        has_qkv_bias=v.flag("attention_bias"),
        has_o_bias=False,
        has_mlp_bias=False,
        has_norm_bias=False,
    )
    draft.rotary(hidden // num_heads(v))
    draft.vector("post_layernorm", hidden, copies=2)
    draft.linear("downsample", out, hidden * v.size("spatial_merge_size") ** 2)
    draft.linear("merger.proj", out, out, COLUMN, has_bias=False)
    draft.vector("merger.post_projection_norm", out, copies=2)
    for name in ("gate_proj", "up_proj"):
        draft.linear(f"merger.{name}", context, out, COLUMN, has_bias=False)
    draft.linear("merger.down_proj", out, context, ROW, has_bias=False)
    return draft.done(num_heads(v), out, context)


def qwen25_omni(top: Fields, text: Fields) -> Tower:
    """Qwen2.5-Omni: the thinker's visual and audio encoders; the talker is not served."""
    thinker = top.nested("thinker_config")
    visual = qwen25_vl(thinker, text)
    a = thinker.nested("audio_config", defaults=defaults_of("qwen2_5_omni_audio_encoder"))
    width, mlp, out = a.size("d_model"), a.size("encoder_ffn_dim"), a.size("output_dim")
    depth = a.size("encoder_layers")
    draft = Draft("visual")
    v = vision_fields(thinker, "qwen2_5_vl_vision")
    draft.rotary(v.size("hidden_size") // num_heads(v))
    draft.path = "audio_tower"
    draft.linear("conv1", width, 3 * a.size("num_mel_bins"))
    draft.linear("conv2", width, 3 * width)
    draft.blocks("layers", depth, width, mlp, has_qkv_bias=False)
    draft.vector("layers.self_attn.qv_bias", width, copies=2 * depth)
    draft.vector("ln_post", width, copies=2)
    draft.linear("proj", out, width)
    draft.table("audio_bos_eos_token", 2, out)
    draft.buffer("positional_embedding", a.size("max_source_positions"), width)
    return Tower(
        weights=visual.weights + tuple(draft.weights),
        num_heads=visual.num_heads,
        intermediate_sizes=visual.intermediate_sizes,
        layers_path="thinker.model.layers",
    )
