"""Loads, deployments of a runtime, and changes to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from hypothesis import strategies as st

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.strategies.drawn import Change, DrawnServer, DrawnWorkload, as_drawn
from pytest_llmserve.strategies.models import gpus, model_specs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_llmserve.policy import Workload

_UTILIZATIONS: Final = (0.9, 0.8, 0.85, 0.92, 0.95)
_KV_DTYPES: Final = ("auto", "fp8")
DEFAULT_VERSION: Final = "0.19.1"


def workloads(
    *,
    max_prompt_tokens: int = 8192,
    max_output_tokens: int = 2048,
    max_concurrency: int = 256,
    max_tokens: int | None = None,
) -> st.SearchStrategy[DrawnWorkload]:
    """Loads within an envelope; ``max_tokens`` bounds prompt and output together."""

    def within(load: Workload) -> bool:
        return max_tokens is None or load.tokens_per_request <= max_tokens

    return st.builds(
        DrawnWorkload,
        prompt_tokens=st.integers(1, max_prompt_tokens),
        output_tokens=st.integers(1, max_output_tokens),
        concurrency=st.integers(1, max_concurrency),
    ).filter(within)


@st.composite
def deployments(
    draw: st.DrawFn,
    *,
    models: st.SearchStrategy[Any] | Sequence[str] | None = None,
    parts: st.SearchStrategy[Any] | None = None,
    runtime: Literal["vllm"] = "vllm",
    versions: Sequence[str] = (DEFAULT_VERSION,),
) -> DrawnServer:
    """Servers of a runtime with the flags that most deployments set.

    Args:
        draw: given by Hypothesis.
        models: ids, or a strategy of ids or of ``ModelSpec``; by default :func:`model_specs`.
        parts: a strategy of ids or of ``GpuSpec``; by default :func:`gpus`.
        runtime: whose flags.
        versions: of the runtime.

    Raises:
        ValueError: a runtime whose flags are not known.
    """
    if runtime != "vllm":
        raise ValueError(f"unknown runtime {runtime!r}; valid: vllm")
    if models is None:
        models = model_specs()
    elif not isinstance(models, st.SearchStrategy):
        models = st.sampled_from(tuple(models))
    model, gpu = draw(models), draw(gpus() if parts is None else parts)
    flags = draw(_vllm_flags())
    server = LlmServe().server(model, gpu=gpu, version=draw(st.sampled_from(versions)), **flags)
    return as_drawn(server)


@st.composite
def _vllm_flags(draw: st.DrawFn) -> dict[str, Any]:
    """A few flags; what is left out keeps the runtime's default."""
    flags: dict[str, Any] = {"max_model_len": draw(st.integers(16, 131_072))}
    for name, values in _VLLM_VALUES.items():
        if draw(st.booleans()):
            flags[name] = draw(st.sampled_from(values))
    return flags


_VLLM_VALUES: Final[Mapping[str, tuple[object, ...]]] = {
    "tensor_parallel_size": (2, 4, 8),
    "max_num_seqs": (8, 64, 256),
    "gpu_memory_utilization": _UTILIZATIONS,
    "kv_cache_dtype": _KV_DTYPES,
    "enforce_eager": (True,),
}
_CHANGED: Final[Mapping[str, st.SearchStrategy[object]]] = {
    "max_model_len": st.integers(16, 262_144),
    "max_num_seqs": st.integers(1, 1024),
    "max_num_batched_tokens": st.sampled_from((2048, 4096, 8192, 16_384, 32_768)),
    "gpu_memory_utilization": st.sampled_from(_UTILIZATIONS),
    "tensor_parallel_size": st.sampled_from((1, 2, 4, 8)),
    "kv_cache_dtype": st.sampled_from(_KV_DTYPES),
    "enforce_eager": st.booleans(),
}


def changes(
    *,
    runtime: Literal["vllm"] = "vllm",
    flags: Sequence[str] = tuple(_CHANGED),
    is_allowed: Callable[[Change], bool] | None = None,
    max_flags: int = 3,
) -> st.SearchStrategy[Change]:
    """Changes as pull requests make them: one to ``max_flags`` flags with new values.

    Args:
        runtime: whose flags.
        flags: those that a change may touch.
        is_allowed: a team's review rule; changes that it refuses are not drawn.
        max_flags: of one change.

    Raises:
        ValueError: a runtime or a flag that is not known.
    """
    if runtime != "vllm":
        raise ValueError(f"unknown runtime {runtime!r}; valid: vllm")
    unknown = [name for name in flags if name not in _CHANGED]
    if unknown or not flags:
        named = repr(unknown[0]) if unknown else "none"
        raise ValueError(f"unknown flag {named}; valid: {', '.join(_CHANGED)}")
    found = (
        st.lists(st.sampled_from(tuple(flags)), min_size=1, max_size=max_flags, unique=True)
        .flatmap(lambda names: st.fixed_dictionaries({n: _CHANGED[n] for n in names}))
        .map(Change)
    )
    return found if is_allowed is None else found.filter(is_allowed)
