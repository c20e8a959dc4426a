"""Dtypes that the GPU, the model or the cache cannot have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.spec import IndexerCache
from pytest_llmserve.runtimes.vllm.dtypes import NO_FLOAT16
from pytest_llmserve.runtimes.vllm.traits import is_mla
from pytest_llmserve.runtimes.vllm.versions import at_least

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case, Rule

_DTYPE: Final = ("dtype",)
_KV: Final = ("kv_cache_dtype", "block_size")
_ADA: Final = 89
_FULL_WIDTH: Final = ("float16", "bfloat16")
# Where fp8 caches work was read in 0.33 and run on 0.32; older backends differ in detail.
_KV_RULES_READ: Final = "0.32"


def _bfloat16(case: Case) -> Refusal | None:
    capability = case.capability
    is_stated = "dtype" in case.args.stated
    if capability is None or capability >= 80 or not is_stated:
        return None
    if case.settings.dtype.value != "bfloat16":
        return None
    return case.refuse(
        "dtype",
        f"bfloat16 needs compute capability 8.0, the GPU has {capability / 10:.1f}",
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
        expected="--dtype half",
        at=_DTYPE,
    )


def _float16(case: Case) -> Refusal | None:
    model = case.model
    if model is None or case.settings.dtype.value != "float16" or "dtype" not in case.args.stated:
        return None
    if model.model_type not in NO_FLOAT16 or not at_least(case.version, "0.9.1"):
        return None
    return case.refuse(
        "dtype",
        f"float16 is numerically unstable for {model.model_type} and refused",
        f"The model type '{model.model_type}' does not support float16.",
        expected="--dtype bfloat16",
        at=_DTYPE,
    )


def _cache_width(case: Case) -> Refusal | None:
    """A cache of full width has the model's own dtype."""
    stated, dtype = case.value("kv_cache_dtype"), case.settings.dtype.value
    if stated not in _FULL_WIDTH or dtype is None or stated == dtype:
        return None
    return case.refuse(
        "dtype",
        f"{stated} KV cache with a {dtype} model",
        f"kv_cache_dtype {stated} does not match the model dtype {dtype}",
        expected=f"--kv-cache-dtype auto, or {dtype}",
        at=_KV,
        is_certain=at_least(case.version, _KV_RULES_READ),
    )


def _fp8_cache(case: Case) -> Refusal | None:
    capability, model = case.capability, case.model
    kind = case.settings.kv_cache_dtype.value
    if capability is None or not kind.startswith("fp8"):
        return None
    is_latent = model is not None and is_mla(model)
    least = 89 if is_latent else 80
    if capability >= least:
        return None
    what = "an MLA model" if is_latent else "any attention backend"
    says = "FP8 KV cache is not supported by the Triton attention backend"
    return case.refuse(
        "dtype",
        f"{kind} KV cache needs compute capability {least / 10:.1f} for {what}, "
        f"the GPU has {capability / 10:.1f}",
        says if capability >= 75 else "No valid attention backend found",
        expected="--kv-cache-dtype auto",
        at=_KV,
        is_certain=at_least(case.version, _KV_RULES_READ),
    )


def _fp8_cache_by_triton(case: Case) -> Refusal | None:
    """0.11 took Triton where FlashAttention 3 is missing, whose kernel needs Ada.

    Seen once: vllm-project/vllm#26431, 0.11.0 on an RTX 3090.
    """
    capability, backend = case.capability, case.settings.attention_backend.value
    is_fp8 = case.settings.kv_cache_dtype.value.startswith("fp8")
    is_0_11 = at_least(case.version, "0.11") and not at_least(case.version, "0.12")
    if not (is_fp8 and is_0_11) or capability is None or not 80 <= capability < _ADA:
        return None
    if backend is not None and "FLASHINFER" in backend.upper():
        return None
    return case.refuse(
        "dtype",
        f"an FP8 KV cache needs compute capability 8.9 in vllm 0.11, the GPU has "
        f"{capability / 10:.1f}",
        "type fp8e4nv not supported in this architecture",
        expected="--kv-cache-dtype auto, or env VLLM_ATTENTION_BACKEND=FLASHINFER",
        at=_KV,
        is_certain=False,
    )


def _fp8_e5m2_cache(case: Case) -> Refusal | None:
    if case.settings.kv_cache_dtype.value != "fp8_e5m2":
        return None
    if case.settings.quantization.value not in ("fp8", "modelopt", "fbgemm_fp8"):
        return None
    return case.refuse(
        "dtype",
        "fp8_e5m2 KV cache with an FP8 checkpoint",
        "fp8_e5m2 kv-cache is not supported with fp8 checkpoints.",
        expected="--kv-cache-dtype fp8_e4m3",
        at=_KV,
    )


def _nvfp4_cache(case: Case) -> Refusal | None:
    kind, capability = case.settings.kv_cache_dtype.value, case.capability
    if kind not in ("nvfp4", "nvfp4_4over6"):
        return None
    if case.model is not None and is_mla(case.model):
        return case.refuse(
            "dtype",
            f"{kind} KV cache with an MLA model",
            "No valid attention backend found",
            expected="--kv-cache-dtype nvfp4_ds_mla (since 0.30) or fp8",
            at=_KV,
        )
    if capability is None or capability // 10 == 10:
        return None
    return case.refuse(
        "dtype",
        f"{kind} KV cache needs compute capability 10.x, the GPU has {capability / 10:.1f}",
        "No valid attention backend found",
        expected="--kv-cache-dtype fp8",
        at=_KV,
        is_certain=False,  # one route for plain nvfp4 on older parts was seen, not run
    )


def _sparse_attention(case: Case) -> Refusal | None:
    """DeepSeek V3.2 and GLM-5: sparse MLA backends exist for Hopper and Blackwell, block 64."""
    model, capability = case.model, case.capability
    if model is None or not _has_indexer(model):
        return None
    block = case.value("block_size")
    if capability is not None and capability // 10 not in (9, 10, 12):
        return case.refuse(
            "dtype",
            f"{capability / 10:.1f} is no compute capability with a sparse MLA backend (9, 10, 12)",
            "No valid attention backend found",
            expected="a Hopper or Blackwell GPU",
        )
    if isinstance(block, int) and block != 64:
        return case.refuse(
            "dtype",
            f"{block} is no block size of the sparse MLA backends, they take 64",
            "No valid attention backend found",
            expected="no --block-size",
            at=("block_size",),
        )
    return None


def _has_indexer(model: ModelSpec) -> bool:
    return is_mla(model) and any(
        isinstance(cache, IndexerCache)
        for group in model.layer_groups
        for cache in group.layer.caches
    )


RULES: Final[tuple[Rule, ...]] = (
    _bfloat16,
    _float16,
    _cache_width,
    _fp8_cache,
    _fp8_cache_by_triton,
    _fp8_e5m2_cache,
    _nvfp4_cache,
    _sparse_attention,
)
