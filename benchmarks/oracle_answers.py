"""Whether we refuse what vLLM refused, by the same rule, and resolve settings as it does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.vllm.deploy import VllmInputs
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

# Words of an error -> the rule that must refuse.
REASONS = (
    ("User-specified max_model_len", "context"),
    ("max_model_len must be a positive", "context"),
    ("argument parser refused", "flags"),
    ("is smaller than max_model_len", "scheduler"),
    ("greater than or equal to max_num_seqs", "scheduler"),
    ("Concurrent Partial Prefill", "scheduler"),
    ("Total number of attention heads", "parallelism"),
    ("is not divisible by", "parallelism"),
    ("does not support float16", "dtype"),
    ("is not supported for quantization method", "quantization"),
    ("is not supported for the current GPU", "quantization"),
    ("Unknown quantization method", "quantization"),
    ("The quantization method", "quantization"),
    ("are not supported for now", "other"),
    ("is not supported anymore", "other"),
    ("gpu_memory_utilization", "other"),
)
_SAME_WORDS = 20  # letters that are no coincidence
# Not vLLM's verdict on the settings: a fault of the stand-in or of its libraries.
NOT_A_REFUSAL = ("OSError", "uninitialized parameter", "KeyError", "does not have `num_attention")
# Raised by the worker after the settings were accepted: the stand-in has no worker.
WORKER_SAYS = ("Chunked MM input disabled", "Bfloat16 is only supported")


def rule_of(error: str) -> str | None:
    """The kind of rule that an error of vLLM's belongs to."""
    return next((rule for words, rule in REASONS if words in error), None)


def answer(point: dict[str, Any], inputs: VllmInputs) -> tuple[bool, bool, str]:
    """Whether both refuse or both build, whether by the same rule, and a line that says it."""
    refusals = inputs.deployment().refusals
    error = point.get("error")
    if error is None:
        found = [r for r in refusals if not r.server_says.startswith(WORKER_SAYS)]
        return not found, True, f"we refuse: {'; '.join(r.headline for r in found)}"
    rules = sorted({refusal.rule for refusal in refusals})
    said = error.splitlines()[-1 if "\n" in error else 0].strip()
    detail = f"ours {', '.join(rules) or 'nothing'}; vLLM {said[:140]!r}"
    is_same = rule_of(error) in rules or any(_is_said(r.server_says, error) for r in refusals)
    return bool(rules), is_same, detail


def _is_said(ours: str, error: str) -> bool:
    """Whether the error has the words that we say the server says, up to the first figure."""
    words = re.split(r"[\d({\[]", ours, maxsplit=1)[0].strip()
    return len(words) >= _SAME_WORDS and words in error


def differences(point: dict[str, Any], settings: VllmSettings) -> list[str]:
    """Settings that are not what vLLM resolved them to."""
    pairs = {
        "max_model_len": settings.max_model_len.value,
        "max_num_batched_tokens": settings.max_num_batched_tokens.value,
        "max_num_seqs": settings.max_num_seqs.value,
        "dtype": f"torch.{settings.dtype.value}",
        "kv_dtype": settings.kv_cache_dtype.value,
        "quantization": settings.quantization.value,
    }
    return [
        f"{name} {value!r}, vLLM {point[name]!r}"
        for name, value in pairs.items()
        if name in point and value != point[name]
    ]
