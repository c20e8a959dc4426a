"""What ``quantization_config`` and ``hf_quant_config.json`` say of the stored weights.

Which spelling counts follows what vLLM 0.32 builds: ``hf_quant_config.json`` only with
``producer.name = modelopt``, and a block without ``quant_method`` is no quantisation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_llmserve.models.fields import Fields
from pytest_llmserve.models.spec import Quantization, Scheme

_MODELOPT: Final[Mapping[str, tuple[Scheme, int, int | None]]] = {
    "FP8": ("fp8_tensor", 8, None),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8_channel", 8, None),
    "FP8_PB_WO": ("fp8_block", 8, None),
    "FP8_PB_REAL": ("fp8_block", 8, None),
    "NVFP4": ("nvfp4", 4, 16),
    "NVFP4_AWQ": ("nvfp4", 4, 16),
    "W4A16_NVFP4": ("nvfp4", 4, 16),
    "MXFP8": ("mxfp8", 8, 32),
    "MXFP4": ("mxfp4", 4, 32),
    "W4A16_AWQ": ("int4", 4, 128),
    "W4A8_AWQ": ("int4", 4, 128),
    "INT8_SQ": ("int8", 8, None),
    "W8A16": ("int8", 8, None),
    "MIXED_PRECISION": ("mixed", 8, None),
}
_EXPERT: Final = re.compile(r"\.experts\.\d+\.")
_INT: Final[Mapping[int, Scheme]] = {4: "int4", 8: "int8"}
_IGNORE_KEYS: Final = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "llm_int8_skip_modules",
    "exclude",
)
_MXFP_GROUP: Final = 32


def read_quantization(
    config: Fields, text: Fields, hf_quant_config: Fields | None
) -> Quantization | None:
    """The quantisation of a checkpoint, ``None`` where runtimes load it unquantised.

    Args:
        config: the whole config.
        text: its text part, where some checkpoints keep the block.
        hf_quant_config: the file beside it; it counts only where the config has no block.

    Raises:
        BadConfig: a value is of the wrong kind.
    """
    for level in (config, text):
        for key in ("quantization_config", "compression_config"):
            block = level.object(key)
            if block:
                inner = Fields(block, file=level.file, path=f"{level.path}{key}.")
                return _read_block(inner)
    return None if hf_quant_config is None else _read_hf_quant_config(hf_quant_config)


def _read_block(c: Fields) -> Quantization | None:
    method = c.text("quant_method")
    if method is None:
        is_bnb = c.flag("load_in_4bit") or c.flag("load_in_8bit")
        method = "bitsandbytes" if is_bnb else None
    if method is None:
        return None
    reader = _READERS.get(method.lower().replace("_", "-"))
    if reader is None:
        bits = c.optional_size("bits", "nbits", "w_bit") or 0
        return Quantization(method=method, scheme="unknown", bits=bits, ignore=_ignore(c))
    return reader(c, method)  # type: ignore[no-any-return]


def _read_hf_quant_config(c: Fields) -> Quantization | None:
    producer = c.nested("producer")
    if producer.value("name") != "modelopt":
        return None
    return _modelopt(c.nested("quantization"), "modelopt")


def _ignore(c: Fields) -> tuple[str, ...]:
    for key in _IGNORE_KEYS:
        found = c.items(key)
        if found:
            return tuple(_checked(c, key, name) for name in found)
    return ()


def _checked(c: Fields, key: str, name: object) -> str:
    """A module name; a ``re:`` one has to be a regular expression."""
    if not isinstance(name, str):
        raise c.bad(key, name, "a list of module names")
    if name.startswith("re:"):
        try:
            re.compile(name[3:])
        except re.error as error:
            raise c.bad(key, name, f"a regular expression ({error})") from None
    return name


def _fp8(c: Fields, method: str) -> Quantization:
    block = c.items("weight_block_size")
    shape: tuple[int, int] | None = None
    if block is not None:
        if len(block) != 2 or not all(isinstance(side, int) and side > 0 for side in block):
            raise c.bad("weight_block_size", block, "two positive integers")
        shape = (block[0], block[1])
    return Quantization(
        method=method,
        scheme="fp8_tensor" if shape is None else "fp8_block",
        bits=8,
        block_shape=shape,
        is_static_activation=c.text("activation_scheme") == "static",
        ignore=_ignore(c),
        kv_cache_scheme=_kv_cache(c),
    )


def _fp8_channel(c: Fields, method: str) -> Quantization:
    return Quantization(method=method, scheme="fp8_channel", bits=8, ignore=_ignore(c))


def _integer(c: Fields, method: str) -> Quantization:
    """GPTQ, AWQ, auto-round and their kin: ``bits`` and ``group_size``."""
    bits = c.size("bits", "w_bit")
    group = c.value("group_size", "q_group_size")
    is_symmetric = c.flag("sym", default=not c.flag("zero_point", default="awq" in method))
    overrides = _dynamic_rules(c)
    scheme: Scheme = _INT.get(bits, "unknown")
    return Quantization(
        method=method,
        scheme=scheme,
        bits=bits,
        group_size=None if group in {None, -1} else c.size("group_size", "q_group_size"),
        is_symmetric=is_symmetric,
        ignore=_ignore(c) + overrides,
        is_lm_head_quantized=c.flag("lm_head"),
        kv_cache_scheme=None,
    )


def _dynamic_rules(c: Fields) -> tuple[str, ...]:
    """GPTQModel's ``dynamic``: ``-:regex`` leaves modules out. Other bit widths are refused."""
    rules = c.object("dynamic") or {}
    out: list[str] = []
    for pattern, change in rules.items():
        if pattern.startswith("-:"):
            out.append(_checked(c, "dynamic", f"re:{pattern[2:]}"))
        elif isinstance(change, Mapping) and change.get("bits", c.value("bits")) != c.value("bits"):
            raise c.bad(f"dynamic.{pattern}", change, "one bit width for the whole checkpoint")
    return tuple(out)


def _bitsandbytes(c: Fields, method: str) -> Quantization:
    is_4bit = c.flag("load_in_4bit", "_load_in_4bit")
    scheme: Scheme = "nf4" if is_4bit else "int8"
    return Quantization(
        method=method,
        scheme=scheme,
        bits=4 if is_4bit else 8,
        group_size=64 if is_4bit else None,
        ignore=_ignore(c),
    )


def _mxfp4(c: Fields, method: str) -> Quantization:
    """gpt-oss: only the experts, whatever the list says."""
    return Quantization(
        method=method,
        scheme="mxfp4",
        bits=4,
        group_size=_MXFP_GROUP,
        ignore=_ignore(c),
        is_experts_only=True,
    )


def _modelopt(c: Fields, method: str) -> Quantization:
    algo = c.text("quant_algo")
    scheme, bits, group = _MODELOPT.get(algo or "", ("unknown", 0, None))
    modules = _quantized_layers(c)
    block = (128, 128) if scheme == "fp8_block" else None
    found_group = c.value("group_size")
    return Quantization(
        method=method,
        scheme=scheme,
        bits=bits,
        group_size=c.size("group_size") if found_group else group,
        block_shape=block,
        is_static_activation=scheme in {"fp8_tensor", "nvfp4"},
        ignore=_ignore(c),
        per_module=modules if scheme == "mixed" else {},
        kv_cache_scheme=_kv_cache(c),
    )


def _quantized_layers(c: Fields) -> Mapping[str, str]:
    """Module path to scheme; of routed experts, one entry stands for all that agree."""
    modules: dict[str, str] = {}
    for name, entry in (c.object("quantized_layers") or {}).items():
        algo = entry.get("quant_algo") if isinstance(entry, Mapping) else None
        if not isinstance(algo, str):
            raise c.bad(f"quantized_layers.{name}", entry, "an object with a quant_algo")
        scheme = _MODELOPT.get(algo, ("unknown", 0, None))[0]
        key = _EXPERT.sub(".experts.0.", name)
        modules[key] = scheme if modules.get(key, scheme) == scheme else "unknown"
    return modules


def _compressed_tensors(c: Fields, method: str) -> Quantization:
    groups = [
        (Fields(value, file=c.file, path=f"{c.path}config_groups.{name}."))
        for name, value in (c.object("config_groups") or {}).items()
        if isinstance(value, Mapping)
    ]
    if not groups:
        return Quantization(method=method, scheme="unknown", bits=0, ignore=_ignore(c))
    read = [_weight_scheme(c, group.nested("weights")) for group in groups]
    first = read[0]
    per_module: dict[str, str] = {}
    if any(other.scheme != first.scheme for other in read[1:]):
        for group, found in zip(groups, read, strict=True):
            for target in group.items("targets") or ():
                per_module["*" if target == "Linear" else str(target)] = found.scheme
    activations = groups[0].nested("input_activations")
    is_static = bool(activations.values) and activations.value("dynamic") is False
    return Quantization(
        method=method,
        scheme="mixed" if per_module else first.scheme,
        bits=first.bits,
        group_size=first.group_size,
        is_symmetric=first.is_symmetric,
        block_shape=first.block_shape,
        is_static_activation=is_static,
        ignore=_ignore(c),
        per_module=per_module,
        kv_cache_scheme=_kv_cache(c),
    )


def _weight_scheme(c: Fields, weights: Fields) -> Quantization:
    """One ``config_groups`` entry: what its weights are stored as."""
    bits = weights.count("num_bits", default=0)
    strategy = weights.text("strategy")
    group = weights.optional_size("group_size") if strategy != "channel" else None
    layout = c.text("format") or weights.text("format") or ""
    block = weights.items("block_structure")
    scheme: Scheme
    if weights.text("type") == "float" and bits == 8:
        scheme = _FLOAT8.get(strategy or "", "fp8_tensor")
    elif weights.text("type") == "float" and bits == 4:
        scheme = "mxfp4" if layout.startswith("mxfp4") or group == _MXFP_GROUP else "nvfp4"
    else:
        scheme = _INT.get(bits, "unknown")
    return Quantization(
        method="compressed-tensors",
        scheme=scheme,
        bits=bits,
        group_size=group,
        is_symmetric=weights.flag("symmetric", default=True),
        block_shape=_block_shape(weights, block) if scheme == "fp8_block" else None,
    )


_FLOAT8: Final[Mapping[str, Scheme]] = {
    "channel": "fp8_channel",
    "block": "fp8_block",
    "group": "mxfp8",
}


def _block_shape(c: Fields, block: Sequence[Any] | None) -> tuple[int, int]:
    if block is None or len(block) != 2 or not all(isinstance(side, int) for side in block):
        raise c.bad("block_structure", block, "two integers")
    return block[0], block[1]


def _quark(c: Fields, method: str) -> Quantization:
    """AMD Quark: one global weight scheme."""
    weight = c.nested("global_quant_config").nested("weight")
    dtype, scheme_name = weight.text("dtype"), weight.text("qscheme")
    scheme: Scheme = "unknown"
    if dtype == "fp8_e4m3":
        scheme = "fp8_channel" if scheme_name == "per_channel" else "fp8_tensor"
    elif dtype in {"fp4", "mxfp4"}:
        scheme = "mxfp4"
    elif dtype == "int8":
        scheme = "int8"
    bits = {"mxfp4": 4, "unknown": 0}.get(scheme, 8)
    group = weight.optional_size("group_size") if scheme == "mxfp4" else None
    return Quantization(
        method=method, scheme=scheme, bits=bits, group_size=group, ignore=_ignore(c)
    )


def _kv_cache(c: Fields) -> str | None:
    """``fp8``, ``nvfp4`` or ``int8`` as the checkpoint asks for, ``None`` where it does not."""
    found = c.value("kv_cache_scheme", "kv_cache_quant_algo")
    if isinstance(found, str):
        return found.lower()
    if isinstance(found, Mapping):
        kinds = {"8 float": "fp8", "4 float": "nvfp4", "8 int": "int8"}
        return kinds.get(f"{found.get('num_bits')} {found.get('type')}")
    return None


_READERS: Final[Mapping[str, Any]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fp8_channel,
    "ptpc-fp8": _fp8_channel,
    "gptq": _integer,
    "gptq-marlin": _integer,
    "awq": _integer,
    "awq-marlin": _integer,
    "auto-round": _integer,
    "intel/auto-round": _integer,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
    "mxfp4": _mxfp4,
    "gpt-oss-mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "quark": _quark,
}
