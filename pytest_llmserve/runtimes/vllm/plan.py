"""What vLLM would do with a GPU's memory: the ledger of the fullest GPU and its KV pool."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pytest_llmserve.engine.kv_formats import KvDtypeError
from pytest_llmserve.engine.parallel import PartitionError, ShardingError
from pytest_llmserve.engine.quantized import SchemeError
from pytest_llmserve.runtimes.deployment import KvPool, Plan, Unknown, VramLedger
from pytest_llmserve.runtimes.vllm.block_size import effective_kv_cache_dtype, lay_out
from pytest_llmserve.runtimes.vllm.drafts import (
    DRAFT_ARCHITECTURES,
    UnknownDraftError,
    draft_of,
)
from pytest_llmserve.runtimes.vllm.hybrid_manager import UnknownLayoutError, is_hybrid_manager_off
from pytest_llmserve.runtimes.vllm.kv_groups import (
    KvLayoutError,
    group_layers,
    on_stage,
)
from pytest_llmserve.runtimes.vllm.kv_pool import rank_pool
from pytest_llmserve.runtimes.vllm.kv_specs import draft_rows, layer_rows
from pytest_llmserve.runtimes.vllm.measured import (
    activation_bytes,
    graph_bytes,
    non_torch_bytes,
    shares_of_bar,
)
from pytest_llmserve.runtimes.vllm.traits import attention_type
from pytest_llmserve.runtimes.vllm.version_rules import kv_rules
from pytest_llmserve.runtimes.vllm.weights import (
    rank_of,
    weight_bytes,
    weights_source,
)
from pytest_llmserve.units import GIB, ZERO, Interval

if TYPE_CHECKING:
    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.kv_pool import RankPool
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings


def make_plan(
    settings: VllmSettings,
    *,
    version: Version,
    model: ModelSpec | None,
    gpu: GpuSpec | None,
    draft: ModelSpec | None = None,
) -> Plan:
    """The ledger and the pool, or what is missing to tell them.

    The ledger is that of the pipeline stage that leaves the fewest blocks; all ranks then use
    that many. ``draft`` is the model that the speculative settings name, where its config is
    known.
    """
    unknown = tuple(_missing(settings, model, gpu))
    if unknown or model is None or gpu is None:
        return Plan(vram=None, kv=None, unknown=unknown)
    try:
        stages = _stages(settings, version, model, gpu, draft_of(settings, model, draft))
    except (PartitionError, ShardingError, SchemeError) as error:
        return _untold("weights", error)
    except UnknownDraftError as error:
        return _untold("draft model", error)
    except (KvDtypeError, KvLayoutError, UnknownLayoutError) as error:
        return _untold("KV cache", error)
    tightest = min(stages, key=_expected_blocks)
    return Plan(vram=tightest.vram, kv=_kv_pool(settings, tightest, stages))


def stage_pools(
    settings: VllmSettings,
    *,
    version: Version,
    model: ModelSpec,
    gpu: GpuSpec | None,
    draft: ModelSpec | None = None,
) -> tuple[RankPool, ...]:
    """For each pipeline stage how a rank of it lays out its pool, whatever the pool's size.

    ``draft`` is what :func:`drafts.draft_of` makes of the speculative settings.

    Raises:
        KvLayoutError: vLLM cannot lay this out.
        KvDtypeError: the cache format is not known.
    """
    rules = kv_rules(version)
    dtype = effective_kv_cache_dtype(settings, model, gpu)
    rows = layer_rows(model, settings, kv_cache_dtype=dtype)
    num_layers = model.num_layers
    if draft is not None:
        rows += draft_rows(draft, model, settings, kv_cache_dtype=dtype)
        num_layers += draft.num_layers
    groups = group_layers(
        lay_out(rows, settings, rules, model, gpu),
        rules,
        is_hybrid_manager_off=is_hybrid_manager_off(settings, rules, model),
    )
    pools = []
    whole = on_stage(groups, range(num_layers)) if rules.checks_whole_model else None
    for stage in range(settings.pipeline_parallel_size.value):
        layers = rank_of(settings, model, stage).layers(model)
        is_last = stage == settings.pipeline_parallel_size.value - 1
        held = range(layers.start, num_layers if is_last else layers.stop)
        pools.append(rank_pool(on_stage(groups, held), settings, rules, model, checked=whole))
    return tuple(pools)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Stage:
    vram: VramLedger
    pool: RankPool


def _expected_blocks(stage: _Stage) -> tuple[int, int]:
    expected = stage.vram.kv_available_bytes.expected
    per_block = stage.pool.layout.bytes_per_block or 1
    return expected // per_block, -stage.vram.weights_bytes.expected


def _untold(what: str, error: Exception) -> Plan:
    return Plan(vram=None, kv=None, unknown=(Unknown(what=what, why=str(error)),))


def _missing(settings: VllmSettings, model: ModelSpec | None, gpu: GpuSpec | None) -> list[Unknown]:
    out: list[Unknown] = []
    if model is None:
        out.append(Unknown(what="model", why="its config is not known"))
    elif model.architecture in DRAFT_ARCHITECTURES:
        out.append(Unknown(what="weights", why=f"{model.id} only drafts for another model"))
    elif model.unsupported:
        parts = ", ".join(model.unsupported)
        out.append(Unknown(what="weights", why=f"parts of the model are not understood: {parts}"))
    if gpu is None:
        out.append(Unknown(what="GPU", why="the files do not say which GPU it is"))
    elif gpu.memory_total_bytes is None:
        out.append(
            Unknown(what="GPU memory", why=f"the framework total of {gpu.name} is not known")
        )
    out.extend(settings.unplanned)
    if model is not None and settings.max_model_len.value is None:
        out.append(Unknown(what="max_model_len", why="neither stated nor in the config"))
    if model is not None and settings.dtype.value is None:
        out.append(Unknown(what="dtype", why="neither stated nor in the config"))
    return out


def _stages(
    settings: VllmSettings,
    version: Version,
    model: ModelSpec,
    gpu: GpuSpec,
    draft: ModelSpec | None,
) -> list[_Stage]:
    pools = stage_pools(settings, version=version, model=model, gpu=gpu, draft=draft)
    return [
        _Stage(_ledger(settings, version, model, gpu, stage, draft), pool)
        for stage, pool in enumerate(pools)
    ]


def _ledger(
    settings: VllmSettings,
    version: Version,
    model: ModelSpec,
    gpu: GpuSpec,
    stage: int,
    draft: ModelSpec | None,
) -> VramLedger:
    total = gpu.memory_total_bytes
    assert total is not None
    utilization = settings.gpu_memory_utilization
    budget = total.scaled_up(Fraction(str(utilization.value)))
    rank = rank_of(settings, model, stage)
    loaded = weight_bytes(settings, model, gpu, stage, version=version, draft=draft)
    weights = Interval.exact(loaded.total)
    activations = activation_bytes(settings, version, model, is_sampling_stage=rank.is_last_stage)
    non_torch = non_torch_bytes(settings, version)
    handed_over = Interval.exact(round(settings.mm_ipc_gib * GIB))
    graphs = graph_bytes(settings, model, len(rank.layers(model)))
    in_budget = _graphs_in_budget(settings, version)
    if in_budget:
        activations, non_torch, graphs = shares_of_bar((activations, non_torch, graphs))
    else:
        activations, non_torch = shares_of_bar((activations, non_torch))
    non_torch = non_torch + handed_over
    sources = {
        "gpu_total": gpu.source or gpu.name,
        "budget": f"{utilization.value:.2f} x framework total, {utilization.source}",
        "weights": weights_source(settings, model, loaded),
        "activations": _estimated(activations) + _no_log_of(model),
        "non_torch": _estimated(non_torch),
        "graphs": _estimated(graphs) if settings.has_cuda_graphs else "no CUDA graphs",
        "kv_available": "what is left of the budget",
    }
    available = budget - weights - activations - non_torch - (graphs if in_budget else ZERO)
    stated = settings.kv_cache_memory_bytes
    if stated.value is not None:
        available = Interval.exact(stated.value)
        sources["kv_available"] = f"--kv-cache-memory-bytes ({stated.source})"
    return VramLedger(
        gpu_total_bytes=total,
        budget_bytes=budget,
        weights_bytes=weights,
        activations_bytes=activations,
        non_torch_bytes=non_torch,
        graphs_bytes=graphs,
        graphs_in_budget=in_budget,
        kv_available_bytes=available,
        sources=sources,
    )


def _graphs_in_budget(settings: VllmSettings, version: Version) -> bool:
    """Subtracted from the budget by default since 0.20, on request since 0.18."""
    rules = kv_rules(version)
    default = "1" if rules.graphs_in_budget else "0"
    word = settings.env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", default)
    return rules.estimates_graphs and word != "0"


def _no_log_of(model: ModelSpec) -> str:
    """Said of models whose kind is not among the logs that the measured terms were fitted to."""
    if attention_type(model) != "encoder_decoder":
        return ""
    return ", fitted to other models (no log of an encoder-decoder names its GPU)"


def _estimated(value: Interval) -> str:
    spread = max(value.high - value.expected, value.expected - value.low)
    return "none" if value == ZERO else f"estimated, +/- {spread / GIB:.1f} GiB"


def _kv_pool(settings: VllmSettings, tightest: _Stage, stages: list[_Stage]) -> KvPool | None:
    pool, available = tightest.pool, tightest.vram.kv_available_bytes
    limit = settings.max_model_len.value
    if limit is None or not pool.layout.specs:
        return None
    # All ranks use the number of blocks of the fullest one.
    blocks = Interval(
        *(
            min(s.pool.num_blocks(getattr(s.vram.kv_available_bytes, end)) for s in stages)
            for end in ("low", "expected", "high")
        )
    )
    longest = max(limit, settings.derived_max_model_len or 0)
    estimated = Interval(*(pool.estimate_max_len(end, longest) for end in available))
    length = _served_length(limit, estimated) if settings.is_auto_max_model_len else limit
    printed = [pool.capacity(count, length) for count in blocks]
    need = pool.need_bytes(length)
    checked = Interval(*(pool.check_bytes(end) for end in available))
    says = ""
    if need > checked.expected or available.expected <= 0:
        is_auto = settings.is_auto_max_model_len
        says = pool.check(available.expected, limit, is_auto=is_auto).server_says
    return KvPool(
        bytes_per_token=_bytes_per_token(pool),
        block_size=min(spec.block_size for spec in pool.layout.specs),
        bytes_per_block=pool.layout.bytes_per_block,
        groups=pool.layout.groups,
        max_model_len=length,
        num_blocks=blocks,
        capacity_tokens=Interval(*(tokens for tokens, _ in printed)),
        max_concurrency=(printed[0][1], printed[1][1], printed[2][1]),
        request_bytes=pool.request_bytes(length),
        need_bytes=need,
        check_bytes=checked,
        estimated_max_len=estimated,
        server_says=says,
    )


def _served_length(limit: int, estimated: Interval) -> int:
    """What ``--max-model-len auto`` comes to at least, or as far as the pool leaves any."""
    return next((min(limit, length) for length in estimated if length), limit)


def _bytes_per_token(pool: RankPool) -> int:
    """Bytes that a token adds in layers that keep every token."""
    return sum(
        count * spec.page_bytes // spec.block_size
        for spec, count in pool.layout.layers
        if spec.is_attention and spec.encoder_tokens is None
    )
