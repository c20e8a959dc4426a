"""From a start-up report to a server that can be planned: its model, version, GPU and flags.

What is known for sure and what is not is decided here, once, for every comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from model_names import SAME_SHAPE, SAME_WEIGHTS, variant_of
from packaging.version import InvalidVersion, Version
from vllm_corpus import UNREADABLE, Corpus, inputs_of, with_total

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.hardware.errors import AmbiguousGpu, UnknownGpu
from pytest_llmserve.hardware.names import resolve_gpu
from pytest_llmserve.hardware.spec import GpuSpec
from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.policy import Facts
from pytest_llmserve.runtimes.vllm.settings import VllmSettings
from pytest_llmserve.subject import Subject
from pytest_llmserve.units import GIB, Interval

if TYPE_CHECKING:
    from collections import Counter

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Plan
    from pytest_llmserve.runtimes.vllm.deploy import VllmInputs

# Not vLLM as released, or a machine that is not told.
LEFT_OUT = {
    "granite-switch-128": "adapters composed into the weights",
    "trtllm-": "another runtime",
    "glm53-exl3-94": "a plug-in quantisation",
    "qwen3.8-27b-exl3": "a plug-in quantisation",
    "ascend-": "a plug-in platform",
    "sglang-8008": "another runtime",
    "lmdeploy-990": "another runtime",
    "deepseek-multinode": "several nodes, flags not told",
    "cap-": "only the capacity of a card",
}
# Notes that say: these flags are not (all of) those of the server, or it was not alone.
NOT_AS_SHOWN = re.compile(
    r"\b(?:args|flags)\b[^.;]*\b(?:inferred|not shown|not in)"
    r"|\bTP ?\d*\b[^.;]*\b(?:inferred|assumed|read)\b"
    r"|other load on the GPU|of another process",
    re.IGNORECASE,
)
# Names that reports use for parts of the catalogue.
GPU_NAMES = {
    "NVIDIA H20 141GB": "h20-3e-141gb",
    "NVIDIA RTX PRO 6000 Blackwell": "rtx-pro-6000-server",
}
# Reports whose version follows from what stands beside them.
ASSUMED_VERSION = {"llm-d-planner-": "0.11.0"}
# The newest release at a date: for reports that state no version.
RELEASED = (
    ("2025-04", "0.8.4"),
    ("2025-05", "0.8.5"),
    ("2025-06", "0.9.0"),
    ("2025-07", "0.9.2"),
    ("2025-08", "0.10.1"),
    ("2025-09-15", "0.10.2"),
    ("2025-10", "0.11.0"),
    ("2025-12", "0.12.0"),
    ("2026-01", "0.13.0"),
    ("2026-02", "0.15.1"),
    ("2026-03", "0.17.1"),
    ("2026-04", "0.19.0"),
    ("2026-05", "0.20.2"),
    ("2026-06", "0.22.1"),
    ("2026-06-15", "0.23.0"),
    ("2026-07", "0.24.0"),
    ("2026-07-20", "0.25.1"),
    ("2026-08-10", "0.27.1"),
    ("2026-09", "0.28.0"),
    ("2026-09-20", "0.29.0"),
)


@dataclass(frozen=True)
class Case:
    """One report that can be planned; ``doubts`` say what is not known for sure."""

    record: dict[str, Any]
    inputs: VllmInputs
    has_own_weights: bool
    """Whether the model's stored format is known, not only its shape."""
    doubts: tuple[str, ...]

    @property
    def where(self) -> str:
        version = f"{self.version}{' by date' if 'version' in self.doubts else ''}"
        return f"{self.record['id']} ({version}, {self.record['model']})"

    @property
    def observed(self) -> dict[str, Any]:
        found: dict[str, Any] = self.record["observed"]
        return found

    @property
    def version(self) -> Version:
        return self.inputs.version.value

    @property
    def model(self) -> ModelSpec:
        assert self.inputs.model is not None
        return self.inputs.model

    @property
    def gpu(self) -> GpuSpec | None:
        return self.inputs.gpu

    @cached_property
    def subject(self) -> Subject:
        return Subject(self.inputs, Facts())

    @cached_property
    def settings(self) -> VllmSettings:
        settings = self.subject.deployment.settings
        assert isinstance(settings, VllmSettings)
        return settings

    @cached_property
    def plan(self) -> Plan:
        return self.subject.plan


def cases(corpus: Corpus, skipped: Counter[str]) -> list[Case]:
    """The reports that can be planned; ``skipped`` counts the others by reason."""
    records, broken = corpus.records("observations/vllm.jsonl")
    if broken:
        skipped["not a JSON object"] += broken
    found = []
    for record in records:
        try:
            case = _case(corpus, record)
        except UNREADABLE as error:
            case = f"the record cannot be read: {type(error).__name__}: {error}"
        if isinstance(case, str):
            skipped[case] += 1
        else:
            found.append(case)
    return found


def _case(corpus: Corpus, record: dict[str, Any]) -> Case | str:
    for prefix, why in LEFT_OUT.items():
        if record["id"].startswith(prefix):
            return f"left out: {why}"
    name = record.get("model")
    if not name:
        return "model not named"
    version, is_stated = version_of(record)
    if version is None:
        return "neither version nor date"
    model, has_own_weights, doubts = _model(corpus, name)
    if isinstance(model, str):
        return f"model not known: {name}"
    inferred = {str(word).removeprefix("observed.") for word in record.get("inferred") or ()}
    doubts += [part for part in ("args", "gpu", "model") if part in inferred]
    if NOT_AS_SHOWN.search(record.get("notes") or ""):
        doubts.append("args")
    doubts += [] if is_stated else ["version"]
    observed = record["observed"]
    gpu, total = gpu_of(record.get("gpu")), observed.get("gpu_total_gib")
    if gpu is not None:
        gpu = with_total(gpu, total)
    elif total:
        gpu = _card_of(record.get("gpu") or "reported", total)
        doubts = [doubt for doubt in doubts if doubt != "gpu"]
    else:
        doubts.append("gpu")
    args = [str(arg) for arg in record.get("args") or []]
    env, count = record.get("env") or {}, record.get("gpu_count")
    inputs = inputs_of(args, version, model, gpu, env, count)
    length = observed.get("max_concurrency_at_len")
    if length and inputs.settings().max_model_len.value != length:
        # The log names the length in effect: a flag that the report does not show.
        inputs = inputs_of([*args, "--max-model-len", str(length)], version, model, gpu, env, count)
    draft = inputs.settings().draft_model
    if draft is not None and not isinstance(found := corpus.model(draft), str):
        inputs = replace(inputs, draft=found)
    return Case(record, inputs, has_own_weights, tuple(doubts))


def _model(corpus: Corpus, name: str) -> tuple[ModelSpec | str, bool, list[str]]:
    """The model, whether its stored format is known too, and what is doubtful about it."""
    ref = SAME_SHAPE.get(name) or SAME_WEIGHTS.get(name) or name
    found, doubts = _shape(corpus, ref)
    if isinstance(found, str) and (variant := variant_of(ref)) is not None:
        base, doubts = _shape(corpus, variant[0])
        if not isinstance(base, str) and base.quantization is None:
            found = replace(base, id=name, quantization=variant[1])
    if name in SAME_SHAPE and not isinstance(found, str):
        # The report's own format is not known, and the base's is not the report's.
        found = replace(found, quantization=None)
    return found, name not in SAME_SHAPE, doubts


def _shape(corpus: Corpus, ref: str) -> tuple[ModelSpec | str, list[str]]:
    """What the plugin itself knows of the model, else the corpus's copy of its config."""
    bundled = find_in_catalogue(ref)
    if bundled is not None:
        return bundled, []
    return corpus.model(ref), ["partial config"] if corpus.is_partial(ref) else []


def _card_of(name: str, total_gib: float) -> GpuSpec:
    """A card of which a report says only how much memory the framework sees."""
    total = Interval.exact(round(total_gib * GIB))
    return GpuSpec(
        id=name,
        name=name,
        vendor="nvidia",
        architecture="",
        compute_capability=None,
        memory_total_bytes=total,
        memory_marketed_bytes=total.expected,
        hbm_bytes_per_s=None,
        hbm_safe_bytes_per_s=None,
        dense_flops_per_s={},
    )


def gpu_of(name: str | None) -> GpuSpec | None:
    """The GPU that a report names, else none."""
    if not name:
        return None
    name = re.sub(r"\s*\(.*\)$", "", name)
    try:
        return resolve_gpu(GPU_NAMES.get(name, name))
    except AmbiguousGpu as error:
        # Reports say "H100 80GB"; its variants report the same total within 0.1 GiB.
        candidates = [load_gpu(candidate) for candidate in error.candidates]
        sizes = {gpu.memory_marketed_bytes for gpu in candidates}
        return candidates[0] if len(sizes) == 1 else None
    except UnknownGpu:
        return None


def version_of(record: dict[str, Any]) -> tuple[Version | None, bool]:
    """The version that a report states, else the newest of its date; whether it is stated."""
    match = re.match(r"v?(\d+\.\d[\w.+]*)", record.get("engine_version") or "")
    if match:
        try:
            return Version(match[1]), True
        except InvalidVersion:
            pass
    for prefix, version in ASSUMED_VERSION.items():
        if record["id"].startswith(prefix):
            return Version(version), True
    date = record.get("date") or ""
    known = [version for first, version in RELEASED if first <= date]
    return (Version(known[-1]), False) if known else (None, False)
