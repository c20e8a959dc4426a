"""The terminal summary: how much was checked, and a ledger line per server."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.reporting.findings import IN_BASELINE, outcome_of
from pytest_llmserve.units import format_gib

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_SERVERS: Final = 20
"""Where more were checked, only those that are not fine are listed, but with ``-v``."""
_ORDER: Final = ("passed", "failed", "close", "cannot tell", "accepted")


def summary_lines(
    facts: Iterable[dict[str, Any]], *, is_verbose: bool, not_run: int = 0
) -> list[str]:
    """Counts first, then the servers, sorted by file and line; whole ledgers if verbose.

    What is ignored is always listed, with its reason. ``not_run``: items that were collected only.
    """
    facts = list(facts)
    if not facts and not_run:
        return [f"nothing was checked: {_many(not_run, 'invariant')} collected, none was run"]
    if not facts:
        return ["nothing was checked: no file that was named or declared holds a deployment"]
    servers = grouped_servers(facts)
    lines = [counts_line(facts)]
    shown = servers
    if len(servers) > MOST_SERVERS and not is_verbose:
        shown = [pair for pair in servers if _not_fine(pair[1])]
    for server, of_server in shown:
        lines += _server_lines(server, of_server, is_verbose=is_verbose)
    if fine := len(servers) - len(shown):
        more = "more " if shown else ""
        lines.append(
            f"{_many(fine, f'{more}server')} {'is' if fine == 1 else 'are'} fine (-v shows all)"
        )
    if is_verbose:
        files = sorted(facts, key=lambda fact: str(fact["file"]))
        lines += [f"not a server: {line}" for f in files for line in f.get("ignored", ())]
    return lines


def counts_line(facts: Iterable[dict[str, Any]]) -> str:
    """``1 file, 2 servers, 24 invariants: 23 passed, 1 failed``."""
    facts = list(facts)
    files = {f["file"] for f in facts}
    counts = Counter(_outcome(f) for f in facts)
    outcomes = ", ".join(f"{counts[o]} {o}" for o in _ORDER if counts[o])
    return (
        f"{_many(len(files), 'file')}, {_many(len(grouped_servers(facts)), 'server')}, "
        f"{_many(len(facts), 'invariant')}: {outcomes}"
    )


def grouped_servers(
    facts: Iterable[dict[str, Any]],
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Servers with the facts of their items, in the order of their files and lines."""
    found: dict[tuple[str, int, str], tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for fact in facts:
        if server := fact.get("server"):
            line = server["source"]["line"] if server["source"] else 0
            key = (fact["file"], line, server["name"])
            found.setdefault(key, (server, []))[1].append(fact)
    return [
        (found[key][0], sorted(found[key][1], key=lambda fact: str(fact["verdict"]["id"])))
        for key in sorted(found)
    ]


def is_bad(fact: dict[str, Any]) -> bool:
    """Whether the item failed."""
    return outcome_of(fact) == "failed"


def _outcome(fact: dict[str, Any]) -> str:
    verdict = fact["verdict"]
    if verdict["outcome"] == "failed" and outcome_of(fact) == "skipped":
        return "accepted"
    if verdict["outcome"] == "passed" and is_bad(fact):
        return "failed"
    return "close" if verdict["certainty"] == "close" else str(verdict["outcome"])


def _not_fine(facts: Iterable[dict[str, Any]]) -> bool:
    return any(is_bad(fact) or _outcome(fact) == "close" or _is_ignored(fact) for fact in facts)


def _is_ignored(fact: dict[str, Any]) -> bool:
    """By a person, one by one; the baseline took all that there was."""
    accepted = fact["verdict"]["accepted"]
    return accepted is not None and not accepted.startswith(IN_BASELINE)


def _server_lines(
    server: dict[str, Any], facts: Iterable[dict[str, Any]], *, is_verbose: bool
) -> list[str]:
    source = server["source"]
    place = f"{source['file']}:{source['line']} " if source else ""
    words = [
        f"{fact['verdict']['name']} {_outcome(fact)}"
        for fact in facts
        if _outcome(fact) != "passed" and not fact["verdict"]["blocked_by"]
    ]
    off = "" if server["is_deployed"] else " (not deployed by default)"
    lines = [f"{place}{server['name']}{off}: {', '.join(words) or 'ok'}"]
    lines += [
        f"    {fact['verdict']['name']} is accepted: {fact['verdict']['accepted']}"
        for fact in facts
        if fact["verdict"]["accepted"] is not None
    ]
    if is_verbose and server["ledger"] is not None:
        from pytest_llmserve.reporting.server_ledger import server_ledger_lines

        return lines + [f"    {line}" for line in server_ledger_lines(server)]
    return [*lines, f"    {_ledger_line(server)}"]


def _ledger_line(server: dict[str, Any]) -> str:
    ledger, kv = server["ledger"], server["kv"]
    if ledger is None:
        return "; ".join(server["unknown"]) or "no figures"
    budget, weights, pool = (
        ledger[name]["expected"] for name in ("budget", "weights", "kv_available")
    )
    runtime = sum(ledger[name]["expected"] for name in ("activations", "non_torch"))
    if ledger["graphs_in_budget"]:
        runtime += ledger["graphs"]["expected"]
    parts = f"{format_gib(weights)} weights + {format_gib(runtime)} runtime"
    if pool != budget - weights - runtime:
        line = f"{parts} + {format_gib(pool)} KV cache as stated, GiB"
    elif pool < 0:
        line = f"{format_gib(budget)} GiB usable, {format_gib(-pool)} too few for {parts}"
    else:
        line = f"{format_gib(budget)} GiB usable = {parts} + {format_gib(pool)} KV cache"
    return line if kv is None else f"{line}; {pool_words(kv)}"


def pool_words(kv: dict[str, Any]) -> str:
    """``40,448 tokens, 4.94x of 8,192``."""
    tokens, concurrency = kv["capacity_tokens"]["expected"], kv["max_concurrency"]["expected"]
    return f"{tokens:,} tokens, {concurrency:.2f}x of {kv['max_model_len']:,}"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
