"""Quantisation methods: unknown, mismatched, too new for the GPU, or not aligned with TP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.dtypes import supported_dtypes
from pytest_llmserve.runtimes.vllm.quant_methods import (
    NEED_CHECKPOINT,
    activation_dtypes,
    are_compatible,
    is_deprecated,
    is_known,
    method_of,
    methods,
    min_capability,
)
from pytest_llmserve.runtimes.vllm.refusals.alignment import block_fp8, group_alignment
from pytest_llmserve.runtimes.vllm.versions import at_least, short

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import Quantization
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case, Rule

_AT: Final = ("quantization",)
_IN_A_PLUGIN: Final = {"gguf": "0.24", "bitsandbytes": "0.28"}


def _stored(case: Case) -> str | None:
    capability = case.gpu.capability if case.gpu else None
    return method_of(case.model, case.version, capability) if case.model else None


def _unknown(case: Case) -> Refusal | None:
    name = case.settings.quantization.value
    if name is None or is_known(name, case.version):
        return None
    if name not in methods() and "quantization" not in case.args.stated:
        return None  # the checkpoint names something this package has not met
    since = methods()[name].since if name in methods() else ()
    is_later = since > case.version.release
    expected = "a method of this version"
    if name in _IN_A_PLUGIN and at_least(case.version, _IN_A_PLUGIN[name]):
        expected = f"the out-of-tree plugin in the image, or vllm before {_IN_A_PLUGIN[name]}"
    elif is_later:
        expected = f"vllm {'.'.join(map(str, since))} or newer"
    return case.refuse(
        "quantization",
        f"vllm {short(case.version)} does not know the quantization method {name}",
        f"Unknown quantization method: {name}.",
        expected=expected,
        at=_AT,
        is_certain=name not in _IN_A_PLUGIN,  # the plugin may be in the image
    )


def _mismatch(case: Case) -> Refusal | None:
    asked, stored = case.settings.quantization.value, _stored(case)
    if asked is None or stored is None or are_compatible(asked, stored):
        return None
    return case.refuse(
        "quantization",
        f"--quantization {asked}, but the checkpoint is {stored}",
        f"Quantization method specified in the model config ({stored}) does not match the "
        f"quantization method specified in the `quantization` argument ({asked}).",
        expected="no --quantization: the checkpoint says it",
        at=_AT,
        is_certain=asked in methods() and stored in methods(),
    )


def _no_checkpoint(case: Case) -> Refusal | None:
    asked = case.value("quantization")
    if case.model is None or case.model.quantization is not None or asked not in NEED_CHECKPOINT:
        return None
    return case.refuse(
        "quantization",
        f"--quantization {asked}, but {case.model.id} is not quantised",
        f"Cannot find the config file for {asked}",
        expected="fp8 (quantises while loading), or a quantised checkpoint",
        at=_AT,
    )


def _deprecated(case: Case) -> Refusal | None:
    name = case.settings.quantization.value
    if name is None or not is_deprecated(name, case.version):
        return None
    if not is_known(name, case.version) or case.value("allow_deprecated_quantization"):
        return None
    return case.refuse(
        "quantization",
        f"{name} is deprecated and refused by vllm {short(case.version)}",
        f"The quantization method {name} is deprecated and will be removed in future versions",
        expected="--allow-deprecated-quantization",
        at=_AT,
    )


def _gpu(case: Case) -> Refusal | None:
    name, capability = case.settings.quantization.value, case.capability
    if name is None or capability is None:
        return None
    least = min_capability(name, case.version)
    stored = case.model.quantization if case.model else None
    if name == "compressed-tensors" and stored is not None:
        least = max(least or 0, _compressed(stored, case))
    if least is None or capability >= least:
        return None
    return case.refuse(
        "quantization",
        f"{name} needs compute capability {least / 10:.1f}, the GPU has {capability / 10:.1f}",
        f"The quantization method {name} is not supported for the current GPU. "
        f"Minimum capability: {least}.",
        expected="a newer GPU or an unquantised checkpoint",
        at=_AT,
    )


def _compressed(stored: Quantization, case: Case) -> int:
    """What the scheme of a compressed-tensors checkpoint asks of the GPU."""
    marlin = 75 if at_least(case.version, "0.16") else 80
    return {
        "fp8_tensor": marlin,
        "fp8_channel": marlin,
        "fp8_block": marlin,
        "int8": 75,
        "int4": 75 if at_least(case.version, "0.12") else 80,
        "nvfp4": marlin,
        "mxfp4": 80,
    }.get(stored.scheme, 0)


def _activations(case: Case) -> Refusal | None:
    name, dtype = case.settings.quantization.value, case.settings.dtype.value
    if name is None or dtype is None:
        return None
    usable = activation_dtypes(name, case.version)
    if usable is None or dtype in usable:
        return None
    if case.gpu is not None and dtype not in supported_dtypes(case.gpu):
        return None  # the rule about the GPU says it
    return case.refuse(
        "quantization",
        f"{name} does not work with {dtype} activations",
        f"torch.{dtype} is not supported for quantization method {name}.",
        expected=f"--dtype {usable[0]}",
        at=("dtype", "quantization"),
    )


RULES: Final[tuple[Rule, ...]] = (
    _unknown,
    _mismatch,
    _no_checkpoint,
    _deprecated,
    _gpu,
    _activations,
    block_fp8,
    group_alignment,
)
