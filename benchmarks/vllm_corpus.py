"""Reads a corpus folder: models, vLLM's own computations and start-up logs.

Layout (each part may be absent): ``models/<org>--<name>/config.json``,
``vllm_oracle/points.jsonl``, ``observations/vllm.jsonl``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_llmserve.manifests.launch import Word
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.errors import ModelError
from pytest_llmserve.models.lookup import find_model
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.runtimes.vllm.args import parse_args
from pytest_llmserve.runtimes.vllm.deploy import VllmInputs
from pytest_llmserve.units import GIB, Interval
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec

_HERE = Location("corpus", 1)
# What a record of an unexpected form raises here: counted by reason, never a crash.
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError)
# Copies of a config that lack keys which the released file has; D ("python-dict") restates it.
PARTIAL = ("partial", "file, trimmed at the source")


@dataclass(frozen=True)
class Corpus:
    """A folder of the layout above."""

    folder: Path

    def records(self, path: str) -> tuple[list[dict[str, Any]], int]:
        """The records of a JSON-lines file and how many lines are none; none where absent."""
        file = self.folder / path
        if not file.is_file():
            return [], 0
        found, broken = [], 0
        for line in file.read_text(encoding="utf-8").splitlines():
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if isinstance(record, dict):
                found.append(record)
            else:
                broken += 1
        return found, broken

    def model(self, ref: str) -> ModelSpec | str:
        """A model of the corpus or the catalogue, or why there is none."""
        return _find(self.folder / "models", ref)

    def built_model(self, name: str, *, with_quant_file: bool) -> ModelSpec | str:
        """The model of a folder; ``hf_quant_config.json`` counts only where it was there."""
        return _read(self.folder / "models" / name, with_quant_file)

    def is_partial(self, ref: str) -> bool:
        """Whether the copy here lacks keys of the released file: no figure for a real server."""
        path = self.folder / "models" / ref.replace("/", "--", 1) / "source.json"
        if not path.is_file():
            return False
        return json.loads(path.read_text(encoding="utf-8")).get("fidelity") in PARTIAL


@cache
def _find(folder: Path, ref: str) -> ModelSpec | str:
    try:
        return find_model(ref, models_folders=[folder])
    except ModelError as error:
        return f"{type(error).__name__}: {error}"


@cache
def _read(folder: Path, with_quant_file: bool) -> ModelSpec | str:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        beside = None
        if with_quant_file:
            beside = json.loads((folder / "hf_quant_config.json").read_text(encoding="utf-8"))
        source = str(folder)
        return read_config(config, model_id=folder.name, source=source, hf_quant_config=beside)
    except ModelError as error:
        return str(error).splitlines()[0].removeprefix(f"{folder}: ")
    except OSError:
        return "no config.json in the corpus"


def inputs_of(
    args: list[str],
    version: Version,
    model: ModelSpec,
    gpu: GpuSpec | None,
    env: dict[str, str] | None = None,
    gpu_count: int | None = None,
) -> VllmInputs:
    """A command line as the plugin reads it."""
    read = parse_args([Word(str(text), _HERE) for text in ["model", *args]], version)
    return VllmInputs(
        name="server",
        location=_HERE,
        launch=None,
        args=read,
        problems=tuple(read.problems),
        version=Setting(version, "corpus"),
        is_version_assumed=False,
        model_ref=None,
        model=model,
        gpu=gpu,
        gpu_source="corpus",
        gpu_location=None,
        gpu_count=Setting(gpu_count, "corpus") if gpu_count else None,
        env={name: str(value) for name, value in (env or {}).items()},
    )


def with_total(gpu: GpuSpec, total_gib: float | None) -> GpuSpec:
    """The GPU with the memory that this very machine printed."""
    if total_gib is None:
        return gpu
    return replace(gpu, memory_total_bytes=Interval.exact(round(total_gib * GIB)))
