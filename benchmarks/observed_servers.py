"""Parts b and c: our ledgers and verdicts against what real servers printed at start-up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from vllm_corpus import (
    SAME_SHAPE,
    SAME_WEIGHTS,
    Corpus,
    gpu_of,
    settings_of,
    version_of,
    with_total,
)

from pytest_llmserve.runtimes.vllm.plan import make_plan, stage_pools
from pytest_llmserve.units import GIB, Interval

if TYPE_CHECKING:
    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Plan
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

# Not for calibration: plug-ins, odd builds, machines that are not told.
LEFT_OUT = (
    "granite-switch-128",
    "trtllm-",
    "glm53-exl3-94",
    "sglang-8008",
    "lmdeploy-990",
    "deepseek-multinode",
)
TERMS = (
    ("weights_gib", "weights_bytes"),
    ("peak_activation_gib", "activations_bytes"),
    ("non_torch_gib", "non_torch_bytes"),
    ("cuda_graph_gib", "graphs_bytes"),
    ("available_kv_gib", "kv_available_bytes"),
)
ANY_STAGE = ("peak_activation_gib", "available_kv_gib")
NO_ROOM = (
    "kv_too_small_for_max_model_len",
    "no_kv_memory",
    "oom_loading_weights",
    "oom_profiling",
)


@dataclass
class Term:
    """Errors of one term, in GiB (or as a share where said)."""

    errors: list[float] = field(default_factory=list)
    inside: int = 0
    widths: list[float] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)

    def add(self, where: str, theirs: float, ours: Interval) -> None:
        low, expected, high = (end / GIB for end in ours)
        self.errors.append(expected - theirs)
        # The logs round to two decimals.
        is_inside = low - 0.006 <= theirs <= high + 0.006
        self.inside += is_inside
        self.widths.append(high - low)
        self.rows.append(
            f"{where}: {low:.2f} / {expected:.2f} / {high:.2f}, printed {theirs:.2f}"
            f"{'' if is_inside else '  OUTSIDE'}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": len(self.errors),
            "median_abs_error_gib": median(map(abs, self.errors)) if self.errors else None,
            "median_error_gib": median(self.errors) if self.errors else None,
            "share_inside": self.inside / len(self.errors) if self.errors else None,
            "median_width_gib": median(self.widths) if self.widths else None,
            "detail": self.rows,
        }


@dataclass
class Share:
    """Relative errors of a count."""

    errors: list[float] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)

    def add(self, where: str, theirs: float, ours: float) -> None:
        self.errors.append(ours / theirs - 1)
        self.rows.append(f"{where}: {ours:.6g}, printed {theirs:.6g} ({self.errors[-1]:+.2%})")

    def as_json(self) -> dict[str, Any]:
        near = sum(abs(error) <= 0.01 for error in self.errors)
        return {
            "rows": len(self.errors),
            "median_abs_error": median(map(abs, self.errors)) if self.errors else None,
            "within_1_percent": near / len(self.errors) if self.errors else None,
            "detail": self.rows,
        }


@dataclass
class ObservedReport:
    """Terms of the budget, pools and verdicts."""

    terms: dict[str, Term] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    verdict_rows: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    records: int = 0

    def term(self, name: str) -> Term:
        return self.terms.setdefault(name, Term())

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "skipped": dict(self.skipped),
            "terms": {name: term.as_json() for name, term in self.terms.items()},
            "shares": {name: share.as_json() for name, share in self.shares.items()},
            "verdicts": dict(self.verdicts),
            "verdict_rows": self.verdict_rows,
        }

    def share(self, name: str) -> Share:
        return self.shares.setdefault(name, Share())


@dataclass(frozen=True)
class Case:
    """One report whose version, model and GPU are known."""

    record: dict[str, Any]
    version: Version
    model: ModelSpec
    gpu: GpuSpec
    settings: VllmSettings
    has_own_weights: bool

    @property
    def where(self) -> str:
        return f"{self.record['id']} ({self.version}, {self.record['model']})"

    @property
    def observed(self) -> dict[str, Any]:
        found: dict[str, Any] = self.record["observed"]
        return found

    def plan(self) -> Plan:
        return make_plan(self.settings, version=self.version, model=self.model, gpu=self.gpu)


def cases(corpus: Corpus, skipped: Counter[str]) -> list[Case]:
    """The reports that can be planned, and why the others cannot."""
    found = []
    for record in corpus.records("observations/vllm.jsonl"):
        case = _case(corpus, record)
        if isinstance(case, str):
            skipped[case] += 1
        else:
            found.append(case)
    return found


def _case(corpus: Corpus, record: dict[str, Any]) -> Case | str:
    ref = record.get("model")
    if record["id"].startswith(LEFT_OUT):
        return "not for calibration"
    if not ref:
        return "model not named"
    version = version_of(record)
    if version is None:
        return "neither version nor date"
    model = corpus.model(SAME_SHAPE.get(ref) or SAME_WEIGHTS.get(ref) or ref)
    if isinstance(model, str):
        return f"model not understood: {ref}"
    gpu = gpu_of(record.get("gpu"), record["observed"].get("gpu_total_gib"))
    if gpu is None:
        return f"GPU not known: {record.get('gpu')}"
    gpu = with_total(gpu, record["observed"].get("gpu_total_gib"))
    settings = settings_of(record["args"], version, model, gpu, record.get("env") or {})
    return Case(record, version, model, gpu, settings, ref not in SAME_SHAPE)


def compare_observed(corpus: Corpus) -> ObservedReport:
    """Every report of the corpus that can be planned."""
    report = ObservedReport()
    report.records = len(corpus.records("observations/vllm.jsonl"))
    for case in cases(corpus, report.skipped):
        plan = case.plan()
        if plan.vram is None:
            report.skipped[f"not told: {plan.unknown[0].what}"] += 1
            continue
        _compare_terms(report, case, plan)
        _compare_pool(report, case, plan)
        _compare_verdict(report, case, plan)
    return report


def _compare_terms(report: ObservedReport, case: Case, plan: Plan) -> None:
    vram = plan.vram
    assert vram is not None
    for printed, name in TERMS:
        theirs = case.observed.get(printed)
        ours: Interval = getattr(vram, name)
        if theirs is None or (printed == "cuda_graph_gib" and theirs < 0):
            continue
        if case.settings.pipeline_parallel_size.value > 1 and printed in ANY_STAGE:
            continue  # the logs show some stage, our ledger the fullest
        if not case.has_own_weights and printed == "weights_gib":
            continue
        if printed == "available_kv_gib" and not case.has_own_weights:
            loaded = case.observed.get("weights_gib")
            if loaded is None:
                continue
            ours = ours + vram.weights_bytes - Interval.exact(round(loaded * GIB))
        report.term(printed.removesuffix("_gib")).add(case.where, theirs, ours)


def _compare_pool(report: ObservedReport, case: Case, plan: Plan) -> None:
    """Tokens and concurrency from the printed pool (layout alone), and from our own budget."""
    available = case.observed.get("available_kv_gib")
    length = case.observed.get("max_concurrency_at_len")
    tokens = case.observed.get("kv_cache_tokens")
    times = case.observed.get("max_concurrency")
    length = length or case.settings.max_model_len.value
    if length is None:
        return
    if available and available > 0 and case.settings.pipeline_parallel_size.value == 1:
        pools = stage_pools(case.settings, version=case.version, model=case.model, gpu=case.gpu)
        pool = min(pools, key=lambda p: p.num_blocks(round(available * GIB)))
        ours = pool.capacity(pool.num_blocks(round(available * GIB)), length)
        if tokens:
            report.share("tokens of the printed pool").add(case.where, tokens, ours[0])
        if times:
            report.share("concurrency of the printed pool").add(case.where, times, ours[1])
    if tokens and plan.kv is not None and case.has_own_weights:
        report.share("tokens of our own pool").add(
            case.where, tokens, plan.kv.capacity_tokens.expected
        )


def _compare_verdict(report: ObservedReport, case: Case, plan: Plan) -> None:
    outcome, kind = case.observed.get("outcome"), case.observed.get("error_kind")
    if not case.has_own_weights or plan.vram is None or plan.kv is None:
        return
    if outcome in ("started", "oom_at_runtime"):
        theirs = "starts"
    elif outcome == "failed_at_startup" and kind in NO_ROOM:
        theirs = "fails"
    else:
        return
    pools = stage_pools(case.settings, version=case.version, model=case.model, gpu=case.gpu)
    need = plan.kv.need_bytes
    ends = [end > 0 and pools[0].check_bytes(end) >= need for end in plan.vram.kv_available_bytes]
    certainty = "certain" if ends[0] == ends[2] else "within the error bar"
    ours = "starts" if ends[1] else "fails"
    report.verdicts[f"server {theirs}, we say {ours} ({certainty})"] += 1
    report.verdict_rows.append(
        f"{case.where}: server {theirs} ({kind or outcome}), we say {ours} ({certainty}): "
        f"need {need / GIB:.2f}, available {plan.vram.kv_available_bytes.expected / GIB:.2f} GiB"
    )
