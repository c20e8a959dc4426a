"""More ranks than GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case, Rule


def _enough(case: Case) -> Refusal | None:
    """Every rank needs a GPU of its own; nodes and data parallel groups may lie elsewhere."""
    given, why = _available(case)
    if given is None:
        return None
    needed, formula = _needed(case)
    if needed <= given:
        return None
    is_ray = "ray" in (
        case.value("distributed_executor_backend"),
        case.value("data_parallel_backend"),
    )
    return case.refuse(
        "gpus",
        f"{needed} GPUs needed ({formula}), {given} given{why}",
        f"World size ({needed}) is larger than the number of available GPUs ({given})",
        expected=f"{needed} GPUs, or parallel sizes whose product is at most {given}",
        at=(
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "data_parallel_size",
            "prefill_context_parallel_size",
        ),
        is_certain=not is_ray,  # ray may find the missing ones on other nodes of its cluster
    )


def _available(case: Case) -> tuple[int | None, str]:
    """GPUs that the process sees: its share of the machine, narrowed by the environment."""
    given, why = case.gpu_count, ""
    if given is None:
        return None, why
    visible = case.env.get("CUDA_VISIBLE_DEVICES")
    if visible and visible.strip() not in ("all", "void", "none"):
        count = len([device for device in visible.split(",") if device.strip()])
        if count < given:
            given, why = count, " by CUDA_VISIBLE_DEVICES"
    devices = case.value("device_ids")
    if isinstance(devices, str):
        count = len([device for device in devices.split(",") if device.strip()])
        if count < given:
            given, why = count, " by --device-ids"
    return given, why


def _needed(case: Case) -> tuple[int, str]:
    settings = case.settings
    sizes = {
        "TP": case.tp,
        "PP": settings.pipeline_parallel_size.value,
        "PCP": settings.prefill_context_parallel_size.value,
        "DP": _local_data_parallel(case),
    }
    needed = 1
    for size in sizes.values():
        needed *= max(1, size)
    nodes = case.value("nnodes")
    formula = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    if isinstance(nodes, int) and nodes > 1:
        needed, formula = -(-needed // nodes), f"{formula} on {nodes} nodes"
    return needed, formula or "TP 1"


def _local_data_parallel(case: Case) -> int:
    """Data parallel ranks that this process starts itself."""
    local = case.value("data_parallel_size_local")
    if isinstance(local, int):
        return local
    if case.value("data_parallel_rank") is not None or case.value("data_parallel_external_lb"):
        return 1
    return case.settings.data_parallel_size.value


RULES: Final[tuple[Rule, ...]] = (_enough,)
