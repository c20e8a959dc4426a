"""Lengths that the model's config does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.limits import derive
from pytest_llmserve.runtimes.vllm.versions import at_least

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case, Rule

_AT: Final = ("max_model_len",)


def _positive(case: Case) -> Refusal | None:
    length = case.value("max_model_len")
    is_auto = length == -1 and at_least(case.version, "0.14")
    if not isinstance(length, int) or length >= 1 or is_auto:
        return None
    says = f"max_model_len must be a positive integer, got int: {length}."
    headline = f"{length} is no context length"
    return case.refuse("context", headline, says, expected="1 or more", at=_AT)


def _within_model(case: Case) -> Refusal | None:
    length, model = case.value("max_model_len"), case.model
    if not isinstance(length, int) or model is None or length < 1:
        return None
    derived = derive(model, case.args, case.version)
    if derived.limit is None or length <= derived.limit:
        return None
    if derived.model_max_length is not None and length <= derived.model_max_length:
        return None
    if case.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").strip().lower() in ("1", "true"):
        return None
    return case.refuse(
        "context",
        f"{length:,} tokens asked, the model allows {derived.limit:,} ({derived.key})",
        f"User-specified max_model_len ({length}) is greater than the derived max_model_len",
        expected=_expected(case, derived.limit),
        at=_AT,
    )


def _expected(case: Case, limit: int) -> str:
    text = f"--max-model-len {limit} or less"
    model = case.model
    if model is not None and model.limits.rope_type == "yarn" and at_least(case.version, "0.30"):
        text += "; since 0.30 a yarn factor no longer lengthens max_position_embeddings"
    return text


RULES: Final[tuple[Rule, ...]] = (_positive, _within_model)
