"""Every known reason for which vLLM stops with an error before it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.deployment import Refusal
from pytest_llmserve.runtimes.vllm.refusals import (
    context,
    dtype,
    gpus,
    other,
    parallelism,
    quantization,
    scheduler,
    speculation,
)
from pytest_llmserve.runtimes.vllm.refusals.case import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs
    from pytest_llmserve.runtimes.vllm.refusals.case import Rule
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

RULES: Final[tuple[Rule, ...]] = (
    *context.RULES,
    *parallelism.RULES,
    *gpus.RULES,
    *dtype.RULES,
    *quantization.RULES,
    *scheduler.RULES,
    *other.RULES,
    *speculation.RULES,
)


def refusals(
    settings: VllmSettings,
    args: ParsedArgs,
    *,
    version: Version,
    model: ModelSpec | None,
    gpu: GpuSpec | None,
    gpu_count: int | None,
    env: Mapping[str, str],
    draft: ModelSpec | None = None,
) -> tuple[Refusal, ...]:
    """What the server would stop with, the argument parser's own words first.

    An unknown (no model, no GPU, no count) refuses nothing: the rules that need it stay silent.

    Args:
        settings: what :func:`resolve_settings` made of ``args``.
        args: the parsed command line.
        version: whose rules apply.
        model: the model's shape, ``None`` where it is not understood.
        gpu: the device, ``None`` where it is not known.
        gpu_count: GPUs given to one instance, ``None`` where the files do not say.
        env: known environment variables of the server.
        draft: the model that the speculative settings name, ``None`` where it is not understood.
    """
    case = Case(
        settings=settings,
        args=args,
        version=version,
        model=model,
        gpu=gpu,
        gpu_count=gpu_count,
        env=env,
        draft=draft,
    )
    found = list(args.refusals)
    for rule in RULES:
        result = rule(case)
        if isinstance(result, Refusal):
            found.append(result)
        elif result is not None:
            found.extend(result)
    return tuple(found)
