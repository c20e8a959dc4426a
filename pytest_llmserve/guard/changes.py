"""What a change does to one server: figures and settings, before and after."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from pytest_llmserve.invariants.memory import overhead_bytes
from pytest_llmserve.policy import Workload
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.servers.facts import tightest
from pytest_llmserve.subject import Base

if TYPE_CHECKING:
    from pytest_llmserve.servers.server import Server
    from pytest_llmserve.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a reviewer compares; ``None`` where it cannot be told."""

    gpus: str
    runtime: str
    needed_bytes: int | None
    """Of each GPU: weights, runtime and one request of full length."""
    budget_bytes: int | None
    kv_left_bytes: int | None
    capacity_tokens: int | None
    max_model_len: int | None
    longest_context: int | None
    """The longest request that the pool admits."""
    requests_at_once: int | None
    """At the declared workload; without one, requests of full length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting that differs, and where its new value came from."""

    name: str
    old: str
    new: str
    source: str


def figures_of(server: Server) -> Figures | None:
    """The figures of a server on the GPU that leaves the least; ``None``: it is not planned."""
    if not server.subjects:
        return None
    subject = tightest(server)
    deployment, plan = subject.deployment, subject.plan
    count = deployment.gpu_count.value if deployment.gpu_count else "?"
    part = deployment.gpu.id if deployment.gpu else "unknown GPU"
    vram, kv = plan.vram, plan.kv
    needed = None
    if vram is not None and kv is not None:
        runtime = vram.weights_bytes.expected + overhead_bytes(vram).expected
        needed = runtime + kv.need_bytes
    return Figures(
        gpus=f"{count} x {part}",
        runtime=f"{deployment.runtime} {deployment.version.value}",
        needed_bytes=needed,
        budget_bytes=vram.budget_bytes.expected if vram else None,
        kv_left_bytes=vram.kv_available_bytes.expected if vram else None,
        capacity_tokens=kv.capacity_tokens.expected if kv else None,
        max_model_len=kv.max_model_len if kv else deployment.settings.max_model_len.value,
        longest_context=kv.estimated_max_len.expected if kv else None,
        requests_at_once=_requests_at_once(subject),
    )


def _requests_at_once(subject: Subject) -> int | None:
    plan = subject.plan
    if plan.vram is None or plan.kv is None:
        return None
    load = subject.facts.workload
    settings = subject.deployment.settings
    held = plan.kv.request_bytes
    if isinstance(load, Workload):
        changed = subject.changed({"max_model_len": load.tokens_per_request}).plan.kv
        held = changed.request_bytes if changed else held
    if not held:
        return settings.max_num_seqs.value
    fits = max(0, plan.vram.kv_available_bytes.expected) // held
    return min(fits, settings.max_num_seqs.value) * settings.data_parallel_size.value


def setting_changes(base: Server, head: Server) -> tuple[SettingChange, ...]:
    """Settings whose values differ, defaults of the version included."""
    if not base.subjects or not head.subjects:
        return ()
    old, new = tightest(base).deployment, tightest(head).deployment
    found = []
    if old.version.value != new.version.value:
        version = new.version
        found.append(_change("version", old.version.value, version.value, version.source))
    if old.model_ref and new.model_ref and old.model_ref.value != new.model_ref.value:
        ref = new.model_ref
        found.append(_change("model", old.model_ref.value, ref.value, ref.source))
    for field in fields(new.settings):
        before = getattr(old.settings, field.name, None)
        after = getattr(new.settings, field.name)
        if (
            isinstance(after, Setting)
            and isinstance(before, Setting)
            and before.value != after.value
        ):
            found.append(_change(field.name, before.value, after.value, after.source))
    return tuple(found)


def _change(name: str, old: object, new: object, source: str) -> SettingChange:
    return SettingChange(name=name, old=_text(old), new=_text(new), source=source)


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def change_words(base: Server, head: Server) -> tuple[str, ...]:
    """What was changed, a line each: GPUs, then settings with the place of their new value."""
    old, new = figures_of(base), figures_of(head)
    words = []
    if old and new and old.gpus != new.gpus:
        words.append(f"GPUs {old.gpus} -> {new.gpus}")
    words += [f"{c.name} {c.old} -> {c.new} ({c.source})" for c in setting_changes(base, head)]
    return tuple(words)


def attach_base(head: Server, base: Server, ref: str) -> None:
    """Let the invariants about changes see the base."""
    old, new = figures_of(base), figures_of(head)
    if old is None or new is None:
        return
    found = Base(
        ref=ref,
        limits=head.policy.guard.change,
        needed_bytes=old.needed_bytes,
        head_needed_bytes=new.needed_bytes,
        requests_at_once=old.requests_at_once,
        head_requests_at_once=new.requests_at_once,
        words=change_words(base, head),
    )
    for subject in head.subjects:
        subject.base = found


def change_facts(head: Server, base: Server | None, ref: str) -> dict[str, Any]:
    """Before and after as plain data; ``status`` is ``new``, ``same`` or ``changed``."""
    new = figures_of(head)
    old = figures_of(base) if base is not None else None
    changed = setting_changes(base, head) if base is not None else ()
    status = "new" if base is None else "same" if old == new and not changed else "changed"
    return {
        "ref": ref,
        "status": status,
        "base": asdict(old) if old else None,
        "head": asdict(new) if new else None,
        "settings": [asdict(c) for c in changed],
    }
