"""Ranges, LoRA, connectors, and model classes that a version does not have."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.hybrid_manager import UnknownLayoutError, is_hybrid_manager_off
from pytest_llmserve.runtimes.vllm.traits import attention_type
from pytest_llmserve.runtimes.vllm.version_rules import kv_rules
from pytest_llmserve.runtimes.vllm.versions import at_least, release, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case, Rule

_RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)


def _architecture(case: Case) -> Refusal | None:
    model = case.model
    span = _architectures().get(model.architecture) if model is not None else None
    if model is None or span is None:
        return None
    since, until = span
    name = model.architecture
    if until is not None and case.version.release >= until:
        last = ".".join(map(str, until))
        return case.refuse(
            "other",
            f"vllm {short(case.version)} no longer has {name}: gone in {last}",
            f"Model architecture {name} was supported in vLLM until",
            expected=f"vllm older than {last}",
        )
    if case.version.release >= since:
        return None
    first = ".".join(map(str, since))
    return case.refuse(
        "other",
        f"vllm {short(case.version)} does not have {name} yet: new in {first}",
        f"Model architectures ['{name}'] are not supported for now.",
        expected=f"vllm {first} or newer",
        is_certain=False,  # the image's transformers may know the class
    )


@lru_cache(maxsize=1)
def _architectures() -> Mapping[str, tuple[tuple[int, ...], tuple[int, ...] | None]]:
    path = Path(__file__).parent.parent / "architectures.tsv"
    spans = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, since, until = line.split("\t")
            spans[name] = (
                () if since == "-" else release(since),
                None if until == "-" else release(until),
            )
    return spans


def _utilization(case: Case) -> Refusal | None:
    setting = case.settings.gpu_memory_utilization
    if 0 < setting.value <= 1:
        return None
    says = "Input should be less than or equal to 1"
    if not setting.value > 1:
        says = "Input should be greater than 0"
    return case.refuse(
        "other",
        f"{setting.value} is no share of the GPU's memory",
        says,
        expected="above 0 and at most 1",
        at=("gpu_memory_utilization",),
    )


def _block_size(case: Case) -> Refusal | None:
    block = case.value("block_size")
    if not isinstance(block, int) or not at_least(case.version, "0.18"):
        return None
    if block > 0 and block % 16 == 0:
        return None
    return case.refuse(
        "other",
        f"{block} is no block size: the attention backends take multiples of 16",
        "No valid attention backend found",
        expected="16, or no --block-size",
        at=("block_size",),
    )


def _mamba_block(case: Case) -> Refusal | None:
    block = case.value("mamba_block_size")
    if block is None or case.settings.enable_prefix_caching.value:
        return None
    return case.refuse(
        "other",
        f"{block} as --mamba-block-size without prefix caching",
        "--mamba-block-size can only be set with --enable-prefix-caching",
        expected="--enable-prefix-caching, or no --mamba-block-size",
        at=("mamba_block_size",),
    )


def _lora(case: Case) -> Refusal | None:
    settings = case.settings
    if not settings.enable_lora.value:
        return None
    rank, count = settings.max_lora_rank.value, settings.max_loras.value
    on_cpu = case.value("max_cpu_loras")
    if not at_least(case.version, "0.11.1") and rank not in _RANKS:
        says = f"max_lora_rank ({rank}) must be one of {_RANKS}."
        headline = f"{rank} is no LoRA rank of vllm {short(case.version)}"
        expected = f"one of {', '.join(map(str, _RANKS))}"
        return case.refuse("other", headline, says, expected=expected, at=("max_lora_rank",))
    if count < 1:
        says = f"max_loras ({count}) must be >= 1."
        headline = f"{count} LoRA adapters at once"
        return case.refuse("other", headline, says, expected="1 or more", at=("max_loras",))
    if isinstance(on_cpu, int) and on_cpu < count:
        says = f"max_cpu_loras ({on_cpu}) must be >= max_loras ({count})."
        headline = f"{on_cpu} adapters in host memory are fewer than {count} on the GPU"
        expected = f"--max-cpu-loras {count} or more"
        return case.refuse("other", headline, says, expected=expected, at=("max_cpu_loras",))
    return None


def _connector(case: Case) -> Refusal | None:
    config = case.value("kv_transfer_config")
    if not isinstance(config, dict) or not config.get("kv_connector") or config.get("kv_role"):
        return None
    return case.refuse(
        "other",
        f"{config['kv_connector']} has no kv_role",
        "Please specify kv_role when kv_connector is set",
        expected='"kv_role": "kv_producer", "kv_consumer" or "kv_both"',
        at=("kv_transfer_config",),
    )


def _hybrid_manager(case: Case) -> Refusal | None:
    """States beside attention cannot be made one type of cache."""
    if case.model is None or attention_type(case.model) != "hybrid":
        return None
    try:
        is_off = is_hybrid_manager_off(case.settings, kv_rules(case.version), case.model)
    except UnknownLayoutError:
        return None
    if not is_off:
        return None
    why = "turned off" if case.value("disable_hybrid_kv_cache_manager") else "off beside"
    connectors = ", ".join(case.settings.kv_connectors)
    headline = f"{why} {connectors}".strip() if why == "off beside" else why
    return case.refuse(
        "other",
        f"the hybrid KV cache manager is {headline}: recurrent states need it",
        "Failed to promote local KV cache specs to one unified type."
        if at_least(case.version, "0.23")
        else "Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one "
        "unified type.",
        expected="--no-disable-hybrid-kv-cache-manager, or a connector that supports it",
        at=("disable_hybrid_kv_cache_manager", "kv_transfer_config"),
    )


RULES: Final[tuple[Rule, ...]] = (
    _architecture,
    _utilization,
    _block_size,
    _mamba_block,
    _lora,
    _connector,
    _hybrid_manager,
)
