"""Statements about several servers: shared GPUs, the quota, prefill/decode pairs, environments."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING

from pytest_llmserve.guard.changes import setting_changes
from pytest_llmserve.invariants.base import (
    cannot_tell,
    certainty_of_shortage,
    failed,
    passed,
    range_words,
    shortage_words,
)
from pytest_llmserve.invariants.memory import taken_bytes
from pytest_llmserve.servers.facts import tightest
from pytest_llmserve.units import ZERO
from pytest_llmserve.units import format_gib as gib
from pytest_llmserve.verdict import Ledger, LedgerRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_llmserve.guard_rules import Pair, Quota, Same, Share
    from pytest_llmserve.servers.server import Server
    from pytest_llmserve.verdict import Verdict

Fleet = "Mapping[str, Sequence[Server]]"
"""Servers by file, as the policy names it."""


def _named(fleet: Mapping[str, Sequence[Server]], pattern: str) -> list[Server]:
    return [s for servers in fleet.values() for s in servers if fnmatch(s.name, pattern)]


def _one(fleet: Mapping[str, Sequence[Server]], pattern: str) -> Server | str:
    """The one planned server of that name, or why there is none."""
    found = _named(fleet, pattern)
    if len(found) != 1:
        count = "no server is" if not found else f"{len(found)} servers are"
        return f"{count} called {pattern!r} in the declared files"
    return found[0] if found[0].subjects else f"{found[0].name} is {found[0].not_planned}"


def check_share(fleet: Mapping[str, Sequence[Server]], share: Share) -> Verdict:
    """Whether servers that share a GPU take no more than it has, all started."""
    rows, need, parts, total = [], ZERO, set(), None
    for pattern in share.servers:
        server = _one(fleet, pattern)
        if isinstance(server, str):
            return cannot_tell(f"cannot tell: {server}")
        subject = tightest(server)
        vram, gpu = subject.plan.vram, subject.deployment.gpu
        if vram is None or gpu is None:
            return cannot_tell(f"cannot tell: the memory of {server.name} is not known")
        parts.add(gpu.id)
        total = vram.gpu_total_bytes
        need += taken_bytes(vram)
        rows.append(LedgerRow(server.name, taken_bytes(vram), vram.sources["budget"], "+"))
    if len(parts) > 1 or total is None:
        return failed(f"{len(parts)} kinds of GPU for servers that share one: {', '.join(parts)}")
    certainty = certainty_of_shortage(need, total)
    if certainty is None:
        return passed(f"{gib(need.expected)} of {gib(total.expected)} GiB of one GPU are taken")
    first, *others = rows
    ledger = (
        LedgerRow(first.label, first.value, first.source),
        *others,
        LedgerRow("device memory", total, f"catalogue {next(iter(parts))}", "-"),
        LedgerRow("short by", need - total, "", "="),
    )
    return failed(
        f"{shortage_words(certainty, need, total)}: {len(rows)} servers on one GPU take "
        f"{range_words(need, certainty)}, it has {gib(total.expected)}",
        certainty,
        margin_bytes=total - need,
        ledger=Ledger("shared GPU", ledger),
        details=(
            "the last one to start says: Free memory on device ... on startup is less than "
            "desired GPU memory utilization",
        ),
    )


def check_quota(fleet: Mapping[str, Sequence[Server]], quota: Quota) -> Verdict:
    """Whether all deployed servers, with the replicas that roll over, stay within the quota."""
    taken: dict[str, int] = {}
    for server in (s for servers in fleet.values() for s in servers):
        if server.launch is not None and not server.launch.is_deployed:
            continue
        if not server.subjects:
            return cannot_tell(f"cannot tell: {server.name} is {server.not_planned}")
        deployment = tightest(server).deployment
        if deployment.gpu is None or deployment.gpu_count is None:
            return cannot_tell(f"cannot tell: the GPUs of {server.name} are not known")
        replicas = 1 if server.launch is None else server.launch.replicas or 1
        count = deployment.gpu_count.value * (replicas + quota.surge)
        taken[deployment.gpu.id] = taken.get(deployment.gpu.id, 0) + count
    over = [(part, n, quota.gpus.get(part, 0)) for part, n in sorted(taken.items())]
    over = [(part, n, allowed) for part, n, allowed in over if n > allowed]
    words = ", ".join(f"{n} x {part}" for part, n in sorted(taken.items())) or "no GPU"
    if not over:
        return passed(f"{words} with {quota.surge} rolling over per server")
    part, count, allowed = over[0]
    return failed(
        f"{count - allowed} x {part} over the quota: {count} are taken, {allowed} are allowed",
        details=(f"taken, with {quota.surge} replicas rolling over per server: {words}",),
    )


def check_pair(fleet: Mapping[str, Sequence[Server]], pair: Pair) -> Verdict:
    """Whether prefill and decode agree on everything that their KV blocks depend on."""
    prefill, decode = _one(fleet, pair.prefill), _one(fleet, pair.decode)
    for server in (prefill, decode):
        if isinstance(server, str):
            return cannot_tell(f"cannot tell: {server}")
    assert not isinstance(prefill, str)
    assert not isinstance(decode, str)
    one, other = tightest(prefill), tightest(decode)
    if one.plan.kv is None or other.plan.kv is None:
        return cannot_tell("cannot tell: the KV cache of one of the pair is not known")
    a, b = one.deployment.settings, other.deployment.settings
    figures = (
        ("model", one.plan.kv and _model(prefill), _model(decode)),
        ("kv_cache_dtype", a.kv_cache_dtype.value, b.kv_cache_dtype.value),
        ("block_size", one.plan.kv.block_size, other.plan.kv.block_size),
        ("bytes per token", one.plan.kv.bytes_per_token, other.plan.kv.bytes_per_token),
        (
            "tensor_parallel_size",
            a.tensor_parallel_size.value,
            b.tensor_parallel_size.value,
        ),
    )
    wrong = [f"{name} {x} against {y}" for name, x, y in figures if x != y]
    if not wrong:
        return passed(f"{prefill.name} and {decode.name} agree on their KV blocks")
    return failed(
        f"{len(wrong)} disagreements between {prefill.name} and {decode.name}: {wrong[0]}",
        details=tuple(f"also {line}" for line in wrong[1:]),
        location=a.kv_cache_dtype.location or prefill.location,
    )


def _model(server: Server) -> str:
    ref = tightest(server).deployment.model_ref
    return ref.value if ref else "no model"


def check_same(fleet: Mapping[str, Sequence[Server]], same: Same) -> Verdict:
    """Whether environments plan the same servers alike; replicas may differ."""
    environments = []
    for pattern in same.files:
        servers = [s for file, found in fleet.items() if fnmatch(file, pattern) for s in found]
        if not servers:
            return cannot_tell(
                f"cannot tell: no server in a declared file that matches {pattern!r}"
            )
        environments.append({server.name: server for server in servers})
    first, *others = environments
    wrong = []
    for pattern, other in zip(same.files[1:], others, strict=True):
        wrong += [f"{name} is not in both" for name in sorted(first.keys() ^ other.keys())]
        for name in sorted(first.keys() & other.keys()):
            wrong += [f"{name}: {line}" for line in _differences(first[name], other[name])]
        wrong = [f"{line} ({same.files[0]} against {pattern})" for line in wrong]
    unknown = [why for servers in environments for s in servers.values() if (why := _unknown(s))]
    if not wrong and unknown:
        return cannot_tell(f"cannot tell: {unknown[0]}")
    if not wrong:
        return passed(f"{len(first)} servers are alike in {len(environments)} environments")
    return failed(
        f"{len(wrong)} differences between environments: {wrong[0]}",
        details=tuple(f"also {line}" for line in wrong[1:]),
    )


def _unknown(server: Server) -> str:
    """Why the server can be compared with no other; empty if it can."""
    if not server.subjects:
        return f"{server.name} is {server.not_planned}"
    is_known = tightest(server).deployment.model_ref is not None
    return "" if is_known else f"the model of {server.name} is not known"


def _differences(one: Server, other: Server) -> list[str]:
    found = [f"{c.name} {c.old} against {c.new}" for c in setting_changes(one, other)]
    if one.subjects and other.subjects:
        parts = [tightest(server).deployment.gpu for server in (one, other)]
        ids = [part.id if part else "unknown GPU" for part in parts]
        if ids[0] != ids[1]:
            found.append(f"GPU {ids[0]} against {ids[1]}")
    return found
