"""Scheduler settings that contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.batching import PREFIX_LM_ITEM_TOKENS
from pytest_llmserve.runtimes.vllm.traits import longest_encoder_input
from pytest_llmserve.runtimes.vllm.versions import at_least, short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case, Rule

_BATCH: Final = ("max_num_batched_tokens", "max_num_seqs", "max_model_len")


def _positive(case: Case) -> Iterator[Refusal]:
    for dest in ("max_num_batched_tokens", "max_num_seqs"):
        value = case.value(dest)
        if isinstance(value, int) and value < 1:
            says = "Input should be greater than or equal to 1"
            headline = f"{value} is no value for --{dest.replace('_', '-')}"
            yield case.refuse("scheduler", headline, says, expected="1 or more", at=(dest,))


def _whole_prompt(case: Case) -> Refusal | None:
    """Without chunked prefill a whole prompt has to fit in one step."""
    settings = case.settings
    length, tokens = settings.max_model_len.value, settings.max_num_batched_tokens.value
    if settings.enable_chunked_prefill.value or length is None or tokens >= length:
        return None
    return case.refuse(
        "scheduler",
        f"{tokens:,} tokens a step are fewer than max_model_len {length:,}, chunked prefill is off",
        f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length}).",
        expected=f"--max-num-batched-tokens {length} or more, or chunked prefill",
        at=_BATCH,
    )


def _token_a_sequence(case: Case) -> Refusal | None:
    settings = case.settings
    tokens, seqs = settings.max_num_batched_tokens.value, settings.max_num_seqs.value
    if tokens >= seqs:
        return None
    return case.refuse(
        "scheduler",
        f"{tokens:,} tokens a step are fewer than {seqs:,} sequences",
        f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs "
        f"({seqs}).",
        expected=f"--max-num-batched-tokens {seqs} or more",
        at=_BATCH,
    )


def _active(case: Case) -> Refusal | None:
    active, seqs = case.value("max_num_active_seqs"), case.settings.max_num_seqs.value
    if not isinstance(active, int) or active <= seqs:
        return None
    says = f"max_num_active_seqs ({active}) cannot be greater than max_num_seqs ({seqs})."
    headline = f"{active:,} active sequences of {seqs:,} in all"
    expected = f"at most {seqs}"
    at = ("max_num_active_seqs",)
    return case.refuse("scheduler", headline, says, expected=expected, at=at)


def _long_prefill(case: Case) -> Refusal | None:
    threshold, length = case.value("long_prefill_token_threshold"), case.settings.max_model_len
    if not isinstance(threshold, int) or length.value is None or threshold <= length.value:
        return None
    if not at_least(case.version, "0.27"):  # older ones look at it only with partial prefills
        return None
    return case.refuse(
        "scheduler",
        f"{threshold:,} tokens as long-prefill threshold, max_model_len is {length.value:,}",
        f"long_prefill_token_threshold ({threshold}) cannot be greater than the max_model_len",
        expected=f"at most {length.value}",
        at=("long_prefill_token_threshold",),
    )


def _partial_prefills(case: Case) -> Refusal | None:
    """The V1 engine never had them; before 0.11 the flag chose the old engine."""
    count = case.value("max_num_partial_prefills")
    if not isinstance(count, int) or count == 1 or not at_least(case.version, "0.11"):
        return None
    return case.refuse(
        "scheduler",
        f"{count} partial prefills at once: not supported by vllm {short(case.version)}",
        "Concurrent Partial Prefill is not supported.",
        expected="no --max-num-partial-prefills",
        at=("max_num_partial_prefills",),
    )


def _whole_image(case: Case) -> Refusal | None:
    """Bidirectional image attention: an image is never split over steps."""
    model, settings = case.model, case.settings
    if model is None or settings.language_model_only.value:
        return None
    if case.value("limit_mm_per_prompt") is not None:
        return None  # which modality is the largest then is not known
    item = PREFIX_LM_ITEM_TOKENS.get(model.architecture, 0)
    tokens = case.value("max_num_batched_tokens")
    if not isinstance(tokens, int) or tokens >= item:
        return None
    return case.refuse(
        "scheduler",
        f"{tokens:,} tokens a step, an image of {model.id} takes {item:,} and is not split",
        f"Chunked MM input disabled but max_tokens_per_mm_item ({item}) is larger than "
        f"max_num_batched_tokens ({tokens}).",
        expected=f"--max-num-batched-tokens {item} or more, or --language-model-only",
        at=_BATCH,
        is_certain=False,  # raised by the worker: read, not run
    )


def _whole_audio(case: Case) -> Refusal | None:
    """An encoder-decoder takes what its encoder sees in one step (0.10.2 to 0.33, read)."""
    model, tokens = case.model, case.settings.max_num_batched_tokens.value
    longest = 0 if model is None else longest_encoder_input(model)
    if model is None or not longest or tokens >= longest:
        return None
    return case.refuse(
        "scheduler",
        f"{tokens:,} tokens a step, an input of {model.id} takes {longest:,} and is not split",
        f"Chunked MM input disabled but max_tokens_per_mm_item ({longest}) is larger than "
        f"max_num_batched_tokens ({tokens}).",
        expected=f"--max-num-batched-tokens {longest} or more",
        at=_BATCH,
        is_certain=False,  # read, not run
    )


def _async_stages(case: Case) -> Refusal | None:
    stages = case.settings.pipeline_parallel_size.value
    if not case.value("async_scheduling") or stages < 2:
        return None
    if not at_least(case.version, "0.10") or at_least(case.version, "0.15"):
        return None
    return case.refuse(
        "scheduler",
        f"{stages} pipeline stages with --async-scheduling",
        "Async scheduling is not yet compatible with pipeline_parallel_size > 1.",
        expected="no --async-scheduling",
        at=("async_scheduling",),
    )


RULES: Final[tuple[Rule, ...]] = (
    _positive,
    _whole_prompt,
    _token_a_sequence,
    _active,
    _long_prefill,
    _partial_prefills,
    _whole_image,
    _whole_audio,
    _async_stages,
)
