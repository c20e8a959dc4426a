"""What speculative decoding asks of its settings, and a draft model of its target.

The rules of draft models were read in the wheels of 0.10.0 to 0.33.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.speculative import DRAFT_MODEL, read_speculative
from pytest_llmserve.runtimes.vllm.versions import at_least, short

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case, Rule

_SPEC: Final = ("speculative_config", "spec_tokens", "spec_method", "spec_model")


def _tokens(case: Case) -> Refusal | None:
    spec = read_speculative(case.args)
    if not spec.is_used:
        return None
    tokens, method = spec.config.get("num_speculative_tokens"), spec.method.value
    if tokens is None:
        if method in ("ngram", "eagle", "eagle3", "draft_model", "medusa"):
            says = "num_speculative_tokens must be provided"
            headline = f"no number of speculative tokens for {method}"
            expected = '"num_speculative_tokens": N'
            is_certain = method == "ngram"  # a draft's own config may say how many
            return case.refuse(
                "other", headline, says, expected=expected, at=_SPEC, is_certain=is_certain
            )
        return None
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
    if is_count:
        return None
    says = "Expected num_speculative_tokens to be greater than zero"
    headline = f"{tokens} speculative tokens"
    return case.refuse("other", headline, says, expected="1 or more", at=_SPEC)


def _keys(case: Case) -> Refusal | None:
    config = read_speculative(case.args).config
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        says = f"prompt_lookup_min={low} cannot be larger than prompt_lookup_max={high}."
        headline = f"{low} as prompt_lookup_min, {high} as prompt_lookup_max"
        return case.refuse("other", headline, says, expected=f"at most {high}", at=_SPEC)
    if "tensor_parallel_size" in config:
        says = "'tensor_parallel_size' is not a valid argument in the speculative_config."
        headline = "`tensor_parallel_size` is no key of --speculative-config"
        expected = "draft_tensor_parallel_size"
        return case.refuse("other", headline, says, expected=expected, at=_SPEC)
    draft = config.get("draft_tensor_parallel_size")
    if isinstance(draft, int) and draft not in (1, case.tp):
        says = f"speculative_draft_tensor_parallel_size={draft} cannot be other value than 1 or"
        headline = f"{draft} tensor ranks for the draft, {case.tp} for the model"
        return case.refuse("other", headline, says, expected=f"1 or {case.tp}", at=_SPEC)
    return None


def _no_draft_models_yet(case: Case) -> Refusal | None:
    """From 0.10, without its old engine, to 0.14: heads and n-grams only."""
    spec = read_speculative(case.args)
    is_between = at_least(case.version, "0.10") and not at_least(case.version, "0.15")
    if not is_between or spec.method.value != DRAFT_MODEL:
        return None
    is_stated = "method" in spec.config
    says = (
        "Draft model speculative decoding is not supported yet."
        if is_stated and at_least(case.version, "0.11")
        else "Speculative decoding with draft model is not supported yet."
    )
    return case.refuse(
        "other",
        f"vllm {short(case.version)} does not draft with a model: new in 0.15",
        says,
        expected="vllm 0.15 or newer, or an EAGLE head",
        at=_SPEC,
        is_certain=is_stated or case.draft is not None,  # else a head may hide behind the name
    )


def _draft_vocabulary(case: Case) -> Refusal | None:
    spec = read_speculative(case.args)
    if spec.method.value != DRAFT_MODEL or not at_least(case.version, "0.15"):
        return None
    if case.model is None or case.draft is None:
        return None
    target, draft = case.model.vocab_size, case.draft.vocab_size
    can_differ = at_least(case.version, "0.25")
    if target == draft or (can_differ and spec.config.get("use_heterogeneous_vocab") is True):
        return None
    return case.refuse(
        "other",
        f"{draft:,} tokens in the draft's vocabulary, {target:,} in the model's",
        "Target and draft model should have the same vocabulary size. "
        f"Target model vocab_size={target}. Draft model vocab_size={draft}.",
        expected=f"a draft with vocab_size {target}"
        + (', or "use_heterogeneous_vocab": true' if can_differ else ""),
        at=_SPEC,
    )


def _draft_ranks(case: Case) -> Refusal | None:
    spec = read_speculative(case.args)
    ranks = spec.tensor_parallel_size
    if ranks != 1 or ranks == case.tp or spec.method.value != DRAFT_MODEL:
        return None
    if not at_least(case.version, "0.15"):
        return None
    return case.refuse(
        "other",
        f"{ranks} tensor rank for the draft model, {case.tp} for its target",
        "Currently, 'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same. "
        f"Got {ranks} and {case.tp}.",
        expected=f'"draft_tensor_parallel_size": {case.tp}',
        at=_SPEC,
        is_certain="method" in spec.config or case.draft is not None,
    )


RULES: Final[tuple[Rule, ...]] = (
    _tokens,
    _keys,
    _no_draft_models_yet,
    _draft_vocabulary,
    _draft_ranks,
)
