"""``markdown=PATH`` and ``comment=PATH``: what people read on a pull request.

GitHub drops a step's summary whole above 1 MiB and refuses a comment above 65,536 characters, so
rows are limited, worst first, and then cut until the text is small enough.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.reporting.changes import changes_table
from pytest_llmserve.reporting.files import write_text
from pytest_llmserve.reporting.findings import Checked, findings, join
from pytest_llmserve.reporting.markdown_text import cell, code, table
from pytest_llmserve.reporting.summary import counts_line, grouped_servers, is_bad
from pytest_llmserve.units import format_gib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.reporting.findings import Finding

MARKER: Final = "<!-- pytest-llmserve -->"
"""By which a job finds its own comment, to edit it rather than to add one."""
MAX_ROWS: Final = 200
MAX_BYTES: Final = (1 << 20) - 1024
MAX_COMMENT_BYTES: Final = 60_000
MAX_COMMENT_ROWS: Final = 50
STEP_SUMMARY: Final = "GITHUB_STEP_SUMMARY"


def write_markdown(path: Path, checked: Checked) -> None:
    """Write the report; also append it to GitHub's step summary where there is one."""
    write_text(path, markdown(checked))
    if target := os.environ.get(STEP_SUMMARY):
        step = Path(target)
        taken = step.stat().st_size if step.exists() else 0
        with step.open("a", encoding="utf-8") as file:
            file.write(markdown(checked, max_bytes=MAX_BYTES - taken))


def write_comment(path: Path, checked: Checked) -> None:
    """Write the body of a pull-request comment; posting it is the job's part."""
    write_text(path, comment(checked))


def markdown(checked: Checked, *, max_bytes: int = MAX_BYTES) -> str:
    """Changes, findings and servers: at most 200 rows, below ``max_bytes``."""
    return _fitted(checked, MAX_ROWS, max_bytes, folds_servers=False)


def comment(checked: Checked) -> str:
    """As the Markdown report, shorter, behind a marker, with the servers folded away."""
    text = _fitted(checked, MAX_COMMENT_ROWS, MAX_COMMENT_BYTES, folds_servers=True)
    return f"{MARKER}\n{text}"


def _fitted(checked: Checked, rows: int, max_bytes: int, *, folds_servers: bool) -> str:
    while True:
        text = "\n".join(_lines(checked, rows, folds_servers=folds_servers)) + "\n"
        if len(text.encode()) <= max_bytes:
            return text
        if rows == 0:
            return ""
        rows //= 2


def _lines(checked: Checked, rows: int, *, folds_servers: bool) -> list[str]:
    found, servers = findings(checked), _servers_worst_first(checked)
    lines = [f"## pytest-llmserve: {_verdict_words(found, servers)}", ""]
    lines.append(counts_line(checked.facts) if checked.facts else "No deployment was found.")
    if checked.not_run:
        lines += ["", f"A partial run: {checked.not_run:,} more checks were collected and not run."]
    shown = checked.changes[:rows]
    if shown:
        against = code(checked.compared_with)
        lines += ["", f"### What changes against {against}", "", *changes_table(shown)]
        lines += _cut(len(checked.changes) - len(shown), "change")
    elif checked.compared_with:
        lines += ["", f"No server changes against {code(checked.compared_with)}."]
    rows -= len(shown)
    shown_findings = found[:rows]
    if found:
        lines += ["", "### Findings", "", *_findings_table(shown_findings)]
        lines += _cut(len(found) - len(shown_findings), "finding")
    rows -= len(shown_findings)
    shown_servers = servers[:rows]
    if shown_servers:
        body = _servers_table(shown_servers, checked.prefix)
        body += _cut(len(servers) - len(shown_servers), "server")
        lines += [
            "",
            *(_folded(body, len(servers)) if folds_servers else ["### Servers", "", *body]),
        ]
    return lines


def _verdict_words(found: Sequence[Finding], servers: Sequence[Any]) -> str:
    errors = sum(f.level == "error" for f in found)
    if errors:
        return f"{errors:,} finding{'s' if errors > 1 else ''}"
    if not servers:
        return "nothing was checked"
    close = len(found)
    return f"all is well, {close:,} close" if close else "all is well"


def _cut(count: int, word: str) -> list[str]:
    if count <= 0:
        return []
    return ["", f"{count:,} more {word}{'' if count == 1 else 's'} not shown."]


def _folded(body: list[str], count: int) -> list[str]:
    title = f"{count:,} server{'' if count == 1 else 's'}"
    return ["<details>", f"<summary>{title}</summary>", "", *body, "", "</details>"]


def _findings_table(found: Sequence[Finding]) -> list[str]:
    rows = [
        (
            f"**{f.id}**<br>{f.name}",
            cell(f.server),
            code(f"{f.file}:{f.line}"),
            cell(f.headline),
            f.certainty,
            "<br>".join(code(fix) for fix in f.fixes),
        )
        for f in found
    ]
    return table(("", "server", "where", "what", "how sure", "any of these passes"), rows)


def _servers_worst_first(checked: Checked) -> list[tuple[dict[str, Any], bool]]:
    servers = [
        (server, any(is_bad(fact) for fact in facts))
        for server, facts in grouped_servers(checked.facts)
    ]
    return sorted(servers, key=lambda pair: not pair[1])


def _servers_table(servers: Sequence[tuple[dict[str, Any], bool]], prefix: str) -> list[str]:
    header = ("server", "where", "GPU", "usable", "weights", "runtime", "KV cache", "tokens", "")
    rows = []
    for server, bad in servers:
        source = server["source"]
        where = code(f"{join(prefix, source['file'])}:{source['line']}") if source else ""
        gpu = server.get("gpu") or {}
        words = f"{gpu.get('count') or '?'} x {gpu['id']}" if gpu.get("id") else "unknown"
        rows.append(
            (
                cell(server["name"]),
                where,
                cell(words),
                *_figures(server),
                "**fails**" if bad else "ok",
            )
        )
    lines = table(header, rows)
    lines[1] = "|---|---|---|--:|--:|--:|--:|--:|---|"
    return [*lines, "", "GiB on the fullest GPU; tokens: what the KV cache holds."]


def _figures(server: dict[str, Any]) -> tuple[str, ...]:
    ledger, kv = server["ledger"], server["kv"]
    if ledger is None:
        return ("", "", "", "", "")
    usable, weights, left = (
        ledger[key]["expected"] for key in ("budget", "weights", "kv_available")
    )
    figures = (format_gib(v) for v in (usable, weights, usable - weights - left, left))
    return (*figures, f"{kv['capacity_tokens']['expected']:,}" if kv else "")
