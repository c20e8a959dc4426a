"""Our ledgers, pools and verdicts against what real servers printed at start-up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from observed_cases import Case, cases
from scoreboard import Row, Tally, mean_row
from vllm_corpus import UNREADABLE

from pytest_llmserve.invariants.llm102_kv_cache_fits import INVARIANT
from pytest_llmserve.runtimes.vllm.drafts import draft_of
from pytest_llmserve.runtimes.vllm.plan import stage_pools
from pytest_llmserve.units import GIB, Interval
from pytest_llmserve.verdict import Certainty, Outcome, ProblemKind

if TYPE_CHECKING:
    from vllm_corpus import Corpus

    from pytest_llmserve.runtimes.deployment import VramLedger
    from pytest_llmserve.runtimes.vllm.kv_pool import RankPool

TERMS = (
    ("weights_gib", "weights_bytes"),
    ("peak_activation_gib", "activations_bytes"),
    ("non_torch_gib", "non_torch_bytes"),
    ("cuda_graph_gib", "graphs_bytes"),
    ("available_kv_gib", "kv_available_bytes"),
)
ANY_STAGE = ("peak_activation_gib", "available_kv_gib")
CAMPAIGN = "llmd-campaign-"
# Half of what the log rounds away, in GiB and in times.
ROUNDING = 0.0051
# Failures that our plan answers for; the others are another process, a plug-in or a runtime error.
MEMORY = (
    "kv_too_small_for_max_model_len",
    "no_kv_memory",
    "oom_loading_weights",
    "oom_profiling",
    "oom_cuda_graphs",
)
REFUSED = ("heads_not_divisible", "quant_unsupported", "dtype_unsupported")
# Reports whose figures are no answer to the flags they show; docs/accuracy.md says why.
FAULTS = {
    "vllm-27508@2025-10-25": "flags not shown: 4.54 GiB is the need with 1,024 batched tokens",
    "vllm-39625": "79,366 B a token is no figure of this model, as the report says itself",
    "llm-d-planner-h": "the peak is that of 0.17 and later, the report says 0.11",
}


def fault_of(case: Case) -> str | None:
    record = case.record
    return FAULTS.get(f"{record['id']}@{record.get('date')}") or FAULTS.get(record["id"])


@dataclass
class Term:
    """Errors of one term of the ledger, in GiB."""

    errors: list[float] = field(default_factory=list)
    inside: int = 0
    widths: list[float] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)

    def add(self, where: str, theirs: float, ours: Interval) -> None:
        low, expected, high = (end / GIB for end in ours)
        self.errors.append(expected - theirs)
        is_inside = low - ROUNDING <= theirs <= high + ROUNDING
        self.inside += is_inside
        self.widths.append(high - low)
        mark = "" if is_inside else "  OUTSIDE"
        self.rows.append(
            f"{where}: {low:.2f} / {expected:.2f} / {high:.2f}, printed {theirs:.2f}{mark}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": len(self.errors),
            "median_abs_error_gib": median(map(abs, self.errors)),
            "median_error_gib": median(self.errors),
            "share_inside": self.inside / len(self.errors),
            "median_width_gib": median(self.widths),
            "detail": self.rows,
        }


@dataclass
class Pools:
    """Predicted pools of one kind of report."""

    of_total: list[float] = field(default_factory=list)
    of_pool: list[float] = field(default_factory=list)
    inside: Tally = field(default_factory=Tally)
    rows: list[str] = field(default_factory=list)


@dataclass
class ObservedReport:
    """Terms of the budget, pools and verdicts."""

    terms: dict[str, Term] = field(default_factory=dict)
    given_pool: Tally = field(default_factory=Tally)
    known: Pools = field(default_factory=Pools)
    dated: Pools = field(default_factory=Pools)
    campaign: Pools = field(default_factory=Pools)
    tight: list[float] = field(default_factory=list)
    concurrency: list[float] = field(default_factory=list)
    concurrency_rows: list[str] = field(default_factory=list)
    campaign_refused: Tally = field(default_factory=Tally)
    half_widths: Tally = field(default_factory=Tally)
    widest: float = 0.0
    verdicts: Tally = field(default_factory=Tally)
    close: list[str] = field(default_factory=list)
    certain_passes: Tally = field(default_factory=Tally)
    skipped: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    records: int = 0

    def rows(self) -> list[Row]:
        known = self.known
        inside = known.inside.row("observed: pool inside our interval", ">= 95 %", 0.95)
        half = self.half_widths.row("observed: half-width <= 1.5 GiB on 80 GB", "all", 1.0)
        if half.n:
            half.measured += f", widest {self.widest:.2f} GiB"
        verdicts = self.verdicts.row("observed: started or failed, same verdict", ">= 95 %", 0.95)
        verdicts.measured += f", {len(self.close)} close" if verdicts.n else ""
        verdicts.notes = [f"close: {line}" for line in self.close]
        error = mean_row("observed: pool, error of GPU memory", "<= 1.5 %", known.of_total, 0.015)
        error.notes = known.rows
        dated = mean_row("  the same, version only dated", "(no target)", self.dated.of_total, 1.0)
        dated.is_met, dated.notes = None, self.dated.rows
        pools = mean_row("llm-d campaign: pool, error", "<= 1.5 %", self.campaign.of_pool, 0.015)
        pools.notes = self.campaign.rows
        tight = mean_row("llm-d campaign: pool, tight rows", "<= 10 %", self.tight, 0.10)
        times = mean_row("llm-d campaign: concurrency", "<= 2 %", self.concurrency, 0.02)
        times.notes = self.concurrency_rows
        return [
            self.given_pool.row("observed: from the printed pool", ">= 98 %", 0.98),
            error,
            dated,
            inside,
            half,
            verdicts,
            self.certain_passes.row("observed: no failure a certain pass", "all", 1.0),
            pools,
            tight,
            times,
            self.campaign_refused.row("llm-d campaign: nothing refused", "all", 1.0),
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "skipped": dict(self.skipped),
            "faults_of_records": dict(self.faults),
            "terms": {name: term.as_json() for name, term in self.terms.items()},
        }


def compare_observed(corpus: Corpus) -> ObservedReport:
    """Every report of the corpus that can be planned."""
    report = ObservedReport()
    records, _ = corpus.records("observations/vllm.jsonl")
    report.records = len(records)
    for case in cases(corpus, report.skipped):
        try:
            _compare(report, case)
        except UNREADABLE as error:
            report.skipped[f"cannot be compared: {type(error).__name__}: {error}"] += 1
    ids = [str(record.get("id", "")) for record in records]
    campaign = sum(name.startswith(CAMPAIGN) for name in ids) - report.campaign_refused.total
    if campaign:
        report.campaign_refused.untold["not planned"] += campaign
    return report


def _compare(report: ObservedReport, case: Case) -> None:
    fault = fault_of(case)
    if fault:
        report.faults[f"{case.record['id']}: {fault}"] += 1
        return
    if "partial config" in case.doubts:
        report.skipped[f"the config copy lacks keys: {case.record['model']}"] += 1
        return
    unmodelled = case.subject.unknowns.get("rules-known")
    if unmodelled:
        problem = next(p for p in case.subject.deployment.problems if p.kind is ProblemKind.UNKNOWN)
        report.skipped[f"cannot tell: {problem.message}"[:110]] += 1
        return
    _compare_given_pool(report, case)
    if case.gpu is None:
        report.skipped["GPU not known (layout compared only)"] += 1
        return
    if "args" in case.doubts:
        report.skipped["flags not as shown, or not alone on the card (terms compared only)"] += 1
    if case.plan.vram is None:
        report.skipped[f"cannot tell: {case.plan.unknown[0].what}"] += 1
    else:
        _compare_terms(report, case)
        _compare_predicted(report, case)
    _compare_verdict(report, case)


def _compare_terms(report: ObservedReport, case: Case) -> None:
    for printed, name in TERMS:
        theirs = case.observed.get(printed)
        ours = _term(case, printed, name)
        if theirs is None or ours is None or (printed == "cuda_graph_gib" and theirs < 0):
            continue
        term = report.terms.setdefault(printed.removesuffix("_gib"), Term())
        term.add(case.where, theirs, ours)


def _term(case: Case, printed: str, name: str) -> Interval | None:
    vram = case.plan.vram
    if vram is None or (case.settings.pipeline_parallel_size.value > 1 and printed in ANY_STAGE):
        return None  # the logs show some stage, our ledger the fullest
    if printed == "available_kv_gib":
        return _available(case, vram)
    ours: Interval = getattr(vram, name)
    return ours if case.has_own_weights or printed != "weights_gib" else None


def _available(case: Case, vram: VramLedger) -> Interval | None:
    """Our pool; with the printed weights where the stored format is not known."""
    if case.has_own_weights:
        return vram.kv_available_bytes
    loaded = case.observed.get("weights_gib")
    if loaded is None:
        return None
    weights = Interval.exact(round(loaded * GIB))
    return vram.kv_available_bytes + vram.weights_bytes - weights


def printed_pool_gib(case: Case) -> float | None:
    """The pool as printed, else as the printed tokens of a single group imply.

    A pipeline's log shows the pool of some stage, but the tokens are those of the tightest.
    """
    printed, kv = case.observed, case.plan.kv
    has_stages = case.settings.pipeline_parallel_size.value > 1
    available = None if has_stages else printed.get("available_kv_gib")
    tokens = printed.get("kv_cache_tokens")
    if available is not None:
        return float(available)
    shards = case.settings.decode_context_parallel_size.value
    if not tokens or kv is None or len(kv.groups) != 1 or shards > 1 or "approximate" in printed:
        return None
    return float(tokens / kv.block_size * kv.bytes_per_block / GIB)


def _compare_predicted(report: ObservedReport, case: Case) -> None:
    """The pool from our own budget."""
    theirs = printed_pool_gib(case)
    vram = case.plan.vram
    ours = _available(case, vram) if vram is not None else None
    if theirs is None or ours is None or vram is None or {"args", "model"} & set(case.doubts):
        return
    is_dated = "version" in case.doubts
    kind = report.dated if is_dated else report.known
    _add_pool(kind, case, theirs, ours)
    total = vram.gpu_total_bytes.expected / GIB
    half = (ours.high - ours.low) / 2 / GIB
    if not is_dated and 75 <= total <= 82:
        report.widest = max(report.widest, half)
        report.half_widths.add(is_right=half <= 1.5, where=f"{case.where}: {half:.2f} GiB")
    if case.record["id"].startswith(CAMPAIGN):
        _add_pool(report.campaign, case, theirs, ours)
        if theirs < total / 2:
            report.tight.append(ours.expected / GIB / theirs - 1)
        times, kv = case.observed.get("max_concurrency"), case.plan.kv
        if times and kv is not None:
            off = kv.max_concurrency[1] / times - 1
            report.concurrency.append(off)
            line = f"{case.where}: {kv.max_concurrency[1]:.2f}x, printed {times}x ({off:+.2%})"
            report.concurrency_rows.append(line)


def _add_pool(pools: Pools, case: Case, theirs: float, ours: Interval) -> None:
    assert case.plan.vram is not None
    total = case.plan.vram.gpu_total_bytes.expected / GIB
    low, expected, high = (end / GIB for end in ours)
    pools.of_total.append((expected - theirs) / total)
    if theirs > 0:
        pools.of_pool.append(expected / theirs - 1)
    line = f"{case.where}: {low:.2f} / {expected:.2f} / {high:.2f}, printed {theirs:.2f} GiB"
    pools.rows.append(f"{line} ({(expected - theirs) / total:+.2%})")
    pools.inside.add(is_right=low - ROUNDING <= theirs <= high + ROUNDING, where=line)


def _compare_given_pool(report: ObservedReport, case: Case) -> None:
    """Tokens, concurrency, need and estimate from the pool that the log prints."""
    printed = case.observed
    available = printed.get("available_kv_gib")
    if available is None or available <= 0 or printed.get("approximate"):
        return
    has_any = any(
        printed.get(key)
        for key in ("kv_cache_tokens", "max_concurrency", "needed_kv_gib", "estimated_max_len")
    )
    if not has_any or case.settings.max_model_len.value is None:
        return
    if {"args", "model"} & set(case.doubts):
        return
    try:
        draft = draft_of(case.settings, case.model, case.inputs.draft)
        pools = stage_pools(
            case.settings, version=case.version, model=case.model, gpu=case.gpu, draft=draft
        )
    except ValueError as error:
        report.skipped[f"pool given, cannot tell: {error}"[:110]] += 1
        return
    wrong = _given_differences(case, pools, available)
    report.given_pool.add(is_right=not wrong, where=f"{case.where}: {'; '.join(wrong)}")


def _given_differences(case: Case, pools: tuple[RankPool, ...], available: float) -> list[str]:
    printed, length = case.observed, case.settings.max_model_len.value or 1
    ends = [round((available + sign * ROUNDING) * GIB) for sign in (-1, 0, 1)]
    pool = min(pools, key=lambda p: p.num_blocks(ends[1]))
    shown = [pool.capacity(pool.num_blocks(end), length) for end in ends]
    wrong = []
    # A pipeline's log shows the pool of one of its stages, its tokens are those of the tightest.
    has_stages = case.settings.pipeline_parallel_size.value > 1
    tokens = None if has_stages else printed.get("kv_cache_tokens")
    times = None if has_stages else printed.get("max_concurrency")
    if tokens and not shown[0][0] <= tokens <= shown[2][0]:
        wrong.append(f"{shown[1][0]} tokens, printed {tokens}")
    if times and not shown[0][1] - ROUNDING <= times <= shown[2][1] + ROUNDING:
        wrong.append(f"concurrency {shown[1][1]:.2f}, printed {times}")
    need, needed = pool.need_bytes(length) / GIB, printed.get("needed_kv_gib")
    if needed and abs(need - needed) > ROUNDING:
        wrong.append(f"needs {need:.2f} GiB, printed {needed}")
    estimate = printed.get("estimated_max_len")
    lengths = [pool.estimate_max_len(end, length) for end in (ends[0], ends[2])]
    if estimate and not lengths[0] <= estimate <= lengths[1]:
        wrong.append(f"estimate {lengths[0]} to {lengths[1]}, printed {estimate}")
    return wrong


def _compare_verdict(report: ObservedReport, case: Case) -> None:
    outcome, kind = case.observed.get("outcome"), case.observed.get("error_kind")
    is_failure = outcome == "failed_at_startup"
    if {"args", "model", "gpu"} & set(case.doubts):
        return
    if is_failure and kind not in MEMORY + REFUSED:
        return
    if outcome not in ("started", "oom_at_runtime", "failed_at_startup"):
        return
    refusals = [r for r in case.subject.deployment.refusals if r.is_certain]
    if refusals:
        ours, certainty, line = "fails", Certainty.CERTAIN, refusals[0].headline
    elif not case.has_own_weights:
        return
    else:
        verdict = INVARIANT.judge(case.subject)
        if verdict.outcome is Outcome.CANNOT_TELL:
            report.verdicts.untold[verdict.headline[:100]] += 1
            return
        ours = "starts" if verdict.outcome is Outcome.PASSED else "fails"
        certainty, line = verdict.certainty or Certainty.CERTAIN, verdict.headline
    theirs = "fails" if is_failure else "starts"
    where = (
        f"{case.where}: server {theirs} ({kind or outcome}), we say {ours} ({certainty}): {line}"
    )
    _add_verdict(report, where, is_failure=is_failure, ours=ours, certainty=certainty)
    if case.record["id"].startswith(CAMPAIGN):
        report.campaign_refused.add(is_right=ours == theirs, where=where)


def _add_verdict(
    report: ObservedReport, where: str, *, is_failure: bool, ours: str, certainty: Certainty
) -> None:
    """A call within the error bar is right where its expected end is, and close in any case."""
    if is_failure:
        is_certain_pass = ours == "starts"
        report.certain_passes.add(is_right=not is_certain_pass, where=where)
    is_same = (ours == "fails") == is_failure
    if certainty is Certainty.CLOSE:
        # Failed only at the unfavourable end: the expected answer is that it starts.
        is_same = not is_failure
    if certainty is not Certainty.CERTAIN:
        report.close.append(where)
    report.verdicts.add(is_right=is_same or certainty is not Certainty.CERTAIN, where=where)
