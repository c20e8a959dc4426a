"""Reads a corpus folder: models, vLLM's own computations and start-up logs.

Layout (each part may be absent): ``models/<org>--<name>/config.json``,
``vllm_oracle/points.jsonl``, ``observations/vllm.jsonl``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.hardware.errors import AmbiguousGpu, UnknownGpu
from pytest_llmserve.hardware.names import resolve_gpu
from pytest_llmserve.hardware.spec import GpuSpec
from pytest_llmserve.manifests.launch import Word
from pytest_llmserve.models.errors import ModelError
from pytest_llmserve.models.lookup import find_model
from pytest_llmserve.runtimes.vllm.args import parse_args
from pytest_llmserve.runtimes.vllm.resolve import resolve_settings
from pytest_llmserve.units import GIB, Interval
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

ORACLE_GPUS = {
    "H100": "h100-sxm-80gb",
    "H200": "h200-sxm-141gb",
    "A100": "a100-sxm-80gb",
    "B200": "b200-sxm-180gb",
    "L4": "l4",
    "A10G": "a10g",
    "T4": "t4",
    "V100": "v100-sxm2-16gb",
}
# Repositories without a config here whose shape is that of one that may be here. Their weights
# (another quantisation) are not compared.
SAME_SHAPE = {
    "MiniMaxAI/MiniMax-M2": "MiniMaxAI/MiniMax-M2.5",
    "MiniMaxAI/MiniMax-M2.7": "MiniMaxAI/MiniMax-M2.5",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": "Qwen/Qwen2.5-7B-Instruct",
    "RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic": "Qwen/Qwen2.5-7B-Instruct",
    "RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8": "Qwen/Qwen2.5-7B-Instruct",
    "Qwen3-8B FP8-dynamic (RedHatAI)": "Qwen/Qwen3-8B",
    "Qwen3-8B NVFP4 (RedHatAI)": "Qwen/Qwen3-8B",
    "Qwen3-14B NVFP4 (RedHatAI)": "Qwen/Qwen3-14B",
    "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": "meta-llama/Llama-3.3-70B-Instruct",
    "RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8": "meta-llama/Llama-3.3-70B-Instruct",
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16": "meta-llama/Llama-3.1-8B-Instruct",
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": "meta-llama/Llama-3.1-8B-Instruct",
    "RedHatAI/Mistral-Small-3.1-24B-Instruct-2503-quantized.w8a8": (
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503"
    ),
    "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4": "meta-llama/Llama-3.1-70B-Instruct",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8": "Qwen/Qwen3-30B-A3B-FP8",
    "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8": "Qwen/Qwen3-30B-A3B-FP8",
}
# The same weights too.
SAME_WEIGHTS = {
    "deepseek-ai/DeepSeek-V2-Lite-Chat": "deepseek-ai/DeepSeek-V2-Lite",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": (
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503"
    ),
    "moonshotai/Kimi-Dev-72B": "Qwen/Qwen2.5-72B-Instruct",
    "Qwen/Qwen3-Next-80B-A3B": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "Qwen/Qwen2.5-32B-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "Qwen/Qwen3-235B-A22B",
}
# Reports whose version follows from what stands beside them.
ASSUMED_VERSION = {"llm-d-planner-": "0.11.0"}
# First date at which a report without a version can be of that version.
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
class Corpus:
    """A folder of the layout above."""

    folder: Path

    def records(self, path: str) -> list[dict[str, Any]]:
        """The records of a JSON-lines file; none where it is absent."""
        file = self.folder / path
        if not file.is_file():
            return []
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]

    def model(self, ref: str) -> ModelSpec | str:
        """A model of the corpus or the catalogue, or why there is none."""
        return _find(self.folder / "models", ref)


@cache
def _find(folder: Path, ref: str) -> ModelSpec | str:
    try:
        return find_model(ref, models_folders=[folder])
    except ModelError as error:
        return f"{type(error).__name__}: {error}"


def gpu_of(name: str | None, total_gib: float | None = None) -> GpuSpec | None:
    """The GPU that a report names, else one of the printed size, else none."""
    if name:
        try:
            return resolve_gpu(re.sub(r"\s*\(.*\)$", "", name))
        except AmbiguousGpu as error:
            # Reports say "H100 80GB"; its variants report the same total within 0.1 GiB.
            totals = [load_gpu(candidate) for candidate in error.candidates]
            sizes = [gpu.memory_marketed_bytes for gpu in totals]
            if len(set(sizes)) == 1:
                return totals[0]
        except UnknownGpu:
            pass
    if total_gib is None:
        return None
    return GpuSpec(
        id="reported",
        name=name or "reported",
        vendor="nvidia",
        architecture="",
        compute_capability=None,
        memory_total_bytes=Interval.exact(round(total_gib * GIB)),
        memory_marketed_bytes=round(total_gib * GIB),
        hbm_bytes_per_s=None,
        hbm_safe_bytes_per_s=None,
        dense_flops_per_s={},
    )


def version_of(record: dict[str, Any]) -> Version | None:
    """The version that a report states, else the newest of its date."""
    match = re.match(r"v?\d[\w.+]*", record.get("engine_version") or "")
    if match:
        try:
            return Version(match[0])
        except InvalidVersion:
            return None
    for prefix, version in ASSUMED_VERSION.items():
        if record["id"].startswith(prefix):
            return Version(version)
    date = record.get("date") or ""
    known = [version for first, version in RELEASED if first <= date]
    return Version(known[-1]) if known else None


def settings_of(
    args: list[str],
    version: Version,
    model: ModelSpec,
    gpu: GpuSpec | None,
    env: dict[str, str] | None = None,
) -> VllmSettings:
    """What a version makes of a command line."""
    words = [Word(str(text), Location("corpus", 1)) for text in ["model", *args]]
    return resolve_settings(
        parse_args(words, version), version=version, model=model, gpu=gpu, env=env or {}
    )


def with_total(gpu: GpuSpec, total_gib: float | None) -> GpuSpec:
    """The GPU with the memory that this very machine printed."""
    if total_gib is None:
        return gpu
    return replace(gpu, memory_total_bytes=Interval.exact(round(total_gib * GIB)))
