"""``resolve_settings``: what the flags leave open, filled in as the stated version does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.runtimes.vllm.batching import BatchInputs, resolve_batch
from pytest_llmserve.runtimes.vllm.dtypes import SPELLINGS, auto_dtype, checkpoint_kv_dtype
from pytest_llmserve.runtimes.vllm.hybrid_manager import connectors_of
from pytest_llmserve.runtimes.vllm.limits import Derived, derive
from pytest_llmserve.runtimes.vllm.quant_methods import effective, method_of
from pytest_llmserve.runtimes.vllm.settings import VllmSettings
from pytest_llmserve.runtimes.vllm.speculative import read_speculative
from pytest_llmserve.runtimes.vllm.traits import (
    attention_type,
    is_moe,
    is_pooling,
    is_text_only_by_limits,
)
from pytest_llmserve.runtimes.vllm.unplanned import unplanned
from pytest_llmserve.runtimes.vllm.versions import at_least, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Reader:
    """Stated values as settings, or a default with its source."""

    args: ParsedArgs
    version: Version

    def default_source(self) -> str:
        return f"vllm {short(self.version)} default"

    def get(self, dest: str, default: Any, source: str = "") -> Setting[Any]:
        found = self.args.stated.get(dest)
        if found is None:
            return Setting(default, source or self.default_source())
        return Setting(found.value, found.source, found.location)

    def value(self, dest: str) -> Any:
        found = self.args.stated.get(dest)
        return None if found is None else found.value


def resolve_settings(
    args: ParsedArgs,
    *,
    version: Version,
    model: ModelSpec | None,
    gpu: GpuSpec | None,
    env: Mapping[str, str],
) -> VllmSettings:
    """Every setting after defaults, each with where it came from.

    Args:
        args: what the command line states.
        version: whose defaults apply.
        model: ``None`` where it is not understood: what hangs on it is ``None`` then.
        gpu: ``None`` where it is not known: device-dependent defaults are those of a small GPU.
        env: known environment variables of the server.
    """
    read = _Reader(args, version)
    derived = derive(model, args, version) if model is not None else None
    length, is_auto = _max_model_len(read, derived)
    chunked = _chunked_prefill(read, model)
    text_only = _language_model_only(read, model)
    expert_parallel = read.get("enable_expert_parallel", default=False)
    tokens, seqs = _batch_limits(
        read,
        gpu=gpu,
        model=model,
        max_model_len=length.value,
        has_chunked_prefill=chunked.value,
        all2all_backend=read.value("all2all_backend") or env.get("VLLM_ALL2ALL_BACKEND"),
        has_expert_parallel=expert_parallel.value,
        is_text_only=text_only.value,
    )
    eager = read.get("enforce_eager", default=False)
    spec = read_speculative(args)
    return VllmSettings(
        tensor_parallel_size=read.get("tensor_parallel_size", 1),
        pipeline_parallel_size=read.get("pipeline_parallel_size", 1),
        data_parallel_size=_data_parallel(read),
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        dtype=_dtype(read, model, gpu),
        kv_cache_dtype=_kv_cache_dtype(read, model),
        quantization=_quantization(read, model, gpu),
        gpu_memory_utilization=read.get(
            "gpu_memory_utilization", 0.92 if at_least(version, "0.20") else 0.9
        ),
        kv_cache_memory_bytes=read.get("kv_cache_memory_bytes", None),
        num_gpu_blocks_override=read.get("num_gpu_blocks_override", None),
        block_size=read.get("block_size", None),
        enable_prefix_caching=_prefix_caching(read, model),
        enable_chunked_prefill=chunked,
        enforce_eager=eager,
        has_cuda_graphs=not eager.value and not _turns_graphs_off(read),
        async_scheduling=_async_scheduling(read, model, env, spec.method.value),
        disable_hybrid_kv_cache_manager=read.get("disable_hybrid_kv_cache_manager", default=False),
        enable_expert_parallel=expert_parallel,
        decode_context_parallel_size=read.get("decode_context_parallel_size", 1),
        prefill_context_parallel_size=read.get("prefill_context_parallel_size", 1),
        cpu_offload_gib=read.get("cpu_offload_gb", 0.0),
        is_auto_max_model_len=is_auto,
        derived_max_model_len=derived.limit if derived else None,
        language_model_only=text_only,
        num_speculative_tokens=spec.num_tokens,
        speculative_method=spec.method,
        enable_lora=read.get("enable_lora", default=False),
        max_loras=read.get("max_loras", 1),
        max_lora_rank=read.get("max_lora_rank", 16),
        attention_backend=_attention_backend(read, env),
        env=dict(env),
        mamba_cache_dtype=read.get("mamba_cache_dtype", "auto").value,
        mamba_ssm_cache_dtype=read.get("mamba_ssm_cache_dtype", "auto").value,
        mm_encoder_tp_mode=_encoder_mode(read),
        fully_sharded_loras=read.get("fully_sharded_loras", default=False).value,
        kv_connectors=connectors_of(read.value("kv_transfer_config")),
        draft_model=spec.model,
        draft_tensor_parallel_size=spec.tensor_parallel_size,
        unplanned=unplanned(args, model),
        num_redundant_experts=_redundant_experts(read),
        kv_skip_layers=tuple(read.value("kv_cache_dtype_skip_layers") or ()),
        mm_ipc_gib=read.get("mm_ipc_gpu_memory_gb", 0.0).value,
    )


def _batch_limits(read: _Reader, **known: Any) -> tuple[Setting[Any], Setting[Any]]:
    """Tokens and sequences of a step; ``known``: the rest of :class:`BatchInputs`."""
    tokens, why_tokens, seqs, why_seqs = resolve_batch(
        BatchInputs(
            version=read.version,
            tokens=read.value("max_num_batched_tokens"),
            seqs=read.value("max_num_seqs"),
            is_throughput_mode=read.value("performance_mode") == "throughput",
            data_parallel_size=_data_parallel(read).value,
            **known,
        )
    )
    return (
        read.get("max_num_batched_tokens", tokens, why_tokens),
        read.get("max_num_seqs", seqs, why_seqs),
    )


def _max_model_len(read: _Reader, derived: Derived | None) -> tuple[Setting[int | None], bool]:
    stated = read.args.stated.get("max_model_len")
    takes_auto = at_least(read.version, "0.14")
    if stated is not None and not (stated.value == -1 and takes_auto):
        return read.get("max_model_len", None), False
    if "max_model_len" in read.args.unresolved:
        return Setting(None, "not known"), False
    value = derived.default if derived else None
    if stated is not None:
        return Setting(value, stated.source, stated.location), True
    return Setting(value, "config.json" if derived else "not known"), False


def _data_parallel(read: _Reader) -> Setting[int]:
    return read.get("data_parallel_size", 1)


def _chunked_prefill(read: _Reader, model: ModelSpec | None) -> Setting[bool]:
    if model is not None and attention_type(model) == "encoder_decoder":
        # whatever the flag says (0.10.2 to 0.33, read)
        return Setting(value=False, source=f"{read.default_source()} for encoder-decoder models")
    is_forced = not at_least(read.version, "0.11.1") and not is_pooling(read.args)
    if is_forced:  # the V1 engine set it whatever the flag said
        return Setting(value=True, source=read.default_source())
    return read.get("enable_chunked_prefill", default=True)


def _prefix_caching(read: _Reader, model: ModelSpec | None) -> Setting[bool]:
    default = True
    source = read.default_source()
    kind = attention_type(model) if model is not None else "decoder"
    if kind == "hybrid" and not at_least(read.version, "0.28"):
        default, source = False, f"{source} for hybrid models"
    elif kind == "attention_free":
        default, source = False, f"{source} for models without attention"
    elif kind == "encoder_decoder":
        default, source = False, f"{source} for encoder-decoder models"
        if not at_least(read.version, "0.13"):  # switched off whatever the flag said
            return Setting(value=False, source=source)
    return read.get("enable_prefix_caching", default, source)


def _language_model_only(read: _Reader, model: ModelSpec | None) -> Setting[bool]:
    if "language_model_only" not in read.args.stated and is_text_only_by_limits(read.args, model):
        limits = read.args.stated["limit_mm_per_prompt"]
        return Setting(value=True, source=limits.source, location=limits.location)
    return read.get("language_model_only", default=False)


def _dtype(read: _Reader, model: ModelSpec | None, gpu: GpuSpec | None) -> Setting[str | None]:
    stated = read.args.stated.get("dtype")
    if stated is not None and stated.value != "auto":
        word = str(stated.value).lower()
        return Setting(SPELLINGS.get(word, word), stated.source, stated.location)
    if "dtype" in read.args.unresolved or model is None:
        return Setting(None, "not known")
    value, why = auto_dtype(model, gpu, read.version, is_pooling=is_pooling(read.args))
    return Setting(value, why)


def _kv_cache_dtype(read: _Reader, model: ModelSpec | None) -> Setting[str]:
    stated = read.get("kv_cache_dtype", "auto")
    if stated.value != "auto" or model is None:
        return stated
    asked = checkpoint_kv_dtype(model, read.version)
    return stated if asked is None else Setting(asked, "the checkpoint's quantization config")


def _quantization(
    read: _Reader, model: ModelSpec | None, gpu: GpuSpec | None
) -> Setting[str | None]:
    stored = None
    if model is not None:
        stored = method_of(model, read.version, gpu.capability if gpu else None)
    stated = read.args.stated.get("quantization")
    if stated is None:
        return Setting(stored, "config.json" if stored else read.default_source())
    return Setting(effective(str(stated.value), stored), stated.source, stated.location)


def _turns_graphs_off(read: _Reader) -> bool:
    """``-O0``, or a compilation config that says no graphs."""
    level = read.value("optimization_level")
    config = read.value("compilation_config")
    if isinstance(config, int) and not isinstance(config, bool):
        level = config
    if level == 0:
        return True
    if not isinstance(config, dict):
        return False
    mode = config.get("cudagraph_mode")
    is_none = mode == 0 or (isinstance(mode, str) and mode.upper() == "NONE")
    is_level_0 = not at_least(read.version, "0.12") and config.get("level") == 0
    return is_none or is_level_0 or config.get("use_cudagraph") is False


def _async_scheduling(
    read: _Reader, model: ModelSpec | None, env: Mapping[str, str], method: str | None
) -> Setting[bool]:
    source = read.default_source()
    if not at_least(read.version, "0.14"):
        return read.get("async_scheduling", default=False)
    reason = ""
    backend = read.value("distributed_executor_backend")
    stages = read.value("pipeline_parallel_size") or 1
    is_v2 = _uses_v2_runner(read.version, model, env)
    if is_pooling(read.args) and at_least(read.version, "0.20"):
        reason = "pooling"
    elif backend == "ray" and not is_v2:
        reason = "the ray executor"
    elif method in ("ngram", "suffix", "medusa", "mlp_speculator", "custom_class") and not is_v2:
        reason = f"{method} speculation"
    elif stages > 1 and (not at_least(read.version, "0.16") or _bars_stages(read.version, is_v2)):
        reason = "pipeline stages"
    if reason:
        return read.get("async_scheduling", default=False, source=f"{source}: off with {reason}")
    return read.get("async_scheduling", default=True, source=source)


def _bars_stages(version: Version, is_v2: bool) -> bool:
    return at_least(version, "0.23") and not is_v2


def _uses_v2_runner(version: Version, model: ModelSpec | None, env: Mapping[str, str]) -> bool:
    """The V2 model runner: dense models since 0.28, everything it supports since 0.29."""
    asked = env.get("VLLM_USE_V2_MODEL_RUNNER")
    if asked is not None:
        return asked.strip().lower() in ("1", "true")
    if at_least(version, "0.29"):
        return True
    return at_least(version, "0.28") and model is not None and not is_moe(model)


def _attention_backend(read: _Reader, env: Mapping[str, str]) -> Setting[str | None]:
    config = read.value("attention_config")
    if "attention_backend" not in read.args.stated and isinstance(config, dict):
        stated = read.args.stated["attention_config"]
        if isinstance(config.get("backend"), str):
            return Setting(config["backend"], stated.source, stated.location)
    by_env = env.get("VLLM_ATTENTION_BACKEND")
    if by_env and not at_least(read.version, "0.14"):
        return read.get("attention_backend", by_env, "env VLLM_ATTENTION_BACKEND")
    return read.get("attention_backend", None)


def _redundant_experts(read: _Reader) -> int:
    if not read.value("enable_eplb"):
        return 0
    config = read.value("eplb_config")
    count = config.get("num_redundant_experts") if isinstance(config, dict) else None
    count = read.value("num_redundant_experts") if count is None else count
    return count if isinstance(count, int) and not isinstance(count, bool) else 0


def _encoder_mode(read: _Reader) -> str:
    if read.value("enable_multimodal_encoder_data_parallel"):
        return "data"
    mode: str = read.get("mm_encoder_tp_mode", "weights").value
    return mode
