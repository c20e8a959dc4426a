"""Hypothesis strategies (extra ``hypothesis``): models, GPUs, deployments, workloads, changes.

What they draw prints as a person would write it, and shrinks to the smallest of its kind: fewer
layers, shorter contexts, one GPU, no flag that is not needed for the failure.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from hypothesis import strategies as st

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.hardware.catalogue import gpu_ids, load_gpu
from pytest_llmserve.hardware.spec import GpuSpec
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.spec import ModelSpec
from pytest_llmserve.policy import Workload
from pytest_llmserve.servers.server import Server
from pytest_llmserve.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


__all__ = [
    "FAMILIES",
    "Change",
    "DrawnGpu",
    "DrawnModel",
    "DrawnServer",
    "DrawnWorkload",
    "changes",
    "deployments",
    "gpus",
    "model_specs",
    "workloads",
]

_Drawn = TypeVar("_Drawn")
Attention = Literal["full", "sliding", "latent", "state"]
"""Whole contexts, windows, MLA's latent rows, recurrent states (each family has one or mixes)."""

FAMILIES: Final[Mapping[str, frozenset[Attention]]] = {
    "llama": frozenset({"full"}),
    "mistral": frozenset({"sliding"}),
    "gemma2": frozenset({"full", "sliding"}),
    "mixtral": frozenset({"full"}),
    "qwen3_moe": frozenset({"full"}),
    "deepseek_v2": frozenset({"latent"}),
    "qwen3_next": frozenset({"full", "state"}),
}
"""Families of models and the kinds of attention in their layers."""
MOE_FAMILIES: Final = frozenset({"mixtral", "qwen3_moe", "deepseek_v2", "qwen3_next"})
_ARCHITECTURES: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
}
_POWERS: Final = tuple(1 << bit for bit in range(8, 18))
_UTILIZATIONS: Final = (0.9, 0.8, 0.85, 0.92, 0.95)
_KV_DTYPES: Final = ("auto", "fp8")
DEFAULT_VERSION: Final = "0.19.1"


class DrawnModel(ModelSpec):
    """A :class:`ModelSpec` that prints in one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            f"<{self.model_type}: {self.num_layers} layers, hidden {self.hidden_size}, "
            f"{self.num_attention_heads} heads, {self.num_kv_heads} KV heads, "
            f"vocabulary {self.vocab_size}>"
        )


class DrawnGpu(GpuSpec):
    """A :class:`GpuSpec` that prints as its id."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self.id}>"


class DrawnWorkload(Workload):
    """A :class:`Workload` that prints as a person would say it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            f"<{self.concurrency:,} at once of {self.prompt_tokens:,} prompt + "
            f"{self.output_tokens:,} output tokens>"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class DrawnServer(Server):
    """A :class:`Server` that prints as the command that starts it."""

    command: str = ""

    def __repr__(self) -> str:
        return f"<{self.command}>"

    def changed(self, flags: Mapping[str, object]) -> DrawnServer:
        """The same server with other flags, on as many GPUs as it then needs."""
        subjects = []
        for subject in self.subjects:
            once = subject.changed(flags)
            count = once.deployment.settings.world_size
            subjects.append(Subject(subject.changed(flags, count).inputs, subject.facts))
        command = f"{self.command}, changed to {_words(flags)}"
        return replace(self, subjects=tuple(subjects), command=command)


@dataclass(frozen=True)
class Change:
    """A change to a deployment, as a pull request makes it: some flags with new values."""

    flags: Mapping[str, object]

    def __repr__(self) -> str:
        return f"<change: {_words(self.flags)}>"

    def apply(self, server: Server) -> DrawnServer:
        """The server after the change."""
        return _as_drawn(server).changed(self.flags)


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


def gpus(
    ids: Sequence[str] | None = None, *, vendor: str | None = "NVIDIA"
) -> st.SearchStrategy[DrawnGpu]:
    """Parts of the catalogue whose memory, bandwidth and peaks are known.

    Args:
        ids: only these; the first one is the simplest.
        vendor: only of this one; ``None``: of any.
    """
    chosen = tuple(ids) if ids is not None else _known_parts(vendor)
    return st.sampled_from(chosen).map(_gpu)


@cache
def _gpu(name: str) -> DrawnGpu:
    return _drawn(DrawnGpu, load_gpu(name))


@cache
def _known_parts(vendor: str | None) -> tuple[str, ...]:
    found = []
    for name in gpu_ids():
        gpu = load_gpu(name)
        is_known = gpu.memory_total_bytes and gpu.hbm_bytes_per_s and gpu.dense_flops_per_s
        if is_known and vendor in (None, gpu.vendor):
            found.append(name)
    # the usual one first: examples shrink towards it
    return tuple(sorted(found, key=lambda name: (name != "h100-sxm-80gb", name)))


def model_specs(
    *,
    families: Sequence[str] = tuple(FAMILIES),
    attention: Attention | None = None,
    max_layers: int = 48,
) -> st.SearchStrategy[DrawnModel]:
    """Models, read from a ``config.json`` of their family, from tiny ones upwards.

    Args:
        families: names from :data:`FAMILIES`.
        attention: only families all of whose layers are of this kind.
        max_layers: of the deepest.

    Raises:
        ValueError: a family that is not known, or none that has this attention.
    """
    unknown = [name for name in families if name not in FAMILIES]
    if unknown:
        raise ValueError(f"unknown family {unknown[0]!r}; valid: {', '.join(FAMILIES)}")
    chosen = [n for n in families if attention is None or FAMILIES[n] == {attention}]
    if not chosen:
        raise ValueError(f"none of {', '.join(families)} has only {attention} attention")
    return st.sampled_from(chosen).flatmap(lambda name: _configs(name, max_layers)).map(_read)


@st.composite
def _configs(draw: st.DrawFn, family: str, max_layers: int) -> dict[str, Any]:
    kv_heads = draw(st.sampled_from((1, 2, 4, 8)))
    heads = kv_heads * draw(st.sampled_from((1, 2, 4, 8)))
    head_dim = draw(st.sampled_from((64, 128, 256)))
    config: dict[str, Any] = {
        "architectures": [_ARCHITECTURES[family]],
        "model_type": family,
        "num_hidden_layers": draw(st.integers(1, max_layers)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_size": heads * head_dim,
        "intermediate_size": 64 * draw(st.integers(2, 256)),
        "vocab_size": 64 * draw(st.integers(8, 2048)),
        "max_position_embeddings": draw(st.sampled_from(_POWERS)),
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    if "sliding" in FAMILIES[family]:
        config["sliding_window"] = draw(st.sampled_from((256, 1024, 4096)))
    if family in MOE_FAMILIES:
        config |= _experts(draw)
    if family == "deepseek_v2":
        config |= {
            "kv_lora_rank": draw(st.sampled_from((64, 256, 512))),
            "q_lora_rank": None,
            "qk_nope_head_dim": 64,
            "qk_rope_head_dim": draw(st.sampled_from((16, 64))),
            "v_head_dim": 64,
            "num_key_value_heads": heads,
        }
    if family == "qwen3_next":
        config |= {
            "num_hidden_layers": 4 * max(1, config["num_hidden_layers"] // 4),
            "full_attention_interval": 4,
            "linear_num_key_heads": kv_heads,
            "linear_num_value_heads": 2 * kv_heads,
            "linear_key_head_dim": 64,
            "linear_value_head_dim": 64,
            "linear_conv_kernel_dim": 4,
        }
    return config


def _experts(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.sampled_from((4, 8, 64)))
    width = 64 * draw(st.integers(1, 16))
    return {
        "num_local_experts": count,
        "num_experts": count,
        "n_routed_experts": count,
        "num_experts_per_tok": draw(st.integers(1, 4)),
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": width,
        "n_shared_experts": 1,
        "first_k_dense_replace": 0,
        "moe_layer_freq": 1,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _read(config: dict[str, Any]) -> DrawnModel:
    name = f"drawn/{config['model_type']}"
    spec = read_config(config, model_id=name, source=f"strategies, {name}")
    return _drawn(DrawnModel, spec)


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
    return _as_drawn(server)


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


def _as_drawn(server: Server) -> DrawnServer:
    if isinstance(server, DrawnServer):
        return server
    return _drawn(DrawnServer, server, command=_command(server))


def _drawn(kind: Callable[..., _Drawn], base: Any, **more: Any) -> _Drawn:
    """The same values as another kind of record."""
    return kind(**{field.name: getattr(base, field.name) for field in fields(base)}, **more)


def _command(server: Server) -> str:
    """``vllm serve llama --max-model-len 4096 (1 x h100-sxm-80gb, vllm 0.19.1)``."""
    deployment = server.subjects[0].deployment
    settings, model = deployment.settings, deployment.model
    name = repr(model) if isinstance(model, DrawnModel) else getattr(model, "id", "")
    stated = {
        field.name: setting.value
        for field in fields(settings)
        if getattr(setting := getattr(settings, field.name), "is_stated", False)
    }
    gpu = deployment.gpu.id if deployment.gpu else "an unknown GPU"
    return (
        f"vllm serve {name} {_words(stated)} "
        f"({settings.world_size} x {gpu}, vllm {deployment.version.value})"
    )


def _words(flags: Mapping[str, object]) -> str:
    """``--max-model-len 4096 --no-enforce-eager``."""
    return " ".join(_word(name.replace("_", "-"), value) for name, value in flags.items())


def _word(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"
