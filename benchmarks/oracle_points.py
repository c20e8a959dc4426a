"""Our settings, refusals, weights and pools against what vLLM computed on a stand-in GPU."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oracle_answers import NOT_A_REFUSAL, answer, differences
from packaging.version import Version
from scoreboard import Row, Tally
from vllm_corpus import UNREADABLE, Corpus, inputs_of

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.models.spec import IndexerCache, LatentCache, ModelSpec
from pytest_llmserve.runtimes.vllm.block_size import effective_kv_cache_dtype, lay_out
from pytest_llmserve.runtimes.vllm.kv_specs import layer_rows
from pytest_llmserve.runtimes.vllm.plan import stage_pools
from pytest_llmserve.runtimes.vllm.traits import attention_type
from pytest_llmserve.runtimes.vllm.version_rules import kv_rules
from pytest_llmserve.runtimes.vllm.weights import weight_bytes
from pytest_llmserve.units import GIB

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.vllm.deploy import VllmInputs
    from pytest_llmserve.runtimes.vllm.kv_pool import RankPool
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

GPUS = {
    "H100": "h100-sxm-80gb",
    "H200": "h200-sxm-141gb",
    "A100": "a100-sxm-80gb",
    "B200": "b200-sxm-180gb",
    "L4": "l4",
    "L40S": "l40s",
    "A10G": "a10g",
    "T4": "t4",
    "V100": "v100-sxm2-32gb",
}
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
BESIDE = "hf_quant_config.json beside config.json"


@dataclass
class OracleReport:
    """One tally a figure, and the points that say nothing about a server."""

    pools: Tally = field(default_factory=Tally)
    requests: Tally = field(default_factory=Tally)
    weights_thousandth: Tally = field(default_factory=Tally)
    weights_hundredth: Tally = field(default_factory=Tally)
    equal_weights: int = 0
    answers: Tally = field(default_factory=Tally)
    reasons: Tally = field(default_factory=Tally)
    settings: Tally = field(default_factory=Tally)
    left_out: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    points: int = 0

    def rows(self) -> list[Row]:
        weights = self.weights_thousandth.row("oracle: weights within 0.1 %", ">= 98 %", 0.98)
        weights.notes.append(f"{self.equal_weights} of {weights.n} are equal to the byte")
        return [
            self.pools.row("oracle: pools identical", ">= 99 %, 0 wrong", 0.99, none_wrong=True),
            self.requests.row("oracle: one full-length request", ">= 99 %, 0 wrong", 0.99),
            weights,
            self.weights_hundredth.row(
                "oracle: weights within 1 %", "all that are told", 1.0, of_told=True
            ),
            self.answers.row("oracle: refused or built, same answer", ">= 98 %", 0.98),
            self.reasons.row("oracle: refused by the same rule", "all", 1.0),
            self.settings.row("oracle: defaults of settings equal", "all", 1.0),
        ]


def compare_oracle(corpus: Corpus) -> OracleReport:
    """Every point of the corpus."""
    report = OracleReport()
    records, broken = corpus.records("vllm_oracle/points.jsonl")
    if broken:
        report.unusable["not a JSON object"] += broken
    for point in records:
        report.points += 1
        try:
            _compare(report, corpus, point)
        except UNREADABLE as error:
            report.unusable[f"{type(error).__name__}: {error}"[:100]] += 1
    return report


def _compare(report: OracleReport, corpus: Corpus, point: dict[str, Any]) -> None:
    error = point.get("error")
    if error and any(word in error for word in NOT_A_REFUSAL):
        report.left_out[f"fault of the stand-in: {error.splitlines()[0][:60]}"] += 1
        return
    model = corpus.built_model(point["config"], with_quant_file=BESIDE in (point.get("why") or ""))
    if isinstance(model, str):
        _count_untold(report, point, f"{point['config']}: {model[:110]}")
        return
    if point["gpu"] not in GPUS:
        report.unusable[f"GPU {point['gpu']} has no part of ours"] += 1
        return
    args = [*point["args"], *_stand_in_args(point, model)]
    version, gpu = Version(point["vllm"]), load_gpu(GPUS[point["gpu"]])
    inputs = inputs_of(args, version, model, gpu)
    where = f"{point['vllm']} {point['config']} {point['gpu']} {' '.join(point['args'])}".strip()
    is_same, same_rule, detail = answer(point, inputs)
    report.answers.add(is_right=is_same, where=f"{where}: {detail}")
    if error:
        if is_same:
            report.reasons.add(is_right=same_rule, where=f"{where}: {detail}")
        return
    settings = inputs.settings()
    wrong = differences(point, settings)
    report.settings.add(is_right=not wrong, where=f"{where}: {'; '.join(wrong)}")
    if model.unsupported:
        why = f"{point['config']}: {', '.join(model.unsupported)}"
        is_tower = all("tower" in part for part in model.unsupported)
        _count_untold(report, point, why, has_layout=is_tower)
        if is_tower:  # the layers, and so the pool, are known
            _compare_pools(report, point, inputs, settings, where)
        return
    _compare_weights(report, point, inputs, settings, where)
    _compare_pools(report, point, inputs, settings, where)


def _stand_in_args(point: dict[str, Any], model: ModelSpec) -> list[str]:
    """Without FlashInfer a B200 took CUTLASS for MLA: so do we, to compare the rest."""
    caches = {type(cache) for group in model.layer_groups for cache in group.layer.caches}
    is_plain_mla = LatentCache in caches and IndexerCache not in caches
    is_asked = any(str(arg).startswith("--attention-backend") for arg in point["args"])
    if point["gpu"] != "B200" or not is_plain_mla or is_asked or point["vllm"] < "0.18":
        return []
    return ["--attention-backend", "CUTLASS_MLA"]


def _count_untold(
    report: OracleReport, point: dict[str, Any], why: str, *, has_layout: bool = False
) -> None:
    if point.get("error"):
        report.answers.untold[why] += 1
        return
    if "param_bytes_per_rank" in point:
        report.weights_thousandth.untold[why] += 1
        report.weights_hundredth.untold[why] += 1
    if point.get("kv") and not has_layout:
        report.pools.untold[why] += len(point["kv"])
        report.requests.untold[why] += 1


def _compare_weights(
    report: OracleReport,
    point: dict[str, Any],
    inputs: VllmInputs,
    settings: VllmSettings,
    where: str,
) -> None:
    theirs, model = point.get("param_bytes_per_rank"), inputs.model
    if not theirs or model is None:
        return
    is_mxfp4 = model.quantization is not None and model.quantization.scheme == "mxfp4"
    if is_mxfp4 and point["vllm"] == "0.19.1":
        # A server of 0.19.0 printed 13.64 GiB for gpt-oss-20b: padded, like the others.
        report.left_out["0.19.1 pads MXFP4 experts after they are built"] += 1
        return
    try:
        ours = weight_bytes(settings, model, inputs.gpu, version=inputs.version.value).built
    except ValueError as error:
        report.weights_thousandth.untold[str(error)[:80]] += 1
        report.weights_hundredth.untold[str(error)[:80]] += 1
        return
    off = (ours - theirs) / theirs
    where = f"{where}: {ours}, vLLM {theirs} ({off:+.2%})"
    report.equal_weights += ours == theirs
    report.weights_thousandth.add(is_right=abs(off) <= 0.001, where=where)
    report.weights_hundredth.add(is_right=abs(off) <= 0.01, where=where)


def pool_fault(point: dict[str, Any]) -> str | None:
    """Why a point's pool figures are the stand-in's own and no server's, if they are."""
    if point.get("why") and BESIDE not in point["why"]:
        return None
    if re.search(r"gemma-3n|gemma-4-E", point["config"]):
        return "layers that share KV were counted with a cache of their own"
    if "int8_per_token_head" in point["args"]:
        return "backend packing was not applied"
    return None


def _compare_pools(
    report: OracleReport,
    point: dict[str, Any],
    inputs: VllmInputs,
    settings: VllmSettings,
    where: str,
) -> None:
    rows, model = point.get("kv") or [], inputs.model
    if not rows or model is None:
        return
    fault = pool_fault(point)
    if fault:
        report.left_out[fault] += 1
        return
    version = inputs.version.value
    try:
        pool = stage_pools(settings, version=version, model=model, gpu=inputs.gpu)[0]
    except ValueError as error:
        report.pools.untold[f"{point['config']}: {error}"[:100]] += len(rows)
        return
    for row in rows:
        wrong = _pool_differences(row, pool, settings)
        place = f"{where} @ {row['kv_gib']} GiB"
        report.pools.add(is_right=not wrong, where=f"{place}: {'; '.join(wrong)}")
    _compare_request(report, point, inputs, settings, pool, where)


def _compare_request(
    report: OracleReport,
    point: dict[str, Any],
    inputs: VllmInputs,
    settings: VllmSettings,
    pool: RankPool,
    where: str,
) -> None:
    """The point counts each layer by itself, before layers are grouped and windows promoted."""
    theirs, model = point.get("bytes_for_one_max_len_request"), inputs.model
    if theirs is None or model is None:
        return
    if point["vllm"] == "0.19.1" and attention_type(model) == "hybrid":
        report.left_out["0.19.1 counted a hybrid's request before its block was enlarged"] += 1
        return
    rules = kv_rules(inputs.version.value)
    dtype = effective_kv_cache_dtype(settings, model, inputs.gpu)
    rows = layer_rows(model, settings, kv_cache_dtype=dtype)
    num_tokens = settings.max_model_len.value or 1
    ours = sum(
        spec.page_bytes * pool.blocks_of(spec, num_tokens)
        for _, spec in lay_out(rows, settings, rules, model, inputs.gpu)
    )
    report.requests.add(is_right=ours == theirs, where=f"{where}: {ours}, vLLM {theirs}")


def _pool_differences(row: dict[str, Any], pool: RankPool, settings: VllmSettings) -> list[str]:
    size = int(row["kv_gib"] * GIB)
    length = settings.max_model_len.value or 1
    check = pool.check(size, length, is_auto=settings.is_auto_max_model_len)
    if "error" in row:
        return _refusal_differences(row["error"], check.server_says)
    if not check.fits:
        return [f"refused ({check.server_says[:90]})"]
    groups = Counter((g.num_layers, g.kind, g.block_size, g.page_bytes) for g in pool.layout.groups)
    theirs = Counter((g[0], KINDS.get(g[1], g[1]), g[2], g[3]) for g in row["groups"])
    blocks = pool.num_blocks(size)
    wrong = [] if groups == theirs else [f"groups {dict(groups)}, vLLM {dict(theirs)}"]
    if blocks != row["num_blocks"]:
        wrong.append(f"{blocks} blocks, vLLM {row['num_blocks']}")
    if not row["groups"]:
        return wrong
    tokens, concurrency = pool.capacity(blocks, check.max_model_len)
    if abs(concurrency - row["max_concurrency"]) >= 1e-6 * max(1.0, concurrency):
        wrong.append(f"concurrency {concurrency}, vLLM {row['max_concurrency']}")
    if tokens != row["capacity_tokens"][0]:
        wrong.append(f"{tokens} tokens, vLLM {row['capacity_tokens'][0]}")
    return wrong


def _refusal_differences(theirs: str, ours: str) -> list[str]:
    said, ours_said = WORDS.search(theirs), WORDS.search(ours)
    if said is None:
        same = theirs.split(".")[0] == ours.split(".")[0]
        return [] if same else [f"says {ours[:80]!r}, vLLM {theirs[:80]!r}"]
    found = ours_said.groups() if ours_said else None
    return [] if found == said.groups() else [f"says {found}, vLLM {said.groups()}"]
