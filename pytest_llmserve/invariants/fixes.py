"""Changes worth trying, each applied and re-checked before it is offered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_llmserve.hardware.catalogue import gpu_ids, load_gpu
from pytest_llmserve.units import format_gib
from pytest_llmserve.verdict import Fix, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.runtimes.deployment import Setting
    from pytest_llmserve.subject import Subject
    from pytest_llmserve.verdict import Verdict

MAX_FIXES = 4
HIGHEST_UTILIZATION = 0.95
"""Above this, boot-to-boot swings of 0.5-1.2 GiB (docs/accuracy.md) eat the headroom outside."""
MAX_TENSOR_PARALLEL_SIZE = 8
"""GPUs of one node; tensor parallelism across nodes is no small change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A change to try: what to write, the flags it sets, and how many GPUs it takes."""

    change: str
    flags: Mapping[str, object] = field(default_factory=dict)
    gpu_count: int | None = None
    gpu: GpuSpec | None = None
    note: str = ""
    setting: Setting[object] | None = None
    """What it replaces, for the line to edit."""


def recheck(
    subject: Subject,
    candidates: Iterator[Candidate],
    check: Callable[[Subject], Verdict],
    note: Callable[[Subject], str] = lambda subject: "",
) -> tuple[Fix, ...]:
    """The candidates that pass ``check`` and that the runtime starts: the first one a flag."""
    fixes: list[Fix] = []
    offered: set[str] = set()
    for candidate in candidates:
        touched = {"gpu"} if candidate.gpu else set(candidate.flags)
        if offered & touched:
            continue
        changed = subject.changed(candidate.flags, candidate.gpu_count, candidate.gpu)
        if changed.deployment.refusals or check(changed).outcome is not Outcome.PASSED:
            continue
        location = candidate.setting.location if candidate.setting else None
        words = [w for w in (candidate.note, note(changed)) if w]
        fixes.append(Fix(candidate.change, ", ".join(words), location))
        offered |= touched
        if len(fixes) == MAX_FIXES:
            break
    return tuple(fixes)


def more_memory(subject: Subject) -> Iterator[Candidate]:
    """Changes that leave more memory for KV cache, the least intrusive first."""
    yield from _higher_utilization(subject)
    yield from _fewer_sequences(subject)
    yield from _smaller_cache(subject)
    yield from _smaller_weights(subject)
    yield from _more_gpus(subject)
    yield from _another_gpu(subject)


def shorter_context(subject: Subject) -> Iterator[Candidate]:
    """The longest context that fits even at the unfavourable end of the error bar."""
    kv = subject.plan.kv
    setting = subject.deployment.settings.max_model_len
    if kv is None or setting.value is None:
        return
    longest = kv.estimated_max_len.low
    if 0 < longest < setting.value:
        yield Candidate(
            change=f"--max-model-len {longest}",
            flags={"max_model_len": longest},
            note=f"now {setting.value}",
            setting=setting,
        )


def _higher_utilization(subject: Subject) -> Iterator[Candidate]:
    setting = getattr(subject.deployment.settings, "gpu_memory_utilization", None)
    if setting is not None and setting.value < HIGHEST_UTILIZATION:
        yield Candidate(
            change=f"--gpu-memory-utilization {HIGHEST_UTILIZATION}",
            flags={"gpu_memory_utilization": HIGHEST_UTILIZATION},
            note=f"now {setting.value}",
            setting=setting,
        )


def _fewer_sequences(subject: Subject) -> Iterator[Candidate]:
    setting = subject.deployment.settings.max_num_seqs
    for value in (256, 64):
        if setting.value > value:
            yield Candidate(
                change=f"--max-num-seqs {value}",
                flags={"max_num_seqs": value},
                note=f"now {setting.value}",
                setting=setting,
            )


def _smaller_cache(subject: Subject) -> Iterator[Candidate]:
    setting = subject.deployment.settings.kv_cache_dtype
    if setting.value == "auto":
        yield Candidate(
            change="--kv-cache-dtype fp8",
            flags={"kv_cache_dtype": "fp8"},
            note="check quality",
            setting=setting,
        )


def _smaller_weights(subject: Subject) -> Iterator[Candidate]:
    gpu, settings = subject.deployment.gpu, subject.deployment.settings
    if settings.quantization.value is None and gpu is not None and (gpu.capability or 0) >= 89:
        yield Candidate(
            change="--quantization fp8",
            flags={"quantization": "fp8"},
            note="check quality",
            setting=settings.quantization,
        )


def _more_gpus(subject: Subject) -> Iterator[Candidate]:
    settings = subject.deployment.settings
    size = settings.tensor_parallel_size.value
    others = settings.world_size // size
    while (size := size * 2) <= MAX_TENSOR_PARALLEL_SIZE:
        yield Candidate(
            change=f"--tensor-parallel-size {size}",
            flags={"tensor_parallel_size": size},
            gpu_count=size * others,
            note=f"on {size * others} GPUs",
            setting=settings.tensor_parallel_size,
        )


def _another_gpu(subject: Subject) -> Iterator[Candidate]:
    """Parts of the same vendor with more memory, the one with the lowest list price first."""
    now = subject.deployment.gpu
    if now is None or now.memory_total_bytes is None:
        return
    parts = (load_gpu(part) for part in gpu_ids())
    larger = [
        (part.price.low_usd_per_hour, part)
        for part in parts
        if part.price is not None
        and part.vendor == now.vendor
        and part.memory_total_bytes is not None
        and part.memory_total_bytes.low > now.memory_total_bytes.high
    ]
    for usd, part in sorted(larger, key=lambda pair: (pair[0], pair[1].id)):
        yield Candidate(
            change=f"a larger GPU: {part.id}", gpu=part, note=f"from ${usd:.2f} an hour"
        )


def kv_note(changed: Subject) -> str:
    """What the change leaves and what is needed, in GiB."""
    plan = changed.plan
    if plan.vram is None or plan.kv is None:
        return ""
    left = format_gib(plan.vram.kv_available_bytes.expected)
    return f"{left} left, {format_gib(plan.kv.need_bytes)} needed"
