"""Part a: our weights, groups, blocks and checks against what vLLM computed on a stand-in GPU."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.version import Version
from vllm_corpus import ORACLE_GPUS, Corpus, gpu_of, settings_of

from pytest_llmserve.models.spec import LatentCache, ModelSpec
from pytest_llmserve.runtimes.vllm.plan import stage_pools
from pytest_llmserve.runtimes.vllm.weights import weight_bytes
from pytest_llmserve.units import GIB

if TYPE_CHECKING:
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.runtimes.vllm.kv_pool import RankPool
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

KINDS = {
    "FullAttentionSpec": "full",
    "SlidingWindowSpec": "sliding",
    "ChunkedLocalAttentionSpec": "chunked",
    "MLAAttentionSpec": "mla",
    "MambaSpec": "mamba",
    "UniformTypeKVCacheSpecs": "mixed",
}
WORDS = re.compile(
    r"max seq len \((\d+)\), \(([\d.]+) GiB KV cache is needed, which is larger than the "
    r"available KV cache memory \((-?[\d.]+) GiB\)(?:.*estimated maximum model length is (\d+))?"
)


@dataclass
class Score:
    """How often one figure is equal, and the points where it is not."""

    equal: int = 0
    near: int = 0
    different: list[str] = field(default_factory=list)

    def add(self, *, is_equal: bool, where: str, is_near: bool = False) -> None:
        if is_equal:
            self.equal += 1
        elif is_near:
            self.near += 1
        else:
            self.different.append(where)

    @property
    def total(self) -> int:
        return self.equal + self.near + len(self.different)

    def as_json(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "equal": self.equal,
            "within_0.1_percent": self.near,
            "different": self.different,
        }


@dataclass
class OracleReport:
    """Scores by version and figure, and why points could not be told."""

    scores: dict[str, dict[str, Score]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Score))
    )
    left_out: Counter[str] = field(default_factory=Counter)
    not_understood: Counter[str] = field(default_factory=Counter)
    points: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "points": self.points,
            "left_out": dict(self.left_out),
            "not_understood": dict(self.not_understood),
            "by_version": {
                version: {name: score.as_json() for name, score in by_figure.items()}
                for version, by_figure in self.scores.items()
            },
        }


def known_limit(point: dict[str, Any], model: ModelSpec) -> str | None:
    """Why a point's pool figures are the stand-in's own and no server's, if they are."""
    if point.get("why"):
        return None if point["gpu"] != "B200" else _b200_limit(model)
    if re.search(r"gemma-3n|gemma-4-E", point["config"]):
        return "layers that share KV were counted with a cache of their own"
    if "int8_per_token_head" in point["args"]:
        return "backend packing was not applied"
    return _b200_limit(model) if point["gpu"] == "B200" else None


def _b200_limit(model: ModelSpec) -> str | None:
    caches = {type(cache) for group in model.layer_groups for cache in group.layer.caches}
    if LatentCache in caches:
        return "without FlashInfer a B200 takes CUTLASS_MLA's block of 128"
    return None


def compare_oracle(corpus: Corpus) -> OracleReport:
    """Every point that vLLM accepted and whose model is understood."""
    report = OracleReport()
    for point in corpus.records("vllm_oracle/points.jsonl"):
        if point.get("error"):
            continue
        report.points += 1
        model = corpus.model(point["config"].replace("--", "/", 1))
        if isinstance(model, str):
            report.not_understood[f"{point['config']}: {model.splitlines()[0][:90]}"] += 1
            continue
        if model.unsupported:
            report.not_understood[f"{point['config']}: {', '.join(model.unsupported)}"] += 1
            continue
        gpu = gpu_of(ORACLE_GPUS[point["gpu"]])
        version = Version(point["vllm"])
        settings = settings_of(point["args"], version, model, gpu)
        _compare_point(report, point, model, gpu, settings)
    return report


def _compare_point(
    report: OracleReport,
    point: dict[str, Any],
    model: ModelSpec,
    gpu: GpuSpec | None,
    settings: VllmSettings,
) -> None:
    scores = report.scores[point["vllm"]]
    where = f"{point['config']} {point['gpu']} {' '.join(point['args'])}".strip()
    for name in ("max_model_len", "max_num_batched_tokens", "max_num_seqs"):
        ours = getattr(settings, name).value
        scores[name].add(is_equal=ours == point[name], where=f"{where}: {ours}, vLLM {point[name]}")
    try:
        unpadded = model.quantization is not None and model.quantization.scheme == "mxfp4"
        if unpadded and point["vllm"] == "0.19.1":
            # A server of 0.19.0 printed 13.64 GiB for gpt-oss-20b: padded, like the others.
            report.left_out["0.19.1 pads MXFP4 experts after they are built"] += 1
        elif "param_bytes_per_rank" in point:
            ours = weight_bytes(settings, model, gpu, version=Version(point["vllm"])).built
            _compare_weights(scores["weights"], point, ours, where)
        pools = stage_pools(settings, version=Version(point["vllm"]), model=model, gpu=gpu)
    except ValueError as error:
        scores["plan"].add(is_equal=False, where=f"{where}: {error}")
        return
    limit = known_limit(point, model)
    if limit and point.get("kv"):
        report.left_out[limit] += 1
        return
    for row in point.get("kv") or []:
        _compare_pool(scores, row, pools[0], settings, where)


def _compare_weights(score: Score, point: dict[str, Any], ours: int, where: str) -> None:
    theirs = point["param_bytes_per_rank"]
    error = (ours - theirs) / theirs if theirs else 0.0
    score.add(
        is_equal=ours == theirs,
        is_near=abs(error) <= 0.001,
        where=f"{where}: {ours}, vLLM {theirs} ({error:+.2%})",
    )


def _compare_pool(
    scores: dict[str, Score],
    row: dict[str, Any],
    pool: RankPool,
    settings: VllmSettings,
    where: str,
) -> None:
    size = int(row["kv_gib"] * GIB)
    length = settings.max_model_len.value or 1
    where = f"{where} @ {row['kv_gib']} GiB"
    check = pool.check(size, length, is_auto=settings.is_auto_max_model_len)
    if "error" in row:
        _compare_refusal(scores, row["error"], check.server_says, where)
        return
    scores["fits"].add(is_equal=check.fits, where=f"{where}: {check.server_says[:120]}")
    groups = Counter((g.num_layers, g.kind, g.block_size, g.page_bytes) for g in pool.layout.groups)
    theirs = Counter((g[0], KINDS.get(g[1], g[1]), g[2], g[3]) for g in row["groups"])
    scores["groups"].add(
        is_equal=groups == theirs, where=f"{where}: {dict(groups)}, vLLM {dict(theirs)}"
    )
    blocks = pool.num_blocks(size)
    scores["num_blocks"].add(
        is_equal=blocks == row["num_blocks"], where=f"{where}: {blocks}, vLLM {row['num_blocks']}"
    )
    if not row["groups"]:
        return
    tokens, concurrency = pool.capacity(blocks, check.max_model_len)
    scores["max_concurrency"].add(
        is_equal=abs(concurrency - row["max_concurrency"]) < 1e-6 * max(1.0, concurrency),
        where=f"{where}: {concurrency}, vLLM {row['max_concurrency']}",
    )
    scores["capacity_tokens"].add(
        is_equal=tokens == row["capacity_tokens"][0],
        where=f"{where}: {tokens}, vLLM {row['capacity_tokens'][0]}",
    )


def _compare_refusal(scores: dict[str, Score], theirs: str, ours: str, where: str) -> None:
    said, ours_said = WORDS.search(theirs), WORDS.search(ours)
    if said is None:
        same = theirs.split(".")[0] == ours.split(".")[0]
        scores["refusal"].add(is_equal=same, where=f"{where}: {ours[:80]!r}, vLLM {theirs[:80]!r}")
        return
    found = ours_said.groups() if ours_said else None
    scores["refusal"].add(
        is_equal=found == said.groups(), where=f"{where}: {found}, vLLM {said.groups()}"
    )
