"""What a command line asks for that this package has no rules for: never guessed, always said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.limits import UNDERSTOOD_OVERRIDES
from pytest_llmserve.runtimes.vllm.speculative import read_speculative
from pytest_llmserve.runtimes.vllm.traits import attention_type
from pytest_llmserve.runtimes.vllm.versions import (
    NEWEST_KNOWN,
    OLDEST_KNOWN,
    at_least,
    is_known,
    short,
)
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs
    from pytest_llmserve.verdict import Location

VERSION_KEY: Final = "version"
"""What a problem is about when it is the version whose rules are not known."""
# Flags that made 0.8.5 to 0.10 fall back to the old engine (V0) when not at their default.
_OLD_ENGINE_FLAGS: Final = {
    "disable_async_output_proc": False,
    "enable_prompt_adapter": False,
    "max_num_partial_prefills": 1,
    "num_scheduler_steps": 1,
    "preemption_mode": None,
    "scheduler_delay_factor": 0.0,
}
_NEW_DRAFTING: Final = ("ngram", "eagle", "eagle3", "medusa", "deepseek_mtp")
_FLASH_ATTENTION_3: Final = 90


def unread_words(args: ParsedArgs, version: Version, location: Location) -> tuple[Problem, ...]:
    """What of the command line itself has no rules here: its version, its config overrides."""
    found = []
    if not is_known(version):
        is_old = version.release < OLDEST_KNOWN.release
        known = f"{short(OLDEST_KNOWN)} to {short(NEWEST_KNOWN)}"
        message = (
            f"vllm {short(version)} is outside of the versions with known rules ({known}): "
            f"those of {short(OLDEST_KNOWN if is_old else NEWEST_KNOWN)} are applied"
        )
        # Older ones ran another engine; newer ones are most likely what the newest is.
        kind = ProblemKind.UNKNOWN if is_old else ProblemKind.WARNING
        found.append(Problem(kind, message, location, key=VERSION_KEY, expected=known))
    return (*found, *_overrides(args, location))


def unmodelled(
    args: ParsedArgs,
    *,
    version: Version,
    model: ModelSpec | None,
    gpu: GpuSpec | None,
    env: Mapping[str, str],
    location: Location,
) -> tuple[Problem, ...]:
    """Whether this version would run its old engine (V0, until 0.10), as *unknown* problems.

    Args:
        args: the parsed command line.
        version: the version whose rules are asked for.
        model: the model, where it is understood.
        gpu: the device, where it is known.
        env: known environment variables of the server.
        location: where the server stands.
    """
    return tuple(
        Problem(
            ProblemKind.UNKNOWN,
            f"vllm {short(version)} runs its old engine (V0) here, not modelled: {reason}",
            location,
            key=VERSION_KEY,
            expected="vllm 0.11 or newer, which has one engine",
        )
        for reason in _old_engine(args, version, model, gpu, env)
    )


def _old_engine(
    args: ParsedArgs,
    version: Version,
    model: ModelSpec | None,
    gpu: GpuSpec | None,
    env: Mapping[str, str],
) -> Iterator[str]:
    if at_least(version, "0.11"):
        return
    if env.get("VLLM_USE_V1") == "0":
        yield "VLLM_USE_V1=0"
    is_nvidia = gpu is not None and gpu.vendor.lower() == "nvidia"
    capability = gpu.capability if gpu is not None and is_nvidia else None
    if capability is not None and capability < 80:
        yield f"compute capability {capability / 10:.1f}"
    kind = args.stated.get("kv_cache_dtype")
    is_quantised = kind is not None and kind.value != "auto"
    if is_quantised and capability is not None and capability // 10 != _FLASH_ATTENTION_3 // 10:
        yield "a quantised KV cache without FlashAttention 3"
    layers = "decoder" if model is None else attention_type(model)
    if layers in ("hybrid", "attention_free") and not at_least(version, "0.10"):
        yield "a model with recurrent state"
    if layers == "encoder_decoder" and not at_least(version, "0.10.2"):
        yield "a model with an encoder and a decoder"
    if not at_least(version, "0.10") and _needs_old_drafting(args, version):
        yield "its way of speculative decoding"
    for dest, default in _OLD_ENGINE_FLAGS.items():
        stated = args.stated.get(dest)
        if stated is not None and stated.value != default:
            yield stated.flag


def _needs_old_drafting(args: ParsedArgs, version: Version) -> bool:
    """The new engine took few methods, and only by name (wheels of 0.8.5, 0.9.0 to 0.9.2)."""
    spec = read_speculative(args)
    method = spec.method.value if "method" in spec.config or spec.model is None else None
    known = _NEW_DRAFTING if at_least(version, "0.9") else _NEW_DRAFTING[:3]
    return spec.is_used and method not in known


def _overrides(args: ParsedArgs, location: Location) -> Iterator[Problem]:
    stated = args.stated.get("hf_overrides")
    if stated is None:
        return
    if not isinstance(stated.value, dict):
        keys = [str(stated.value)]
    else:
        changes = dict(stated.value)
        inner = changes.pop("text_config", {})
        changes.update(inner if isinstance(inner, dict) else {})
        keys = sorted(key for key in changes if key not in UNDERSTOOD_OVERRIDES)
    for key in keys:
        yield Problem(
            ProblemKind.UNKNOWN,
            f"--hf-overrides changes `{key}` of the model's config: not modelled",
            stated.location or location,
            key="--hf-overrides",
            value=key,
            expected="lengths and rope settings only, or a config.json with the change in it",
        )
