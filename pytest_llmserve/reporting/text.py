"""A verdict as the text a person reads at 2 a.m.: what, where, how much, how sure, what passes."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from pytest_llmserve.reporting.ledger import ledger_lines
from pytest_llmserve.units import format_gib
from pytest_llmserve.verdict import Outcome

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import Deployment
    from pytest_llmserve.verdict import Fix, Verdict

WIDTH = 100
MOST_LINES = 25
_DTYPE_WORDS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _wrapped(text: str) -> list[str]:
    """Indented lines, deeper where the text is; paths and flags are never broken."""
    indent = "  " + " " * (len(text) - len(text.lstrip()))
    return wrap(
        text.lstrip(),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def headline(verdict: Verdict) -> str:
    """The line that stands alone in summaries: id, then what and by how much."""
    return f"{verdict.id} {verdict.headline}"


def explain(verdict: Verdict, deployment: Deployment | None = None) -> str:
    """The whole message in plain ASCII: in CI pytest prints all of it twice, so it is short."""
    lines = [headline(verdict)]
    name = deployment.name if deployment else ""
    if verdict.location is not None:
        lines.append(f"  {verdict.location}   {name}".rstrip())
    if deployment is not None:
        lines.append(f"  {describe(deployment)}")
    if verdict.ledger is not None:
        rows = ledger_lines(verdict.ledger)
        if verdict.certainty is not None and verdict.margin_bytes is not None:
            rows[-1] = f"{rows[-1]}   {certainty_words(verdict)}"
        lines += ["", *("  " + row for row in rows)]
    for detail in verdict.details:
        lines += _wrapped(detail)
    if verdict.fixes:
        one = "this passes:" if len(verdict.fixes) == 1 else "any one of these passes:"
        lines += ["", f"  {one}", *("    " + _fix_line(fix) for fix in verdict.fixes)]
    if verdict.outcome is not Outcome.PASSED and len(lines) < MOST_LINES:
        lines.append(f"  why: pytest --llmserve-explain {verdict.id}")
    return "\n".join(lines)


def certainty_words(verdict: Verdict) -> str:
    """How sure a failure is, against its error bar."""
    assert verdict.margin_bytes is not None
    bar = max(
        verdict.margin_bytes.high - verdict.margin_bytes.expected,
        verdict.margin_bytes.expected - verdict.margin_bytes.low,
    )
    if bar == 0:
        return f"{verdict.certainty}: every figure is exact"
    side = "beyond" if verdict.certainty == "certain" else "within"
    return f"{verdict.certainty}: {side} the error bar of {format_gib(bar)} GiB"


def _fix_line(fix: Fix) -> str:
    note = fix.note
    if fix.location is not None:
        note = f"line {fix.location.line}, {note}" if note else f"line {fix.location.line}"
    return f"{fix.change:<33} {note}".rstrip()


def describe(deployment: Deployment) -> str:
    """The server in a line: runtime and version, model, GPUs, parallelism."""
    settings = deployment.settings
    assumed = " (assumed)" if deployment.is_version_assumed else ""
    parts = [f"{deployment.runtime} {deployment.version.value}{assumed}"]
    if deployment.model is not None:
        dtype = _DTYPE_WORDS.get(settings.dtype.value or "", settings.dtype.value or "")
        kind = settings.quantization.value or dtype
        parts.append(f"{deployment.model.id} {kind}".rstrip())
    elif deployment.model_ref is not None:
        parts.append(f"{deployment.model_ref.value} (unknown)")
    count = deployment.gpu_count.value if deployment.gpu_count else "?"
    parts.append(f"{count} x {deployment.gpu.id}" if deployment.gpu else f"{count} x unknown GPU")
    parts.append(f"TP={settings.tensor_parallel_size.value}")
    for word, setting in (
        ("PP", settings.pipeline_parallel_size),
        ("DP", settings.data_parallel_size),
    ):
        if setting.value > 1:
            parts.append(f"{word}={setting.value}")
    return ", ".join(parts)
