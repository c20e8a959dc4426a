"""Vision towers and their projectors.

Layouts as transformers 5.24 builds them; which parts tensor parallelism divides as vLLM 0.32 does
(design notes, section 6.7): patch and position embeddings and norms are whole on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmserve.models.class_defaults import defaults_of
from pytest_llmserve.models.fields import Fields
from pytest_llmserve.models.spec import Group, Shard, Weight

_COLUMN, _ROW, _WHOLE = Shard.COLUMN, Shard.ROW, Shard.REPLICATED


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
        shard: Shard = _WHOLE,
        *,
        copies: int = 1,
        has_bias: bool = True,
    ) -> None:
        """A matrix and its bias, ``copies`` times."""
        path = f"{self.path}.{name}"
        self._add(path, rows, cols, shard, copies, is_matmul=True)
        if has_bias:
            self._add(f"{path}.bias", rows, 1, _WHOLE if shard is _ROW else shard, copies)

    def vector(self, name: str, size: int, *, copies: int = 1) -> None:
        """A norm weight, an embedding row or a gate."""
        self._add(f"{self.path}.{name}", size, 1, _WHOLE, copies)

    def table(self, name: str, rows: int, cols: int) -> None:
        """An embedding that is looked up."""
        self._add(f"{self.path}.{name}", rows, cols, _WHOLE, 1)

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
        self.linear(f"{name}.qkv", 3 * hidden, hidden, _COLUMN, copies=depth, has_bias=has_qkv_bias)
        self.linear(f"{name}.proj", hidden, hidden, _ROW, copies=depth, has_bias=has_o_bias)
        norms = 2 * (2 if has_norm_bias else 1)
        self.vector(f"{name}.norm", hidden, copies=norms * depth)
        for up in ("gate", "up") if is_gated else ("up",):
            self.linear(
                f"{name}.mlp.{up}", width, hidden, _COLUMN, copies=depth, has_bias=has_mlp_bias
            )
        self.linear(f"{name}.mlp.down", hidden, width, _ROW, copies=depth, has_bias=has_mlp_bias)

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


def vision_fields(top: Fields, default_type: str) -> Fields:
    """The vision level with its class's defaults; a file without one has the class's tower."""
    level = top.nested("vision_config")
    kind = level.text("model_type") or default_type
    defaults = defaults_of(kind) or defaults_of(default_type)
    if not {"hidden_size", "depth", "num_hidden_layers"} & set(defaults):
        defaults = defaults_of(default_type)
    return Fields(level.values, file=top.file, path=level.path, defaults=defaults)


def _heads(v: Fields) -> int:
    return v.size("num_heads", "num_attention_heads")


def _patch(v: Fields) -> int:
    """Inputs of the patch embedding: channels x frames x patch x patch."""
    channels = v.size("in_channels", "in_chans", "num_channels", default=3)
    frames = v.size("temporal_patch_size", default=1)
    patch = v.size("patch_size")
    return channels * frames * patch * patch


def qwen2_vl(top: Fields, text: Fields) -> Tower:
    """Qwen2-VL: LayerNorms, MLP of mlp_ratio times the width."""
    v = vision_fields(top, "qwen2_vl_vision")
    hidden = v.size("embed_dim")
    width = int(hidden * v.number("mlp_ratio"))
    draft = Draft("visual")
    draft.linear("patch_embed", hidden, _patch(v), has_bias=False)
    draft.blocks("blocks", v.size("depth"), hidden, width)
    _merger(draft, v, hidden, v.size("hidden_size"), has_norm_bias=True)
    return draft.done(_heads(v), width, layers_path="model.layers")


def qwen25_vl(top: Fields, text: Fields) -> Tower:
    """Qwen2.5-VL: RMSNorms, a gated MLP."""
    v = vision_fields(top, "qwen2_5_vl_vision")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    draft = Draft("visual")
    draft.linear("patch_embed", hidden, _patch(v), has_bias=False)
    draft.blocks("blocks", v.size("depth"), hidden, width, is_gated=True, has_norm_bias=False)
    _merger(draft, v, hidden, v.size("out_hidden_size"), has_norm_bias=False)
    return draft.done(_heads(v), width, layers_path="model.layers")


def _merger(draft: Draft, v: Fields, hidden: int, out: int, *, has_norm_bias: bool) -> None:
    merged = hidden * v.size("spatial_merge_size") ** 2
    draft.vector("merger.ln_q", hidden, copies=2 if has_norm_bias else 1)
    draft.linear("merger.mlp.0", merged, merged, _COLUMN)
    draft.linear("merger.mlp.2", out, merged, _ROW)


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
    draft.linear("patch_embed", hidden, _patch(v))
    draft.table("pos_embed", v.size("num_position_embeddings"), hidden)
    draft.blocks("blocks", v.size("depth"), hidden, width)
    merged = hidden * v.size("spatial_merge_size") ** 2
    draft.vector("merger.norm", hidden, copies=2)
    draft.vector("deepstack_merger_list.norm", merged, copies=2 * num_deep_mergers)
    mergers = 1 + num_deep_mergers
    draft.linear("merger.linear_fc1", merged, merged, _COLUMN, copies=mergers)
    draft.linear("merger.linear_fc2", v.size("out_hidden_size"), merged, _ROW, copies=mergers)
    return draft.done(_heads(v), width)


def glm4v(top: Fields, text: Fields) -> Tower:
    """GLM-4.1V and 4.5V: gated MLP as wide as the output, a convolution that downsamples."""
    v = vision_fields(top, "glm4v_vision")
    hidden, out = v.size("hidden_size"), v.size("out_hidden_size")
    context = v.size("intermediate_size")
    draft = Draft("model.visual")
    draft.linear("patch_embed", hidden, _patch(v))
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
    draft.vector("post_layernorm", hidden, copies=2)
    draft.linear("downsample", out, hidden * v.size("spatial_merge_size") ** 2)
    draft.linear("merger.proj", out, out, _COLUMN, has_bias=False)
    draft.vector("merger.post_projection_norm", out, copies=2)
    for name in ("gate_proj", "up_proj"):
        draft.linear(f"merger.{name}", context, out, _COLUMN, has_bias=False)
    draft.linear("merger.down_proj", out, context, _ROW, has_bias=False)
    return draft.done(_heads(v), out, context)


def _clip_like(
    draft: Draft, v: Fields, *, has_class_token: bool, has_patch_bias: bool, positions: int
) -> int:
    hidden = v.size("hidden_size")
    draft.linear("embeddings.patch_embedding", hidden, _patch(v), has_bias=has_patch_bias)
    if has_class_token:
        draft.vector("embeddings.class_embedding", hidden)
        draft.vector("pre_layrnorm", hidden, copies=2)
    draft.table("embeddings.position_embedding", positions, hidden)
    draft.blocks("encoder.layers", v.size("num_hidden_layers"), hidden, v.size("intermediate_size"))
    draft.vector("post_layernorm", hidden, copies=2)
    return hidden


def _grid(v: Fields) -> int:
    side = v.size("image_size") // v.size("patch_size")
    return side * side


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
    return draft.done(_heads(v), width, layers_path="language_model.model.layers")


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
    return draft.done(_heads(v), width, layers_path="language_model.model.layers")


def _projector(draft: Draft, top: Fields, hidden: int, out: int) -> None:
    features = top.value("vision_feature_layer")
    inputs = hidden * (len(features) if isinstance(features, list) else 1)
    wrapper = defaults_of(top.text("model_type") or "")
    has_bias = top.flag(
        "multimodal_projector_bias", default=bool(wrapper.get("multimodal_projector_bias"))
    )
    draft.path = "multi_modal_projector"
    draft.linear("linear_1", out, inputs, _COLUMN, has_bias=has_bias)
    draft.linear("linear_2", out, out, _ROW, has_bias=has_bias)


def mistral3(top: Fields, text: Fields) -> Tower:
    """Mistral Small 3.1, Ministral 3, Devstral 2: Pixtral with a patch merger."""
    return _pixtral(top, text, has_merger=True)


def _pixtral(top: Fields, text: Fields, *, has_merger: bool) -> Tower:
    v = vision_fields(top, "pixtral")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    draft = Draft("vision_tower")
    draft.linear("patch_conv", hidden, _patch(v), has_bias=False)
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
    return draft.done(_heads(v), width, layers_path="language_model.model.layers")


def llama4(top: Fields, text: Fields) -> Tower:
    """Llama 4: a class token, pixel shuffle, one projection without bias."""
    v = vision_fields(top, "llama4_vision_model")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    draft = Draft("vision_model")
    draft.linear("patch_embedding.linear", hidden, _patch(v), _COLUMN, has_bias=False)
    draft.vector("class_embedding", hidden)
    draft.table("positional_embedding_vlm", _grid(v) + 1, hidden)
    draft.vector("layernorm_pre_post", hidden, copies=4)
    draft.blocks("model.layers", v.size("num_hidden_layers"), hidden, width)
    inner, out = v.size("projector_input_dim"), v.size("projector_output_dim")
    draft.linear("vision_adapter.mlp.fc1", inner, width, _COLUMN, has_bias=False)
    draft.linear("vision_adapter.mlp.fc2", out, out, _ROW, has_bias=False)
    draft.path = "multi_modal_projector"
    text_size = text.size("hidden_size")
    draft.linear("linear_1", text_size, v.size("vision_output_dim"), _WHOLE, has_bias=False)
    return draft.done(_heads(v), width, layers_path="language_model.model.layers")


def kimi_k25(top: Fields, text: Fields) -> Tower:
    """Kimi K2.5: MoonViT and a patch merger that is whole on every rank."""
    v = vision_fields(top, "kimi_k25_vision")
    hidden = v.size("vt_hidden_size", "hidden_size")
    width = v.size("vt_intermediate_size", "intermediate_size")
    depth = v.size("vt_num_hidden_layers", "num_hidden_layers")
    heads = v.size("vt_num_attention_heads", "num_attention_heads")
    draft = Draft("vision_tower")
    draft.linear("patch_embed.proj", hidden, _patch(v))
    rows = v.size("init_pos_emb_height", "pos_emb_height")
    rows *= v.size("init_pos_emb_width", "pos_emb_width")
    draft.table("patch_embed.pos_emb", rows, hidden)
    draft.blocks("encoder.blocks", depth, hidden, width)
    draft.vector("encoder.final_layernorm", hidden, copies=2)
    kernel = v.items("merge_kernel_size") or (2, 2)
    merged = hidden * int(kernel[0]) * int(kernel[1])
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
    return draft.done(_heads(v), v.size("intermediate_size"))


def mllama(top: Fields, text: Fields) -> Tower:
    """Llama 3.2 Vision: local and gated global blocks over tiles."""
    v = vision_fields(top, "mllama_vision_model")
    hidden, width = v.size("hidden_size"), v.size("intermediate_size")
    ratios = len(v.items("supported_aspect_ratios") or range(8)) + 1
    tiles = v.size("max_num_tiles")
    patches = _grid(v) + 1
    draft = Draft("vision_model")
    draft.linear("patch_embedding", hidden, _patch(v), has_bias=False)
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
    kernel = v.items("window_kernel_size") or (2, 2)
    windows = int(kernel[0]) * int(kernel[1])
    inner = hidden * windows
    width = v.size("intermediate_size")
    draft.linear("vit_merger.self_attn.qkv", 3 * hidden, hidden, _COLUMN)
    draft.linear("vit_merger.self_attn.out_proj", hidden, hidden, _ROW)
    draft.vector("vit_merger.layer_norm1", hidden, copies=2)
    draft.vector("vit_merger.pre_norm", inner, copies=2)
    draft.linear("vit_merger.linear_1", width * windows, inner)
    draft.linear("vit_merger.linear_2", hidden, width * windows)
    draft.path = "model.merger"
    merge = top.items("merge_kernel_size") or (2, 2)
    merged = hidden * int(merge[0]) * int(merge[1])
    times = top.size("merger_times", default=1)
    draft.vector("pre_norm", merged, copies=2 * times)
    draft.linear("linear_1", merged, merged, copies=times)
    draft.linear("linear_2", hidden, merged, copies=times - 1)
    draft.linear("linear_2", text.size("hidden_size"), merged)
    return draft.done(_heads(v), width)
