"""Blocks and groups of quantised weights that tensor parallelism would cut in two."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from math import gcd
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.spec import Group, Shard
from pytest_llmserve.runtimes.vllm.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.models.spec import ModelSpec, Quantization, Weight
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.refusals.case import Case

_TP: Final = ("tensor_parallel_size",)
_LEAST_REFINED_BLOCK: Final = 32
_UNMERGED_COLUMNS: Final = ("q_b_proj", "kv_b_proj", "wq_b")


def _quantised(model: ModelSpec, stored: Quantization) -> Iterator[Weight]:
    """Matrices of the layers that the checkpoint's ignore list leaves in."""
    seen: set[tuple[str, int, int]] = set()
    for group in model.layer_groups:
        for weight in group.layer.weights:
            key = (weight.name, weight.rows, weight.cols)
            if not weight.is_matmul or key in seen or weight.group is Group.ROUTER:
                continue
            seen.add(key)
            path = f"{model.layers_path}.{group.indices[0]}.{weight.name}"
            if not any(_matches(pattern, path, weight.name) for pattern in stored.ignore):
                yield weight


def _matches(pattern: str, path: str, name: str) -> bool:
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], path) is not None
        except re.error:
            return False
    if "*" in pattern:
        return fnmatchcase(path, pattern)
    return path == pattern or path.startswith(pattern + ".") or name == pattern


def block_fp8(case: Case) -> Refusal | None:
    """FP8 in blocks of 128 x 128: the cut must fall between blocks."""
    model, tp = case.model, case.tp
    stored = model.quantization if model else None
    if model is None or stored is None or stored.block_shape is None or tp < 2:
        return None
    block_n, block_k = stored.block_shape
    for weight in _quantised(model, stored):
        if weight.group is Group.EXPERTS:
            found = _experts(case, weight, block_k)
        elif weight.shard is Shard.ROW and weight.cols % tp == 0 and weight.cols // tp % block_k:
            found = _cut(case, weight, weight.cols // tp, "input", f"block_k = {block_k}")
        elif _is_cut_column(weight) and weight.rows % tp == 0 and weight.rows // tp % block_n:
            found = _cut(case, weight, weight.rows // tp, "output", f"block_n = {block_n}")
        else:
            found = None
        if found is not None:
            return found
    return None


def _is_cut_column(weight: Weight) -> bool:
    """Merged columns (qkv, gate and up) are let through, single ones are checked."""
    return weight.shard is Shard.COLUMN and weight.name.endswith(_UNMERGED_COLUMNS)


def _cut(case: Case, weight: Weight, size: int, side: str, block: str) -> Refusal:
    return case.refuse(
        "quantization",
        f"{size} {side}s of {weight.name} a rank: not whole FP8 blocks at TP {case.tp}",
        f"Weight {side}_size_per_partition = {size} is not divisible by weight quantization "
        f"{block}",
        expected="a smaller --tensor-parallel-size",
        at=_TP,
    )


def _experts(case: Case, weight: Weight, block: int) -> Refusal | None:
    """Experts: refused until 0.28; since 0.29 the grid is refined, down to blocks of 32."""
    if case.settings.enable_expert_parallel.value:
        return None
    parts = case.tp * case.settings.data_parallel_size.value
    is_down = weight.shard is Shard.ROW
    width = weight.cols if is_down else weight.rows
    hidden = weight.rows if is_down else weight.cols
    if width % parts or width // parts % block == 0:
        return None
    local = width // parts
    if at_least(case.version, "0.29") and gcd(block, local, hidden) >= _LEAST_REFINED_BLOCK:
        return None
    return case.refuse(
        "quantization",
        f"{local} wide experts a rank: not whole FP8 blocks of {block} at TP {case.tp}",
        f"The output_size of gate's and up's weight = {local} is not divisible by weight "
        f"quantization block_n = {block}.",
        expected="--enable-expert-parallel, or a smaller --tensor-parallel-size",
        at=_TP,
    )


def group_alignment(case: Case) -> Refusal | None:
    """GPTQ and AWQ: the inputs of a rank are whole groups."""
    model, tp = case.model, case.tp
    stored = model.quantization if model else None
    if model is None or stored is None or stored.scheme != "int4" or not stored.group_size:
        return None
    if stored.method.lower() not in ("awq", "gptq") or tp < 2 or stored.group_size < 1:
        return None
    for weight in _quantised(model, stored):
        is_cut = weight.shard is Shard.ROW and weight.group is not Group.EXPERTS
        if is_cut and weight.cols % tp == 0 and weight.cols // tp % stored.group_size:
            return case.refuse(
                "quantization",
                f"{weight.cols // tp} inputs of {weight.name} a rank: not whole groups of "
                f"{stored.group_size} at TP {tp}",
                "The input size is not aligned with the quantized weight shape.",
                expected="a smaller --tensor-parallel-size",
                at=_TP,
            )
    return None
