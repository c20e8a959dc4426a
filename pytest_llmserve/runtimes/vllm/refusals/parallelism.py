"""Parallel shapes that do not divide the model, or that vLLM does not support."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.spec import KvCache, StateCache
from pytest_llmserve.runtimes.vllm.refusals.case import divisors
from pytest_llmserve.runtimes.vllm.traits import attention_type, is_mla, is_moe
from pytest_llmserve.runtimes.vllm.versions import at_least
from pytest_llmserve.runtimes.vllm.weights import is_vision_replicated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case, Rule

_TP: Final = ("tensor_parallel_size",)
_VOCAB_PADDING: Final = 64
# Classes without SupportsPP (built on 0.32; Whisper read).
_WITHOUT_STAGES: Final = frozenset(
    {
        "AriaForConditionalGeneration",
        "Mamba2ForCausalLM",
        "Phi4MMForCausalLM",
        "Qwen3VLMoeForConditionalGeneration",
        "WhisperForConditionalGeneration",
        "Zamba2ForCausalLM",
    }
)


def _sizes_positive(case: Case) -> Iterator[Refusal]:
    for dest in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        value = case.value(dest)
        if isinstance(value, int) and value < 1:
            says = "Input should be greater than or equal to 1"
            headline = f"{value} is no size for --{dest.replace('_', '-')}"
            yield case.refuse("parallelism", headline, says, expected="1 or more", at=(dest,))


def _attention_heads(case: Case) -> Refusal | None:
    model, tp = case.model, case.tp
    if model is None or tp < 2 or model.num_attention_heads % tp == 0:
        return None
    heads = model.num_attention_heads
    return case.refuse(
        "parallelism",
        f"{heads} attention heads cannot be split over tensor parallel size {tp}",
        f"Total number of attention heads ({heads}) must be divisible by tensor parallel size "
        f"({tp}).",
        expected=f"a size that divides {heads}: {divisors(heads, at_most=heads)}",
        at=_TP,
    )


def _kv_heads(case: Case) -> Refusal | None:
    model, tp = case.model, case.tp
    if model is None or tp < 2:
        return None
    for heads in _all_kv_heads(model):
        fits = tp % heads == 0 if tp >= heads else heads % tp == 0
        if not fits:
            return case.refuse(
                "parallelism",
                f"{heads} KV heads neither divide nor are divided by tensor parallel size {tp}",
                "AssertionError",
                expected=f"a divisor or a multiple of {heads}",
                at=_TP,
            )
    return None


def _all_kv_heads(model: ModelSpec) -> list[int]:
    return sorted(
        {
            cache.num_kv_heads
            for group in model.layer_groups
            for cache in group.layer.caches
            if isinstance(cache, KvCache) and cache.num_kv_heads > 0
        }
    )


def _widths(case: Case) -> Refusal | None:
    model, tp = case.model, case.tp
    if model is None or tp < 2:
        return None
    routed = {
        group.layer.experts.moe_intermediate_size
        for group in model.layer_groups
        if group.layer.experts is not None
    }
    is_whole_experts = case.settings.enable_expert_parallel.value
    for width in sorted(set(model.intermediate_sizes) | routed):
        if width in routed:
            if is_whole_experts:
                continue
            parts = tp * case.settings.data_parallel_size.value
        else:
            parts = tp
        if width % parts:
            return _not_divisible(case, width, parts, f"MLP width {width}")
    return None


def _not_divisible(case: Case, number: int, parts: int, what: str) -> Refusal:
    return case.refuse(
        "parallelism",
        f"{what} cannot be split in {parts} equal parts",
        f"{number} is not divisible by {parts}",
        expected=f"a --tensor-parallel-size that divides {number}",
        at=_TP,
    )


def _vocabulary(case: Case) -> Refusal | None:
    model, tp = case.model, case.tp
    if model is None or tp < 2:
        return None
    rows = -(-model.vocab_size // _VOCAB_PADDING) * _VOCAB_PADDING
    return _not_divisible(case, rows, tp, f"{rows} vocabulary rows") if rows % tp else None


def _state_heads(case: Case) -> Refusal | None:
    model, tp = case.model, case.tp
    if model is None or tp < 2:
        return None
    for group in model.layer_groups:
        for cache in group.layer.caches:
            for tensor in cache.tensors if isinstance(cache, StateCache) else ():
                axis = tensor.sharded_axis
                if tensor.role == "recurrent" and axis is not None and tensor.shape[axis] % tp:
                    size = tensor.shape[axis]
                    return _not_divisible(case, size, tp, f"{size} heads of the recurrent state")
    return None


def _vision(case: Case) -> Refusal | None:
    model, tp, settings = case.model, case.tp, case.settings
    if model is None or tp < 2 or settings.language_model_only.value:
        return None
    is_encoder_decoder = attention_type(model) == "encoder_decoder"
    if is_vision_replicated(settings, model):
        return None
    what = "encoder" if is_encoder_decoder else "vision"
    expected = "--mm-encoder-tp-mode data, or --language-model-only for text alone"
    if is_encoder_decoder:
        expected = "a size that divides it"
    heads = model.vision_num_heads
    sizes = [(heads, f"{what} heads")] if heads else []
    sizes += [(width, f"{what} MLP width") for width in model.vision_intermediate_sizes]
    for number, part in sizes:
        if number % tp:
            return case.refuse(
                "parallelism",
                f"{number} {part} cannot be split over tensor parallel size {tp}",
                f"{number} is not divisible by {tp}",
                expected=expected,
                at=_TP,
            )
    return None


def _stages(case: Case) -> Refusal | None:
    model, pp = case.model, case.settings.pipeline_parallel_size.value
    if model is None or pp < 2:
        return None
    if model.architecture in _WITHOUT_STAGES:
        return case.refuse(
            "parallelism",
            f"{pp} pipeline stages: {model.architecture} does not support pipeline parallelism",
            "Pipeline parallelism is not supported for this model.",
            expected="--pipeline-parallel-size 1",
            at=("pipeline_parallel_size",),
        )
    return _partition(case, model.num_layers, pp)


def _partition(case: Case, num_layers: int, pp: int) -> Refusal | None:
    text = case.env.get("VLLM_PP_LAYER_PARTITION")
    if not text:
        return None
    parts = text.split(",")
    try:
        layers = [int(part) for part in parts]
    except ValueError:
        says = f"Invalid partition string: {text}"
        return case.refuse(
            "parallelism", f"VLLM_PP_LAYER_PARTITION={text} is no list of numbers", says
        )
    if len(layers) == pp and sum(layers) == num_layers:
        return None
    says = f"len(partitions)={len(layers)} does not match pp_size={pp}."
    if len(layers) == pp:
        says = f"sum(partitions)={sum(layers)} does not match num_hidden_layers={num_layers}."
    return case.refuse(
        "parallelism",
        f"{len(layers)} stages of {sum(layers)} layers, the model has {num_layers} on {pp} stages",
        says,
        expected=f"VLLM_PP_LAYER_PARTITION with {pp} numbers that sum to {num_layers}",
        at=("pipeline_parallel_size",),
    )


def _experts(case: Case) -> Refusal | None:
    model = case.model
    if model is None or not case.settings.enable_expert_parallel.value or is_moe(model):
        return None
    return case.refuse(
        "parallelism",
        f"0 experts: {model.id} is dense, expert parallelism has nothing to split",
        "Number of experts in the model must be greater than 0 when expert parallelism is enabled.",
        expected="no --enable-expert-parallel",
        at=("enable_expert_parallel",),
    )


def _expert_balancing(case: Case) -> Refusal | None:
    at = ("enable_eplb", "eplb_config")
    config = case.value("eplb_config")
    redundant = config.get("num_redundant_experts", 0) if isinstance(config, dict) else 0
    if not case.value("enable_eplb"):
        if not isinstance(redundant, int) or redundant == 0:
            return None
        says = f"num_redundant_experts is set to {redundant} but EPLB is not enabled."
        headline = f"{redundant} redundant experts without --enable-eplb"
        return case.refuse("parallelism", headline, says, expected="--enable-eplb", at=at)
    if not case.settings.enable_expert_parallel.value:
        says = "enable_expert_parallel must be True to use EPLB."
        headline = "--enable-eplb without --enable-expert-parallel"
        expected = "--enable-expert-parallel"
        return case.refuse("parallelism", headline, says, expected=expected, at=at)
    settings = case.settings
    ranks = case.tp * settings.prefill_context_parallel_size.value
    if ranks * settings.data_parallel_size.value > 1:
        return None
    says = "EPLB requires tensor, prefill-context, or data parallelism"
    headline = "1 rank: --enable-eplb has nothing to balance over"
    return case.refuse("parallelism", headline, says, expected="more than one rank", at=at)


def _decode_context(case: Case) -> Refusal | None:
    settings, tp = case.settings, case.tp
    dcp, pcp = (
        settings.decode_context_parallel_size.value,
        settings.prefill_context_parallel_size.value,
    )
    at = ("decode_context_parallel_size", "prefill_context_parallel_size")
    if pcp == 1 and dcp > 0 and tp % dcp:
        says = f"tp_size={tp} must be divisible by dcp_size={dcp}."
        headline = f"{tp} tensor ranks cannot be split in {dcp} decode context ranks"
        expected = f"one of {divisors(tp, at_most=tp)}"
        return case.refuse("parallelism", headline, says, expected=expected, at=at)
    if pcp > 1 and at_least(case.version, "0.29") and dcp not in (1, pcp, tp * pcp):
        says = "When PCP is enabled, DCP must be disabled, span the PCP axis, or span the full"
        headline = f"{dcp} decode context ranks do not span {pcp} prefill context ranks"
        expected = f"1, {pcp} or {tp * pcp}"
        return case.refuse("parallelism", headline, says, expected=expected, at=at)
    return _decode_context_heads(case, dcp, at) if dcp > 1 else None


def _decode_context_heads(case: Case, dcp: int, at: tuple[str, ...]) -> Refusal | None:
    model, tp = case.model, case.tp
    if model is None or is_mla(model) or not model.num_kv_heads:
        return None
    heads = model.num_kv_heads
    per_kv = model.num_attention_heads // heads
    if tp <= heads:
        headline = f"{heads} KV heads need more than {tp} tensor ranks to share by context"
        says = "Decode context parallelism for GQA/MQA requires `--tensor-parallel-size`"
        expected = f"--tensor-parallel-size above {heads}, or no decode context parallelism"
    elif dcp > tp // heads:
        headline = f"{dcp} decode context ranks, at most {tp // heads} fit TP {tp} / {heads} heads"
        says = "`--decode-context-parallel-size` exceeds the maximum supported value"
        expected = f"at most {tp // heads}"
    elif per_kv % dcp:
        headline = f"{per_kv} query heads a KV head cannot be split in {dcp} decode context ranks"
        says = "The model's number of query heads per KV head"
        expected = f"one of {divisors(per_kv, at_most=per_kv)}"
    else:
        return None
    return case.refuse("parallelism", headline, says, expected=expected, at=at)


def _nodes(case: Case) -> Refusal | None:
    nodes, rank = case.value("nnodes"), case.value("node_rank")
    at = ("nnodes", "node_rank")
    if not isinstance(nodes, int) or nodes < 2:
        return None
    world = case.tp * case.settings.pipeline_parallel_size.value
    world *= case.settings.prefill_context_parallel_size.value
    backend = case.value("distributed_executor_backend")
    if backend == "ray":
        says = "nnodes > 1 can only be set when distributed executor backend is mp"
        headline = f"{nodes} nodes by --nnodes with the ray executor"
        return case.refuse("parallelism", headline, says, expected="mp, or no --nnodes", at=at)
    if isinstance(rank, int) and not 0 <= rank < nodes:
        says = f"node_rank ({rank})"
        headline = f"{rank} is no rank of {nodes} nodes"
        return case.refuse("parallelism", headline, says, expected=f"0 to {nodes - 1}", at=at)
    ranks = world * case.settings.data_parallel_size.value
    if ranks % nodes == 0:
        return None
    says = f"world_size ({world}) must be divisible by nnodes"
    headline = f"{ranks} ranks cannot be spread evenly over {nodes} nodes"
    return case.refuse("parallelism", headline, says, at=at)


def _local_ranks(case: Case) -> Refusal | None:
    local = case.value("data_parallel_size_local")
    total = case.settings.data_parallel_size.value
    if not isinstance(local, int) or local <= total:
        return None
    says = f"data_parallel_size_local ({local}) must be <= data_parallel_size ({total})"
    headline = f"{local} local data parallel ranks of {total} in all"
    expected = f"at most {total}"
    at = ("data_parallel_size_local",)
    return case.refuse("parallelism", headline, says, expected=expected, at=at)


RULES: Final[tuple[Rule, ...]] = (
    _sizes_positive,
    _attention_heads,
    _kv_heads,
    _widths,
    _vocabulary,
    _state_heads,
    _vision,
    _stages,
    _experts,
    _expert_balancing,
    _decode_context,
    _nodes,
    _local_ranks,
)
