"""Bytes of weights on one rank of a vLLM server: the engine's sum and vLLM's own additions.

Checked against the parameters that vLLM 0.32.0 builds for one rank (728 builds).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.parallel import PartitionError, Rank, local_shape
from pytest_llmserve.engine.quantized import Padding
from pytest_llmserve.engine.weights import absorbed_mla_bytes_on_rank, weight_bytes_on_rank
from pytest_llmserve.models.schemes import scheme_of
from pytest_llmserve.models.spec import (
    CrossCache,
    Group,
    KvCache,
    LatentCache,
    Quantization,
    Shard,
    SharedCache,
    Weight,
)
from pytest_llmserve.units import GIB, format_gib

if TYPE_CHECKING:
    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import Layer, ModelSpec
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

DTYPE_BITS: Final = {"float32": 32, "float": 32, "float16": 16, "half": 16, "bfloat16": 16}
# --quantization on an unquantised checkpoint: what the linear layers become while loading.
_ONLINE: Final = {
    "fp8": Quantization(method="fp8", scheme="fp8_tensor", bits=8),
    "fp8_per_tensor": Quantization(method="fp8", scheme="fp8_tensor", bits=8),
    "ptpc_fp8": Quantization(method="fp8", scheme="fp8_channel", bits=8),
    "mxfp8": Quantization(method="mxfp8", scheme="mxfp8", bits=8, group_size=32),
    "experts_int8": Quantization(
        method="experts_int8", scheme="int8", bits=8, is_experts_only=True
    ),
    "bitsandbytes": Quantization(method="bitsandbytes", scheme="nf4", bits=4, group_size=64),
}
# Four float32 scales of each attention layer (q, k, v, prob), and four bf16 ones with fp8 KV.
_ATTENTION_SCALARS: Final = 16
_ATTENTION_FP8_SCALARS: Final = 8
_ATTENTION: Final = (KvCache, LatentCache, SharedCache, CrossCache)
_FP8_METHODS: Final = ("fp8", "modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8")
# MXFP4 experts on ROCM, and on Hopper while it took Triton's kernels: logs of 0.11 print 13.47 GiB
# for gpt-oss-20b (0.14.1 and later build 13.70).
_ROCM_PADDING: Final = Padding(intermediate=256, hidden=256)
_TRITON_PADDING: Final = Padding(intermediate=64, hidden=256)
_MARLIN_SINCE: Final = (0, 14)
_HOPPER: Final = 90
# Interleaved multimodal rope kept four tables' rows until 0.30 (run; 0.32 keeps one).
_INTERLEAVED_MROPE: Final = ("qwen3_vl", "qwen3_5", "qwen3_omni")
_ONE_MROPE_TABLE_SINCE: Final = (0, 31)
# mm-encoder-tp-mode "data" is ignored by these.
_ALWAYS_SHARDED_VISION: Final = ("gemma3", "gemma4", "whisper")
# Classes with LoRA on embedding and lm_head.
_EMBEDDING_LORA: Final = (
    "llama",
    "mistral",
    "qwen3",
    "mixtral",
    "phimoe",
    "granite",
    "nemotron",
    "falcon_h1",
    "jamba",
    "lfm2",
    "exaone",
    "minicpm",
    "cohere",
)
_LORA_GROUPS: Final = (
    Group.ATTENTION,
    Group.MLP,
    Group.EXPERTS,
    Group.SHARED_EXPERTS,
    Group.STATE,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightBytes:
    """What one rank holds once the model is loaded."""

    built: int
    """Parameters and buffers as the model is built, draft layer not counted."""
    absorbed: int
    """Dequantised MLA projections kept beside quantised ones."""
    lora: int
    draft: int
    offloaded: int
    """Of the above, kept in host memory (``--cpu-offload-gb``)."""
    num_parameters: int
    """Parameters of the whole model."""

    @property
    def total(self) -> int:
        """Bytes on the GPU."""
        return self.built + self.absorbed + self.lora + self.draft - self.offloaded


def is_vision_replicated(settings: VllmSettings, model: ModelSpec) -> bool:
    """Whether every rank holds the whole tower: asked for, and heard by this class."""
    is_sharded = model.model_type.startswith(_ALWAYS_SHARDED_VISION)
    return settings.mm_encoder_tp_mode == "data" and not is_sharded


def rank_of(settings: VllmSettings, model: ModelSpec, stage: int) -> Rank:
    """The place of a rank of pipeline stage ``stage``.

    Raises:
        PartitionError: ``VLLM_PP_LAYER_PARTITION`` is no list of numbers.
    """
    tp = settings.tensor_parallel_size.value
    outer = settings.data_parallel_size.value * settings.prefill_context_parallel_size.value
    partition = settings.env.get("VLLM_PP_LAYER_PARTITION")
    return Rank(
        tensor_parallel_size=tp,
        pipeline_parallel_size=settings.pipeline_parallel_size.value,
        pipeline_stage=stage,
        layer_partition=_layers_of_stages(partition) if partition else None,
        expert_ranks=tp * outer,
        has_expert_parallel=settings.enable_expert_parallel.value,
        is_vision_replicated=is_vision_replicated(settings, model),
        has_vision=not settings.language_model_only.value,
    )


def _layers_of_stages(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise PartitionError(f"VLLM_PP_LAYER_PARTITION={text} is no list of numbers") from None


def served_model(model: ModelSpec, settings: VllmSettings) -> ModelSpec:
    """The model with the quantisation that ``--quantization`` applies while loading."""
    word = settings.quantization.value
    if model.quantization is not None or word is None:
        return model
    online = _ONLINE.get(word)
    return model if online is None else replace(model, quantization=online)


_cache: dict[tuple[object, ...], tuple[ModelSpec, WeightBytes]] = {}
_MAX_CACHED: Final = 256


def weight_bytes(
    settings: VllmSettings,
    model: ModelSpec,
    gpu: GpuSpec | None,
    stage: int = 0,
    *,
    version: Version,
    draft: ModelSpec | None = None,
) -> WeightBytes:
    """Bytes of weights of one rank of a pipeline stage (the fullest one under expert parallelism).

    ``draft`` is what :func:`drafts.draft_of` makes of the speculative settings.

    Raises:
        ShardingError: a dimension that a parallel size does not divide.
        SchemeError: a quantisation whose bytes are not known.
    """
    rank = rank_of(settings, model, stage)
    padding = _mxfp4_padding(version, gpu)
    key = (
        id(model),
        rank,
        settings.dtype.value,
        settings.quantization.value,
        settings.cpu_offload_gib.value,
        settings.num_redundant_experts,
        (settings.enable_lora.value, settings.max_loras.value, settings.max_lora_rank.value),
        settings.fully_sharded_loras,
        padding,
        version.release < _ONE_MROPE_TABLE_SINCE,
    )
    cached = _cache.get(key)
    if cached is None or cached[0] is not model:
        if len(_cache) >= _MAX_CACHED:
            _cache.clear()
        cached = (model, _weight_bytes(_with_rope_of(model, version), settings, rank, padding))
        _cache[key] = cached
    if draft is None or not rank.is_last_stage:
        return cached[1]
    if draft.id == model.id:
        # The model's own layer is quantised while loading as the model is; another draft is not.
        draft = served_model(draft, settings)
    return _with_draft(cached[1], draft, settings, rank, padding)


def _mxfp4_padding(version: Version, gpu: GpuSpec | None) -> Padding:
    if gpu is not None and gpu.vendor.lower() == "amd":
        return _ROCM_PADDING
    is_hopper = gpu is not None and gpu.capability == _HOPPER
    return _TRITON_PADDING if is_hopper and version.release < _MARLIN_SINCE else Padding()


def _with_rope_of(model: ModelSpec, version: Version) -> ModelSpec:
    """The model with the rotary tables that this version keeps for it."""
    is_longer = version.release < _ONE_MROPE_TABLE_SINCE
    if not (is_longer and model.model_type.startswith(_INTERLEAVED_MROPE)):
        return model
    tables = tuple(replace(table, rows=4 * table.rows) for table in model.rotary_tables)
    return replace(model, rotary_tables=tables)


def _weight_bytes(
    model: ModelSpec, settings: VllmSettings, rank: Rank, padding: Padding
) -> WeightBytes:
    model = _with_redundant_experts(served_model(model, settings), settings.num_redundant_experts)
    bits = DTYPE_BITS[settings.dtype.value or model.dtype]
    built = _built_bytes(model, rank, bits, padding)
    absorbed = 0
    if model.quantization is not None:
        schemes = partial(scheme_of, model.quantization)
        absorbed = absorbed_mla_bytes_on_rank(model, rank, schemes, model_dtype_bits=bits)
    lora = _lora_bytes(settings, model, rank, bits) if settings.enable_lora.value else 0
    on_gpu = built + absorbed
    return WeightBytes(
        built=built,
        absorbed=absorbed,
        lora=lora,
        draft=0,
        offloaded=min(round(settings.cpu_offload_gib.value * GIB), on_gpu),
        num_parameters=num_parameters(model),
    )


def _with_redundant_experts(model: ModelSpec, count: int) -> ModelSpec:
    """The model with so many more experts in each routed layer."""
    if not count:
        return model
    groups = tuple(
        replace(group, layer=_with_more_experts(group.layer, count)) for group in model.layer_groups
    )
    return replace(model, layer_groups=groups)


def _with_more_experts(layer: Layer, count: int) -> Layer:
    if layer.experts is None:
        return layer
    num_experts = layer.experts.num_experts
    weights = tuple(
        replace(weight, copies=weight.copies + count)
        if weight.group is Group.EXPERTS and weight.copies == num_experts
        else weight
        for weight in layer.weights
    )
    experts = replace(layer.experts, num_experts=num_experts + count)
    return replace(layer, weights=weights, experts=experts)


def _with_draft(
    loaded: WeightBytes, draft: ModelSpec, settings: VllmSettings, rank: Rank, padding: Padding
) -> WeightBytes:
    """The same with a draft on the last stage, on all ranks of the target or whole on each."""
    bits = DTYPE_BITS[settings.dtype.value or draft.dtype]
    size = settings.draft_tensor_parallel_size or rank.tensor_parallel_size
    place = replace(
        rank,
        tensor_parallel_size=size,
        pipeline_parallel_size=1,
        pipeline_stage=0,
        layer_partition=None,
    )
    drafted = _built_bytes(draft, place, bits, padding)
    if draft.quantization is not None:
        schemes = partial(scheme_of, draft.quantization)
        drafted += absorbed_mla_bytes_on_rank(draft, place, schemes, model_dtype_bits=bits)
    return replace(loaded, draft=drafted)


def _built_bytes(model: ModelSpec, rank: Rank, bits: int, padding: Padding) -> int:
    quant = model.quantization
    scalars = _ATTENTION_SCALARS
    if quant is not None and quant.method in _FP8_METHODS:
        scalars += _ATTENTION_FP8_SCALARS
    return weight_bytes_on_rank(
        model,
        rank,
        partial(scheme_of, quant),
        model_dtype_bits=bits,
        mxfp4_padding=padding,
        layer_extra_bytes=partial(_attention_scalars, scalars),
    ).total_bytes


def _attention_scalars(scalars: int, layer: Layer) -> int:
    return scalars * sum(isinstance(cache, _ATTENTION) for cache in layer.caches)


def _lora_bytes(settings: VllmSettings, model: ModelSpec, rank: Rank, bits: int) -> int:
    """Buffers for ``max_loras`` adapters of ``max_lora_rank``, made before any is loaded."""
    width = settings.max_lora_rank.value
    elements = 0
    for group in model.layer_groups:
        here = sum(index in rank.layers(model) for index in group.indices)
        each = sum(
            _lora_elements(weight, rank, width, is_fully_sharded=settings.fully_sharded_loras)
            for weight in group.layer.weights
            if weight.is_matmul and weight.cols > 1 and weight.group in _LORA_GROUPS
        )
        elements += here * each
    if model.model_type.startswith(_EMBEDDING_LORA):
        elements += 2 * width * (model.vocab_size + model.hidden_size)
    return settings.max_loras.value * elements * bits // 8


def _lora_elements(weight: Weight, rank: Rank, width: int, *, is_fully_sharded: bool) -> int:
    """A (width x inputs) and B (outputs x width) of one linear; A whole for column layers."""
    local = local_shape(weight, rank)
    a_rows, b_rows = width, local.rows
    if is_fully_sharded and weight.shard in (Shard.COLUMN, Shard.KV):
        a_rows = max(1, width // rank.tensor_parallel_size)
    elif is_fully_sharded and weight.shard is Shard.ROW:
        b_rows = local.rows // rank.tensor_parallel_size
    return (a_rows * local.cols + b_rows * width) * local.copies


def num_parameters(model: ModelSpec) -> int:
    """Parameters of the whole model, buffers not counted."""
    total = sum(w.num_elements for w in (*model.outside, *model.vision) if w.is_parameter)
    for group in model.layer_groups:
        layer = sum(w.num_elements for w in group.layer.weights if w.is_parameter)
        total += layer * len(group.indices)
    return total


def weights_source(settings: VllmSettings, model: ModelSpec, weights: WeightBytes) -> str:
    """Where the figure comes from, in few words: ``70.55e9 params x 2 B / TP 2``."""
    model = served_model(model, settings)
    text = f"{weights.num_parameters / 1e9:.2f}e9 params"
    if model.quantization is None:
        text += f" x {DTYPE_BITS[settings.dtype.value or model.dtype] // 8} B"
    else:
        text += f", {model.quantization.scheme}"
    for label, size in (
        ("TP", settings.tensor_parallel_size.value),
        ("PP", settings.pipeline_parallel_size.value),
    ):
        if size > 1:
            text += f" / {label} {size}"
    for label, size in (
        ("LoRA", weights.lora),
        ("draft", weights.draft),
        ("MLA copies", weights.absorbed),
    ):
        if size:
            text += f" + {format_gib(size)} GiB {label}"
    if weights.offloaded:
        text += f" - {format_gib(weights.offloaded)} GiB in host memory"
    return text + _checkpoint_note(settings, model, weights)


def _checkpoint_note(settings: VllmSettings, model: ModelSpec, weights: WeightBytes) -> str:
    """Said where one GPU holds all and the files' own bytes differ by more than 0.5 %."""
    stored = model.checkpoint_bytes
    if stored is None or settings.world_size > 1 or not weights.built:
        return ""
    if abs(weights.built - stored) * 200 <= stored:
        return ""
    return f" (checkpoint: {format_gib(stored)} GiB)"
