"""The terminal summary: how much was checked, and a ledger line per server."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_llmserve.units import format_gib

if TYPE_CHECKING:
    from collections.abc import Iterable


def summary_lines(facts: Iterable[dict[str, Any]], *, is_verbose: bool) -> list[str]:
    """Counts first, then a line per server, sorted by file and line."""
    facts = list(facts)
    if not facts:
        return ["nothing was checked: no file that was named or declared holds a deployment"]
    files = sorted({f["file"] for f in facts})
    servers = grouped_servers(facts)
    counts = Counter(_outcome(f["verdict"]) for f in facts)
    order = ("passed", "failed", "close", "cannot tell")
    outcomes = ", ".join(f"{counts[o]} {o}" for o in order if counts[o])
    lines = [
        f"{_many(len(files), 'file')}, {_many(len(servers), 'server')}, "
        f"{_many(len(facts), 'invariant')}: {outcomes}"
    ]
    for server, verdicts in servers:
        lines += _server_lines(server, verdicts)
    if is_verbose:
        lines += [f"not a server: {line}" for f in facts for line in f.get("ignored", ())]
    return lines


def grouped_servers(
    facts: Iterable[dict[str, Any]],
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Servers with their verdicts, in the order of their files and lines."""
    found: dict[tuple[str, int, str], tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for fact in facts:
        if server := fact.get("server"):
            line = server["source"]["line"] if server["source"] else 0
            key = (fact["file"], line, server["name"])
            found.setdefault(key, (server, []))[1].append(fact["verdict"])
    return [found[key] for key in sorted(found)]


def _outcome(verdict: dict[str, Any]) -> str:
    return "close" if verdict["certainty"] == "close" else str(verdict["outcome"])


def _server_lines(server: dict[str, Any], verdicts: list[dict[str, Any]]) -> list[str]:
    source = server["source"]
    place = f"{source['file']}:{source['line']} " if source else ""
    bad = [v for v in verdicts if v["outcome"] != "passed" and not v["blocked_by"]]
    state = ", ".join(f"{v['name']} {_outcome(v)}" for v in bad) or "ok"
    off = "" if server["is_deployed"] else " (not deployed by default)"
    return [f"{place}{server['name']}{off}: {state}", f"    {_ledger_line(server)}"]


def _ledger_line(server: dict[str, Any]) -> str:
    ledger, kv = server["ledger"], server["kv"]
    if ledger is None:
        return "; ".join(server["unknown"]) or "no figures"
    expected = {name: ledger[name]["expected"] for name in ("budget", "weights", "kv_available")}
    other = expected["budget"] - expected["weights"] - expected["kv_available"]
    line = (
        f"{format_gib(expected['budget'])} GiB usable = {format_gib(expected['weights'])} weights "
        f"+ {format_gib(other)} runtime + {format_gib(expected['kv_available'])} KV cache"
    )
    if kv is None:
        return line
    tokens = kv["capacity_tokens"]["expected"]
    concurrency = kv["max_concurrency"]["expected"]
    return f"{line}; {tokens:,} tokens, {concurrency:.2f}x of {kv['max_model_len']:,}"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
