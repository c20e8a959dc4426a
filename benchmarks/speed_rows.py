"""Rows of ``speed/speed.jsonl`` as (model, quantisation, GPU) that the engine can compute."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from pytest_llmserve.engine.costs import StepCosts, step_costs
from pytest_llmserve.engine.parallel import Rank
from pytest_llmserve.hardware.catalogue import gpu_ids, load_gpu
from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.schemes import scheme_of
from pytest_llmserve.models.spec import ModelSpec, Quantization

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmserve.hardware.spec import GpuSpec

ONLINE_FP8 = Quantization(method="fp8", scheme="fp8_tensor", bits=8)
NVFP4 = Quantization(method="modelopt_fp4", scheme="nvfp4", bits=4, group_size=16)
INT4 = Quantization(method="gptq", scheme="int4", bits=4, group_size=128)
INT8 = Quantization(method="gptq", scheme="int8", bits=8)
# What a record's word means for weights: 16 bit, a checkpoint's own scheme or a usual one.
SCHEMES: dict[str, Quantization | None] = {
    "bf16": None, "fp16": None, "f16": None,
    "fp8": ONLINE_FP8,
    "nvfp4": NVFP4, "fp4": NVFP4,
    "mxfp4": Quantization(method="mxfp4", scheme="mxfp4", bits=4, group_size=32),
    "gptq-int4": INT4, "awq": INT4, "awq-int4": INT4, "int4": INT4, "gptq": INT4,
    "gptq-int8": INT8, "w8a8": INT8,
}  # fmt: skip
# Bits of a weight in files of llama.cpp, mistral.rs and MLX: the fewest that any matrix has, and
# of the whole file where its size is not given.
FILE_BITS: dict[str, tuple[float, float]] = {
    "q4_k_m": (4.5, 4.85), "q4_k_s": (4.5, 4.6), "q4_0": (4.5, 4.6), "q4_1": (5.0, 5.1),
    "ud-q4_k_xl": (4.0, 4.9), "q4_k_xl": (4.0, 4.9), "q5_0": (5.5, 5.6), "q5_k_s": (5.5, 5.6),
    "q5_k_xl": (5.0, 5.7), "q6_k": (6.56, 6.56), "q8_0": (8.5, 8.5), "iq4_xs": (4.25, 4.4),
    "iq4_ks": (4.25, 4.4), "q3_k_m": (3.44, 3.9), "f32": (32, 32), "q4": (4.0, 4.8),
    "uqff-q4": (4.0, 4.5), "uqff-q8": (8.0, 8.5), "mlx-q4": (4.5, 4.5), "mlx-q5": (5.5, 5.5),
    "mlx-q6": (6.5, 6.5), "mlx-q8": (8.5, 8.5),
}  # fmt: skip
MOST_DRAFTED = 16  # DFlash drafts blocks of 16
# Records name repositories (fine-tunes, re-quantised copies) of equal shape.
SAME_SHAPE = (
    (r"Llama-3.1-405B", "meta-llama/Llama-3.1-405B-Instruct"),
    (r"nvidia/Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct"),
    (r"^Llama 3 8B|nvidia/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"),
    (r"^Llama 3.2 1B", "meta-llama/Llama-3.2-1B-Instruct"),
    (r"Llama-4-Maverick", "meta-llama/Llama-4-Maverick-17B-128E-Instruct"),
    (r"Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B"),
    (r"nvidia/Qwen3-30B-A3B|Qwen3-Coder-30B-A3B", "Qwen/Qwen3-30B-A3B"),
    (r"Qwen3.5-397B-A17B", "nvidia/Qwen3.5-397B-A17B-NVFP4"),
    (r"Qwen3.[56]-35B-A3B", "Qwen/Qwen3.5-35B-A3B"),
    (r"Qwen3.[56]-27B", "Qwen/Qwen3.5-27B"),
    (r"Qwen3.5-9B", "Qwen/Qwen3.5-9B"),
    (r"Qwen3.5-4B", "Qwen/Qwen3.5-4B"),
    (r"[Gg]emma-4-26B-A4B", "google/gemma-4-26B-A4B"),
    (r"[Gg]emma-4-31B", "google/gemma-4-31B-it"),
    (r"GLM-4.6", "zai-org/GLM-4.6"),
    (r"GLM-4.5-Air", "zai-org/GLM-4.5-Air"),
    (r"GLM-5.1", "zai-org/GLM-5.1-FP8"),
    (r"DeepSeek-[vV]3.2", "deepseek-ai/DeepSeek-V3.2"),
    (r"DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
    (r"Nemotron-Cascade-2-30B|Nemotron-3-Nano-Omni", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A record that can be computed: coefficients for its floor and for its expectation."""

    record: dict[str, Any]
    spec: ModelSpec
    gpu: GpuSpec
    compute: str
    floor_costs: StepCosts
    expected_costs: StepCosts

    @property
    def phase(self) -> str:
        return str(self.record["phase"])

    @property
    def engine(self) -> str:
        return str(self.record["engine"])

    @property
    def tp(self) -> int:
        return int(self.record.get("tp") or 1)

    @property
    def gpus(self) -> int:
        return int(self.record.get("gpu_count") or self.tp)

    @property
    def tokens_per_step(self) -> int:
        """Draft tokens + 1 of a speculative record; of those that do not say how many, 17."""
        if not self.is_speculative:
            return 1
        words = str(self.record.get("notes", ""))
        found = re.findall(r"n=(\d+)|(\d+) draft tokens|num_speculative_tokens=(\d+)", words)
        return 1 + max((int(n) for groups in found for n in groups if n), default=MOST_DRAFTED)

    @property
    def is_speculative(self) -> bool:
        return bool(self.record.get("spec_decode")) or "spec" in self.record["quant"]

    def tpot_s(self) -> float | None:
        """Seconds of an output token of one user, as measured."""
        measured: dict[str, float] = self.record["measured"]
        if "tpot_ms" in measured:
            return measured["tpot_ms"] / 1e3
        if "decode_tok_s_per_user" in measured:
            return 1 / measured["decode_tok_s_per_user"]
        return None


def rows(corpus: Path) -> tuple[list[Row], Counter[str], int]:
    """The rows that can be computed, why others are left out, and how many there are in all."""
    lines = (corpus / "speed" / "speed.jsonl").read_text(encoding="utf-8").splitlines()
    known, out, left = set(gpu_ids()), [], Counter[str]()
    for record in map(json.loads, lines):
        why = _unusable(record, known)
        row = None if why else _row(corpus, record)
        if isinstance(row, Row):
            out.append(row)
        else:
            left[why or str(row)] += 1
    return out, left, len(lines)


def _unusable(record: dict[str, Any], known: set[str]) -> str:
    if record.get("doubt"):
        return "marked as doubtful"
    if record["gpu"] not in known:
        return "GPU not in the catalogue"
    if record.get("scope") == "per-gpu-throughput":
        return "per-GPU share of an unknown batch"
    return ""


def _row(corpus: Path, record: dict[str, Any]) -> Row | str:
    quant = re.sub(r"-(spec|v23)$", "", record["quant"].lower())
    spec = spec_of(corpus, record["model"])
    if spec is None:
        return "model not known"
    if quant not in SCHEMES and quant not in FILE_BITS:
        return f"quantisation {record['quant']}"
    tp, ep = int(record.get("tp") or 1), int(record.get("ep") or 1)
    is_shared = ep > 1 or int(record.get("dp") or 1) > 1
    shards = max(ep, tp * int(record.get("dp") or 1), int(record.get("gpu_count") or 1))
    rank = Rank(
        tensor_parallel_size=tp,
        expert_ranks=shards if is_shared else None,
        has_expert_parallel=is_shared,
    )
    try:
        if quant in FILE_BITS:
            floor, expected = _file_costs(spec, rank, quant, record)
            spec = dataclasses.replace(spec, quantization=None)
            compute = "unknown" if FILE_BITS[quant][0] < 16 else "float16"
        else:
            spec = dataclasses.replace(spec, quantization=_scheme(spec, SCHEMES[quant]))
            floor, expected = _serving_costs(spec, rank, record)
            compute = spec.quantization.scheme if spec.quantization else spec.dtype
    except ValueError as error:
        return re.sub(r"\d+", "N", str(error)).split(":")[-1].strip()
    gpu = load_gpu(record["gpu"])
    return Row(
        record=record,
        spec=spec,
        gpu=gpu,
        compute=compute,
        floor_costs=floor,
        expected_costs=expected,
    )


def _serving_costs(
    spec: ModelSpec, rank: Rank, record: dict[str, Any]
) -> tuple[StepCosts, StepCosts]:
    """For floors a cache of 8 bits wherever the record does not say that it has 16."""
    word = str(record.get("kv_dtype")).lower()
    is_wide = word in {"bf16", "fp16", "f16", "bfloat16", "float16"}
    floor = _costs(spec, rank, "auto" if is_wide else "fp8")
    return floor, _costs(spec, rank, "fp8" if word.startswith("fp8") else "auto")


def _costs(spec: ModelSpec, rank: Rank, kv_cache_dtype: str = "auto") -> StepCosts:
    quant = spec.quantization
    scheme = None if quant is None else partial(scheme_of, quant)
    return step_costs(spec, rank, scheme, kv_cache_dtype=kv_cache_dtype)


def _scheme(spec: ModelSpec, usual: Quantization | None) -> Quantization | None:
    own = spec.quantization
    if usual is None or own is None or own.bits != usual.bits:
        return usual
    return own


def _file_costs(
    spec: ModelSpec, rank: Rank, quant: str, record: dict[str, Any]
) -> tuple[StepCosts, StepCosts]:
    fewest, usual = FILE_BITS[quant]
    plain = _costs(dataclasses.replace(spec, quantization=None), rank)
    if "weights_gib" in record:
        elements = sum(w.num_elements for w in (*spec.outside, *spec.vision))
        elements += sum(w.num_elements for layer in spec.layers() for w in layer.weights)
        usual = max(fewest, record["weights_gib"] * 2**33 / elements)
    return _scaled(plain, fewest / 16), _scaled(plain, usual / 16)


def _scaled(costs: StepCosts, factor: float) -> StepCosts:
    return dataclasses.replace(
        costs,
        weight_bytes=int(costs.weight_bytes * factor),
        embedding_bytes_per_token=int(costs.embedding_bytes_per_token * factor),
        experts=tuple(
            dataclasses.replace(e, bytes_each=int(e.bytes_each * factor)) for e in costs.experts
        ),
    )


@cache
def spec_of(corpus: Path, model: str) -> ModelSpec | None:
    """The shape: the corpus's config, else the bundled catalogue's; dtype 16 bit."""
    names = [model, *(name for pattern, name in SAME_SHAPE if re.search(pattern, model))]
    for name in names:
        spec = _from_corpus(corpus, name) or find_in_catalogue(name)
        if spec is not None:
            return dataclasses.replace(spec, dtype="bfloat16")
    return None


def _from_corpus(corpus: Path, name: str) -> ModelSpec | None:
    path = corpus / "models" / name.replace("/", "--") / "config.json"
    if not path.exists():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return read_config(config, model_id=name, source=str(path))
    except ValueError:
        return None
