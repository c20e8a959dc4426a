"""LLM201 to LLM208: the runtime does not refuse these settings, one invariant a kind of rule."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_llmserve.invariants.base import Invariant, cannot_tell, failed, passed
from pytest_llmserve.subject import UNMODELLED_KEYS
from pytest_llmserve.verdict import Certainty, ProblemKind, Verdict

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import RefusalRule
    from pytest_llmserve.subject import Subject


_BY_VERSION: Final = ("flags", "quantization")
"""Rules that change from version to version: not certain while the version is assumed."""


def refused(subject: Subject, rule: RefusalRule) -> Verdict | None:
    """The failure of this kind of rule, the first one first; ``None`` if there is none."""
    found = [r for r in subject.deployment.refusals if r.rule == rule]
    if not found:
        return None
    first, *others = found
    details = [f"the server says: {first.server_says}"]
    if first.expected:
        details.append(f"expected: {first.expected}")
    details += [f"also: {other.headline}" for other in others]
    certain = any(r.is_certain for r in found)
    if subject.deployment.is_version_assumed and rule in _BY_VERSION:
        certain = False
        details.append("the version is assumed, not stated: another one may take this")
    return failed(
        first.headline,
        Certainty.CERTAIN if certain else Certainty.LIKELY,
        details=tuple(details),
        location=first.location,
    )


def _check(subject: Subject, *, rule: RefusalRule, holds: str) -> Verdict:
    failure = refused(subject, rule)
    return passed(holds) if failure is None else failure


def _check_parallelism(subject: Subject) -> Verdict:
    settings = subject.deployment.settings
    tensor, pipeline = settings.tensor_parallel_size.value, settings.pipeline_parallel_size.value
    return _check(subject, rule="parallelism", holds=f"TP {tensor} x PP {pipeline} fits the model")


def _check_context(subject: Subject) -> Verdict:
    length = subject.deployment.settings.max_model_len.value
    if length is None:
        return cannot_tell("cannot tell: the config states no context length")
    holds = f"{length:,} tokens are within the model's limit"
    return _check(subject, rule="context", holds=holds)


def _check_gpus(subject: Subject) -> Verdict:
    deployment = subject.deployment
    world = deployment.settings.world_size
    if (failure := refused(subject, "gpus")) is not None:
        return failure
    if deployment.gpu_count is None:
        return cannot_tell(
            f"cannot tell: the number of GPUs is not stated, TP x PP x DP needs {world}",
            details=("declare gpu_count for this server in the policy",),
        )
    count = deployment.gpu_count
    if world < count.value:
        tensor = deployment.settings.tensor_parallel_size
        return failed(
            f"{count.value - world} of {count.value} GPUs stay idle: TP x PP x DP uses {world}",
            details=(f"{count.value} GPUs from {count.source}",),
            location=tensor.location or count.location,
        )
    return passed(f"{world} GPUs are asked for and used")


def _check_flags(subject: Subject) -> Verdict:
    if (failure := refused(subject, "flags")) is not None:
        return failure
    unknown = [
        p
        for p in subject.deployment.problems
        if p.kind is ProblemKind.UNKNOWN
        and (p.key in UNMODELLED_KEYS or (p.key or "").startswith("-"))
    ]
    if unknown:
        return cannot_tell(
            f"cannot tell: {unknown[0].message}"[:100],
            details=tuple(f"{p.location}: {p.message}" for p in unknown),
            location=unknown[0].location,
        )
    return passed(f"every flag is known to vllm {subject.deployment.version.value}")


_MODEL = ("resolved", "model-known")
_BOTH = ("resolved", "model-known", "gpu-known")

INVARIANTS = (
    Invariant(
        id="LLM201",
        name="parallelism-valid",
        title="the model's heads, widths and layers divide by TP and PP",
        check=_check_parallelism,
        needs=_MODEL,
    ),
    Invariant(
        id="LLM202",
        name="gpus-match-parallelism",
        title="the GPUs given are the GPUs that TP x PP x DP uses",
        check=_check_gpus,
        needs=("resolved",),
    ),
    Invariant(
        id="LLM203",
        name="context-within-model",
        title="max_model_len is within what the model was made for",
        check=_check_context,
        needs=_MODEL,
    ),
    Invariant(
        id="LLM204",
        name="dtype-supported",
        title="the GPU computes in the dtype and caches in the KV dtype asked for",
        check=partial(_check, rule="dtype", holds="the GPU supports the dtypes asked for"),
        needs=_BOTH,
    ),
    Invariant(
        id="LLM205",
        name="quantization-supported",
        title="this version runs the checkpoint's quantisation on this GPU",
        check=partial(_check, rule="quantization", holds="the quantisation runs on this GPU"),
        needs=_BOTH,
    ),
    Invariant(
        id="LLM206",
        name="scheduler-valid",
        title="batch limits agree with each other and with the context",
        check=partial(_check, rule="scheduler", holds="the scheduler's limits agree"),
        needs=("resolved",),
    ),
    Invariant(
        id="LLM207",
        name="flags-known-to-version",
        title="every flag exists in the stated version and has a valid value",
        check=_check_flags,
    ),
    Invariant(
        id="LLM208",
        name="settings-valid",
        title="no other setting makes the runtime refuse to start",
        check=partial(_check, rule="other", holds="no other rule refuses these settings"),
        needs=("resolved",),
    ),
)
