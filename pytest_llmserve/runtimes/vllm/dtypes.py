"""The dtype of activations and of the KV cache, as each version resolves ``auto``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.versions import at_least

if TYPE_CHECKING:
    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec

SPELLINGS: Final = {"half": "float16", "float": "float32"}
# float16 is numerically unstable for these, and refused (0.33 config/model.py; since 0.9.1).
NO_FLOAT16: Final = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
_BF16_CAPABILITY: Final = 80


def supported_dtypes(gpu: GpuSpec) -> tuple[str, ...]:
    """What the platform computes in, its favourite first."""
    capability = gpu.capability
    if gpu.vendor.lower() == "nvidia" and capability is not None and capability < _BF16_CAPABILITY:
        return ("float16", "float32")
    return ("bfloat16", "float16", "float32")


def auto_dtype(
    model: ModelSpec, gpu: GpuSpec | None, version: Version, *, is_pooling: bool
) -> tuple[str | None, str]:
    """The dtype of ``auto`` and why; ``None`` where it hangs on an unknown GPU."""
    stored = model.dtype
    if gpu is None:
        return (stored, "config.json") if stored == "float16" else (None, "GPU not known")
    supported = supported_dtypes(gpu)
    bars_float16 = _bars_float16(model, version)
    usable = [name for name in supported if not (bars_float16 and name == "float16")]
    preferred = "float16" if is_pooling and "float16" in usable else usable[0]
    if stored == "float32":
        if not at_least(version, "0.9.1"):
            preferred = "float16" if "float16" in usable else usable[0]
        return preferred, f"config.json says float32: cast to {preferred}"
    if stored in usable:
        return stored, "config.json"
    return preferred, f"config.json says {stored}: {gpu.id} takes {preferred}"


def _bars_float16(model: ModelSpec, version: Version) -> bool:
    return model.model_type in NO_FLOAT16 and at_least(version, "0.9.1")


def checkpoint_kv_dtype(model: ModelSpec, version: Version) -> str | None:
    """The KV dtype that a quantised checkpoint asks for, where this version listens to it."""
    stored = model.quantization
    if stored is None or stored.kv_cache_scheme is None:
        return None
    scheme = stored.kv_cache_scheme.lower()
    if stored.method.lower().startswith("modelopt"):
        known = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
        return known.get(scheme) if at_least(version, "0.14") else None
    if stored.method.lower() == "compressed-tensors" and scheme == "fp8":
        return "fp8" if at_least(version, "0.16") else None
    return None
