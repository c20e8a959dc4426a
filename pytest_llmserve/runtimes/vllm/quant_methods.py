"""Names of quantisation methods: which versions know them, and the GPUs and dtypes they need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.versions import at_least, release

if TYPE_CHECKING:
    from packaging.version import Version

    from pytest_llmserve.models.spec import ModelSpec, Quantization

# name | first version | gone in | minimum capability, by version | activation dtypes, by version |
# deprecated from .. until. "-": since before 0.8.5, or still there.
# Source: quantization/__init__.py and the method classes of the release wheels 0.8.5 to 0.33.0;
# those of compressed-tensors and gpt_oss_mxfp4 from runs of 0.32.
_TABLE: Final = """
aqlm                | -      | 0.10.1 | 60               | half            |
auto-round          | 0.9.0  | 0.15.0 | 60               | half,bf16       | 0.14..
auto_awq            | 0.24.0 | -      | 75               | half,bf16       |
auto_gptq           | 0.22.0 | -      | 60               | half,bf16       |
awq                 | -      | -      | 75               | half 0.24:half,bf16 |
awq_marlin          | -      | -      | 80 0.14:75       | half,bf16       |
bitblas             | -      | 0.16.0 | 70               | half,bf16       | 0.14..
bitsandbytes        | -      | 0.28.0 | 70               | half,bf16,float |
compressed-tensors  | -      | -      | 70               | half,bf16       |
cpu_awq             | 0.12.0 | 0.23.0 | -                | half,bf16       |
cpu_gptq            | 0.12.0 | 0.14.0 | -                | half,bf16       |
deepseek_v4_fp8     | 0.20.0 | -      | 75               | half,bf16       |
deepspeedfp         | -      | 0.15.0 | 60               | half,bf16       | 0.14..
experts_int8        | -      | -      | 80               | half,bf16       | 0.14..0.20
fbgemm_fp8          | -      | -      | 80               | half,bf16       | 0.14..
fp8                 | -      | -      | 80 0.14:75       | half,bf16       |
fp8_per_block       | 0.20.0 | -      | -                | half,bf16       |
fp8_per_channel     | 0.24.0 | -      | -                | half,bf16       |
fp8_per_tensor      | 0.20.0 | -      | -                | half,bf16       |
fp_quant            | 0.11.1 | -      | 100              | bf16            | 0.14..
gguf                | -      | 0.24.0 | 60               | half,bf16,float |
gpt_oss_mxfp4       | 0.20.0 | -      | 80               | bf16            |
gptq                | -      | -      | 60               | half 0.22:half,bf16 |
gptq_bitblas        | -      | 0.16.0 | 80               | half,bf16       | 0.14..
gptq_marlin         | -      | -      | 80 0.14:75       | half,bf16       |
gptq_marlin_24      | -      | 0.16.0 | 80               | half            | 0.14..
hqq                 | -      | 0.15.0 | 80               | half,bf16       | 0.14..
humming             | 0.20.0 | -      | 75               | half,bf16       |
inc                 | 0.10.0 | -      | 60               | bf16 0.15:half,bf16 |
int8_per_channel_weight_only | 0.20.0 | - | -           | half,bf16       |
ipex                | -      | 0.16.0 | -                | half,bf16       | 0.14..
marlin              | -      | 0.10.2 | 80               | half            |
modelopt            | -      | -      | 89 0.27:80       | half,bf16       |
modelopt_fp4        | 0.9.0  | -      | 80 0.14:75       | half,bf16       |
modelopt_mixed      | 0.17.0 | -      | 89 0.24:75       | half,bf16       |
modelopt_mxfp8      | 0.16.0 | -      | 100 0.20:80      | bf16            |
moe_wna16           | -      | -      | 70               | half,bf16       |
mxfp4               | 0.10.1 | -      | 80               | bf16            |
mxfp8               | 0.19.0 | -      | 100 0.20:-       | bf16            |
neuron_quant        | -      | 0.10.2 | -                | half,bf16,float |
nvfp4               | -      | 0.9.0  | 100              | half,bf16       |
nvfp4_per_token     | 0.26.0 | -      | -                | half,bf16       |
online              | 0.20.0 | -      | -                | half,bf16       |
petit_nvfp4         | 0.10.2 | 0.20.0 | 90               | half,bf16       | 0.14..
ptpc_fp8            | -      | 0.19.0 | -                | half,bf16       | 0.14..
qqq                 | -      | 0.10.2 | 80               | half            |
quark               | -      | -      | 70               | half,bf16       |
rtn                 | 0.9.2  | 0.15.0 | 80               | half,bf16       | 0.14..
torchao             | -      | -      | 75               | half,bf16,float |
tpu_int8            | -      | 0.14.0 | -                | half,bf16       |
"""
_DTYPES: Final = {"half": "float16", "bf16": "bfloat16", "float": "float32"}

# A --quantization of the same family as the checkpoint's method is taken, not refused.
_FAMILIES: Final = (
    frozenset({"awq", "awq_marlin", "auto_awq", "marlin", "moe_wna16"}),
    frozenset({"gptq", "gptq_marlin", "auto_gptq", "gptq_bitblas", "marlin", "moe_wna16"}),
    frozenset({"modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8", "nvfp4"}),
    frozenset({"mxfp4", "gpt_oss_mxfp4"}),
    frozenset({"fp8", "deepseek_v4_fp8"}),
    frozenset({"auto-round", "inc", "gptq", "awq", "gptq_marlin", "awq_marlin"}),
)
# What the checkpoint says wins over any --quantization (their override looks at nothing else).
_OVERRULING: Final = frozenset(
    {
        "deepseek_v4_fp8",
        "gpt_oss_mxfp4",
        "inc",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
        "modelopt_mxfp8",
    }
)
# Methods that only read a checkpoint written for them.
NEED_CHECKPOINT: Final = frozenset(
    {
        "auto_awq",
        "auto_gptq",
        "awq",
        "awq_marlin",
        "compressed-tensors",
        "fbgemm_fp8",
        "gptq",
        "gptq_marlin",
        "gpt_oss_mxfp4",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
        "modelopt_mxfp8",
    }
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Method:
    """One method; the tuples are (from version, value), oldest first."""

    name: str
    since: tuple[int, ...]
    until: tuple[int, ...] | None
    capabilities: tuple[tuple[tuple[int, ...], int | None], ...]
    dtypes: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
    deprecated: tuple[tuple[int, ...], tuple[int, ...] | None] | None


def _method(line: str) -> Method:
    name, since, until, capabilities, dtypes, deprecated = (c.strip() for c in line.split("|"))
    caps = []
    for item in capabilities.split():
        at, _, text = item.rpartition(":")
        caps.append((release(at) if at else (), None if text == "-" else int(text)))
    acts = []
    for item in dtypes.split():
        at, _, text = item.rpartition(":")
        acts.append((release(at) if at else (), tuple(_DTYPES[d] for d in text.split(","))))
    first, _, last = deprecated.partition("..")
    return Method(
        name,
        () if since == "-" else release(since),
        None if until == "-" else release(until),
        tuple(caps),
        tuple(acts),
        (release(first), release(last) if last else None) if first else None,
    )


@lru_cache(maxsize=1)
def methods() -> dict[str, Method]:
    """The whole table by name."""
    return {m.name: m for m in (_method(line) for line in _TABLE.strip().splitlines())}


def is_known(name: str, version: Version) -> bool:
    """Whether this version has the method in its own tree."""
    method = methods().get(name)
    if method is None or method.since > version.release:
        return False
    return method.until is None or version.release < method.until


def min_capability(name: str, version: Version) -> int | None:
    """Compute capability times ten that the method asks for, ``None`` where it asks for none."""
    method = methods().get(name)
    found = None
    for since, value in method.capabilities if method else ():
        found = value if version.release >= since else found
    return found


def activation_dtypes(name: str, version: Version) -> tuple[str, ...] | None:
    """The model dtypes that the method works with, ``None`` where that is not known."""
    method = methods().get(name)
    found = None
    for since, value in method.dtypes if method else ():
        found = value if version.release >= since else found
    return found


def is_deprecated(name: str, version: Version) -> bool:
    """Whether the method refuses without ``--allow-deprecated-quantization``."""
    method = methods().get(name)
    if method is None or method.deprecated is None:
        return False
    first, last = method.deprecated
    return version.release >= first and (last is None or version.release < last)


def are_compatible(asked: str, stored: str) -> bool:
    """Whether a ``--quantization`` fits the method of the checkpoint."""
    return (
        asked == stored
        or asked == "humming"
        or any(asked in family and stored in family for family in _FAMILIES)
    )


def effective(asked: str, stored: str | None) -> str:
    """The method in effect for a ``--quantization`` and the checkpoint's own method."""
    is_merged = stored in ("auto_awq", "auto_gptq") and are_compatible(asked, stored)
    if stored is not None and (stored in _OVERRULING or is_merged) and asked != "humming":
        return asked if asked == "moe_wna16" else stored
    return asked


def method_of(model: ModelSpec, version: Version, capability: int | None) -> str | None:
    """The method that a version picks for a checkpoint, by its own name for it."""
    stored = model.quantization
    if stored is None:
        return None
    name = stored.method.lower()
    if name in ("modelopt", "modelopt_fp4", "modelopt_mixed"):
        return _modelopt(stored, version)
    if name == "mxfp4" and at_least(version, "0.20") and model.model_type == "gpt_oss":
        return "gpt_oss_mxfp4"
    if name == "fp8" and at_least(version, "0.20") and model.model_type == "deepseek_v4":
        return "deepseek_v4_fp8"
    if name in ("awq", "gptq"):
        if at_least(version, "0.24" if name == "awq" else "0.22"):
            return f"auto_{name}"
        return _marlin(stored, name, version, capability)
    if name == "auto-round" and at_least(version, "0.15"):
        return "inc"
    return name


def _modelopt(stored: Quantization, version: Version) -> str:
    if stored.scheme == "nvfp4":
        return "modelopt_fp4" if at_least(version, "0.9") else "nvfp4"
    if stored.scheme == "mxfp8":
        return "modelopt_mxfp8"
    return "modelopt_mixed" if stored.scheme == "mixed" else "modelopt"


def _marlin(stored: Quantization, name: str, version: Version, capability: int | None) -> str:
    """Marlin kernels take over where the GPU and the format allow it."""
    least = min_capability(f"{name}_marlin", version) or 0
    fits_gpu = capability is not None and capability >= least
    fits_bits = stored.bits == 4 if name == "awq" else stored.bits in (4, 8)
    fits_group = stored.group_size in (None, -1, 32, 64, 128)
    fits_zeros = name == "awq" or stored.is_symmetric
    return f"{name}_marlin" if fits_gpu and fits_bits and fits_group and fits_zeros else name
