"""Vision towers shaped like CLIP, SigLIP and Pixtral, and their projectors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmserve.models.class_defaults import defaults_of
from pytest_llmserve.models.families.vision import (
    COLUMN,
    ROW,
    Draft,
    Tower,
    num_heads,
    patch_inputs,
    side,
    vision_fields,
)

if TYPE_CHECKING:
    from pytest_llmserve.models.fields import Fields


def _clip_like(
    draft: Draft, v: Fields, *, has_class_token: bool, has_patch_bias: bool, positions: int
) -> int:
    hidden = v.size("hidden_size")
    draft.linear("embeddings.patch_embedding", hidden, patch_inputs(v), has_bias=has_patch_bias)
    if has_class_token:
        draft.vector("embeddings.class_embedding", hidden)
        draft.vector("pre_layrnorm", hidden, copies=2)
    draft.table("embeddings.position_embedding", positions, hidden)
    draft.blocks("encoder.layers", v.size("num_hidden_layers"), hidden, v.size("intermediate_size"))
    draft.vector("post_layernorm", hidden, copies=2)
    return hidden


def _area(v: Fields, key: str) -> int:
    """Patches that a merge kernel takes together."""
    sides = v.integers(key)
    if sides is None:
        return 4
    if len(sides) != 2 or 0 in sides:
        raise v.bad(key, sides, "two positive integers")
    return sides[0] * sides[1]


def _grid(v: Fields) -> int:
    across = side(v, "image_size") // side(v, "patch_size")
    return across * across


def _pooling_head(draft: Draft, v: Fields) -> None:
    """SigLIP's attention pooling; released language models switch it off."""
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    draft.vector("head.probe", hidden)
    draft.linear("head.attention.in_proj", 3 * hidden, hidden)
    draft.linear("head.attention.out_proj", hidden, hidden)
    draft.vector("head.layernorm", hidden, copies=2)
    draft.linear("head.mlp.fc1", width, hidden)
    draft.linear("head.mlp.fc2", hidden, width)


def gemma3(top: Fields, text: Fields) -> Tower:
    """Gemma 3: SigLIP, one projection that is whole on every rank."""
    v = vision_fields(top, "siglip_vision_model")
    draft = Draft("vision_tower.vision_model")
    hidden = _clip_like(draft, v, has_class_token=False, has_patch_bias=True, positions=_grid(v))
    if v.flag("vision_use_head", default=True):
        _pooling_head(draft, v)
    out = text.size("hidden_size")
    draft.path = "multi_modal_projector"
    draft.linear("mm_input_projection_weight", out, hidden, has_bias=False)
    draft.vector("mm_soft_emb_norm", hidden)
    width = v.size("intermediate_size")
    return draft.done(num_heads(v), width, layers_path="language_model.model.layers")


def llava(top: Fields, text: Fields) -> Tower:
    """LLaVA 1.5: CLIP and two linear layers."""
    v = vision_fields(top, "clip_vision_model")
    kind = v.text("model_type") or "clip_vision_model"
    if kind == "pixtral":
        return _pixtral(top, text, has_merger=False)
    draft = Draft("vision_tower.vision_model")
    is_clip = kind == "clip_vision_model"
    positions = _grid(v) + (1 if is_clip else 0)
    hidden = _clip_like(
        draft, v, has_class_token=is_clip, has_patch_bias=not is_clip, positions=positions
    )
    if not is_clip and v.flag("vision_use_head", default=True):
        _pooling_head(draft, v)
    _projector(draft, top, hidden, text.size("hidden_size"))
    width = v.size("intermediate_size")
    return draft.done(num_heads(v), width, layers_path="language_model.model.layers")


def llava_next(top: Fields, text: Fields) -> Tower:
    """LLaVA-NeXT: LLaVA's tower and a vector that ends each row of tiles."""
    found = llava(top, text)
    draft = Draft("model")
    draft.vector("image_newline", text.size("hidden_size"))
    return replace(found, weights=found.weights + tuple(draft.weights))


def _projector(draft: Draft, top: Fields, hidden: int, out: int) -> None:
    features = top.value("vision_feature_layer")
    inputs = hidden * (len(features) if isinstance(features, list) else 1)
    wrapper = defaults_of(top.text("model_type") or "")
    has_bias = top.flag(
        "multimodal_projector_bias", default=bool(wrapper.get("multimodal_projector_bias"))
    )
    draft.path = "multi_modal_projector"
    draft.linear("linear_1", out, inputs, COLUMN, has_bias=has_bias)
    draft.linear("linear_2", out, out, ROW, has_bias=has_bias)


def mistral3(top: Fields, text: Fields) -> Tower:
    """Mistral Small 3.1, Ministral 3, Devstral 2: Pixtral with a patch merger."""
    return _pixtral(top, text, has_merger=True)


def _pixtral(top: Fields, text: Fields, *, has_merger: bool) -> Tower:
    v = vision_fields(top, "pixtral")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    draft = Draft("vision_tower")
    draft.linear("patch_conv", hidden, patch_inputs(v), has_bias=False)
    draft.vector("ln_pre", hidden)
    draft.blocks(
        "transformer.layers",
        v.size("num_hidden_layers"),
        hidden,
        width,
        is_gated=True,
        has_qkv_bias=False,
        has_o_bias=False,
        has_mlp_bias=False,
        has_norm_bias=False,
    )
    if has_merger:
        merged = hidden * top.size("spatial_merge_size", default=2) ** 2
        draft.path = "multi_modal_projector"
        draft.vector("norm", hidden)
        draft.linear("patch_merger.merging_layer", hidden, merged, has_bias=False)
    _projector(draft, top, hidden, text.size("hidden_size"))
    return draft.done(num_heads(v), width, layers_path="language_model.model.layers")


def llama4(top: Fields, text: Fields) -> Tower:
    """Llama 4: a class token, pixel shuffle, one projection without bias."""
    v = vision_fields(top, "llama4_vision_model")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    draft = Draft("vision_model")
    draft.linear("patch_embedding.linear", hidden, patch_inputs(v), COLUMN, has_bias=False)
    draft.vector("class_embedding", hidden)
    draft.table("positional_embedding_vlm", _grid(v) + 1, hidden)
    draft.vector("layernorm_pre_post", hidden, copies=4)
    draft.blocks("model.layers", v.size("num_hidden_layers"), hidden, width)
    inner, out = v.size("projector_input_dim"), v.size("projector_output_dim")
    draft.linear("vision_adapter.mlp.fc1", inner, width, COLUMN, has_bias=False)
    draft.linear("vision_adapter.mlp.fc2", out, out, ROW, has_bias=False)
    draft.path = "multi_modal_projector"
    text_size = text.size("hidden_size")
    draft.linear("linear_1", text_size, v.size("vision_output_dim"), COLUMN, has_bias=False)
    return draft.done(num_heads(v), width, layers_path="language_model.model.layers")


def kimi_k25(top: Fields, text: Fields) -> Tower:
    """Kimi K2.5: MoonViT and a patch merger that is whole on every rank."""
    v = vision_fields(top, "kimi_k25_vision")
    hidden = v.size("vt_hidden_size", "hidden_size")
    width = v.size("vt_intermediate_size", "intermediate_size")
    depth = v.size("vt_num_hidden_layers", "num_hidden_layers")
    heads = v.size("vt_num_attention_heads", "num_attention_heads")
    draft = Draft("vision_tower")
    draft.linear("patch_embed.proj", hidden, patch_inputs(v))
    rows = v.size("init_pos_emb_height", "pos_emb_height")
    rows *= v.size("init_pos_emb_width", "pos_emb_width")
    draft.table("patch_embed.pos_emb", rows, hidden)
    draft.blocks("encoder.blocks", depth, hidden, width)
    draft.vector("encoder.final_layernorm", hidden, copies=2)
    merged = hidden * _area(v, "merge_kernel_size")
    draft.path = "mm_projector"
    draft.vector("pre_norm", v.size("mm_hidden_size", default=hidden), copies=2)
    draft.linear("proj.0", merged, merged)
    draft.linear("proj.2", text.size("hidden_size"), merged)
    return draft.done(heads, width, layers_path="language_model.model.layers")


def lfm2_vl(top: Fields, text: Fields) -> Tower:
    """LFM2-VL: SigLIP 2 and a projector that is whole on every rank."""
    v = vision_fields(top, "siglip2_vision_model")
    draft = Draft("model.vision_tower.vision_model")
    hidden = _clip_like(
        draft, v, has_class_token=False, has_patch_bias=True, positions=v.size("num_patches")
    )
    if v.flag("vision_use_head", default=True):
        _pooling_head(draft, v)
    merged = hidden * top.size("downsample_factor", default=2) ** 2
    inner = top.size("projector_hidden_size", default=2560)
    has_bias = top.flag("projector_bias", default=True)
    draft.path = "model.multi_modal_projector"
    if top.flag("projector_use_layernorm", default=True):
        draft.vector("layer_norm", merged, copies=2)
    draft.linear("linear_1", inner, merged, has_bias=has_bias)
    draft.linear("linear_2", text.size("hidden_size"), inner, has_bias=has_bias)
    return draft.done(num_heads(v), v.size("intermediate_size"))


def mllama(top: Fields, text: Fields) -> Tower:
    """Llama 3.2 Vision: local and gated global blocks over tiles."""
    v = vision_fields(top, "mllama_vision_model")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    ratios = len(v.items("supported_aspect_ratios") or range(8)) + 1
    tiles = v.size("max_num_tiles")
    patches = _grid(v) + 1
    draft = Draft("vision_model")
    draft.linear("patch_embedding", hidden, patch_inputs(v), has_bias=False)
    draft.vector("class_embedding", hidden)
    draft.table("gated_positional_embedding.embedding", patches, hidden)
    draft.table("gated_positional_embedding.tile_embedding", ratios, tiles * patches * hidden)
    draft.table("tile_positional_embedding", 2 * ratios, tiles * hidden)
    global_layers = v.size("num_global_layers")
    draft.vector("gates", 3 + 2 * global_layers)
    draft.vector("layernorm_pre_post", hidden, copies=4)
    depth = v.size("num_hidden_layers") + global_layers
    draft.blocks("transformer.layers", depth, hidden, width, has_qkv_bias=False, has_o_bias=False)
    draft.path = "multi_modal_projector"
    draft.linear("linear", text.size("hidden_size"), v.size("vision_output_dim"))
    heads = v.size("attention_heads", "num_attention_heads")
    return draft.done(heads, width, layers_path="language_model.model.layers")


def minicpmv4_6(top: Fields, text: Fields) -> Tower:
    """MiniCPM-V 4.6: SigLIP, a window merger in the middle and a downsampling one after it."""
    v = vision_fields(top, "minicpmv4_6_vision")
    draft = Draft("model.vision_tower")
    hidden = _clip_like(draft, v, has_class_token=False, has_patch_bias=True, positions=_grid(v))
    windows = _area(v, "window_kernel_size")
    inner = hidden * windows
    width = v.size("intermediate_size")
    draft.linear("vit_merger.self_attn.qkv", 3 * hidden, hidden, COLUMN)
    draft.linear("vit_merger.self_attn.out_proj", hidden, hidden, ROW)
    draft.vector("vit_merger.layer_norm1", hidden, copies=2)
    draft.vector("vit_merger.pre_norm", inner, copies=2)
    draft.linear("vit_merger.linear_1", width * windows, inner)
    draft.linear("vit_merger.linear_2", hidden, width * windows)
    draft.path = "model.merger"
    merged = hidden * _area(top, "merge_kernel_size")
    times = top.size("merger_times", default=1)
    draft.vector("pre_norm", merged, copies=2 * times)
    draft.linear("linear_1", merged, merged, copies=times)
    draft.linear("linear_2", hidden, merged, copies=times - 1)
    draft.linear("linear_2", text.size("hidden_size"), merged)
    return draft.done(num_heads(v), width)


def minimax_m3(top: Fields, text: Fields) -> Tower:
    """MiniMax M3: CLIP-like blocks over frames, a projector before and after the merge."""
    v = vision_fields(top, "minimax_m3_vl_vision")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    compression = v.nested("img_token_compression_config")
    frames = compression.size("temporal_patch_size", default=2)
    merge = compression.size("spatial_merge_size", default=2)
    draft = Draft("vision_tower")
    draft.linear("embeddings.proj", hidden, patch_inputs(v) * frames, has_bias=False)
    draft.vector("pre_layrnorm", hidden, copies=2)
    draft.blocks("encoder.layers", v.size("num_hidden_layers"), hidden, width)
    inner, out = top.size("projector_hidden_size", default=6144), text.size("hidden_size")
    draft.path = "multi_modal_projector"
    draft.linear("linear_1", inner, hidden, COLUMN)
    draft.linear("linear_2", out, inner, ROW)
    draft.linear("merge_linear_1", inner, out * merge * merge, COLUMN)
    draft.linear("merge_linear_2", out, inner, ROW)
    return draft.done(num_heads(v), width, layers_path="language_model.model.layers")


def internvl(top: Fields, text: Fields) -> Tower:
    """InternVL 1.5 to 3: InternViT with layer scales, and a merger after pixel shuffle."""
    v = vision_fields(top, "internvl_vision")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    depth = v.size("num_hidden_layers")
    has_qkv_bias = v.flag("qkv_bias", "attention_bias")
    is_layer_norm = v.text("norm_type") == "layer_norm"
    draft = Draft("vision_model")
    draft.linear("embeddings.patch_embedding", hidden, patch_inputs(v))
    draft.vector("embeddings.class_embedding", hidden)
    draft.table("embeddings.position_embedding", _grid(v) + 1, hidden)
    draft.blocks(
        "encoder.layers",
        depth,
        hidden,
        width,
        has_qkv_bias=has_qkv_bias,
        has_norm_bias=is_layer_norm,
    )
    draft.vector("encoder.layers.layer_scales", hidden, copies=2 * depth)
    if v.flag("qk_normalization", "use_qk_norm"):
        draft.vector("encoder.layers.attn.qk_norm", hidden, copies=2 * depth)
    ratio = top.number("downsample_ratio", default=0.5)
    merged = hidden * int(1 / ratio) ** 2
    out = text.size("hidden_size")
    draft.path = "mlp1"
    draft.vector("0", merged, copies=2)
    draft.linear("1", out, merged)
    draft.linear("3", out, out)
    return draft.done(num_heads(v), width, layers_path="language_model.model.layers")


def phi3_v(top: Fields, text: Fields) -> Tower:
    """Phi-3-vision: its CLIP tower is named, not described, in the file."""
    return Tower(
        weights=(),
        layers_path="model.layers",
        unsupported=("the vision tower and projector of Phi-3-vision (about 0.4 B parameters)",),
    )


def qwen3_omni(top: Fields, text: Fields) -> Tower:
    """Qwen3-Omni: its encoders are not modelled."""
    return Tower(
        weights=(),
        layers_path="thinker.model.layers",
        unsupported=("the vision and audio encoders of Qwen3-Omni (about 1.2 B parameters)",),
    )
