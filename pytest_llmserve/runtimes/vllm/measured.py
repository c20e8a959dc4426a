"""The terms of the budget that vLLM measures while it starts: activations, non-torch, graphs.

No formula of vLLM's source gives them; these are fits to start-up logs, each an interval that is
meant to hold about nine of ten of them (``benchmarks/calibrate_vllm.py`` fits them again,
``docs/accuracy.md`` tells how and how far off they are). All in bytes per rank.

Activations are the larger of two dummy runs: the sampler over ``max_num_seqs`` rows of logits
(which wins with the defaults of large cards) and the forward pass over ``max_num_batched_tokens``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from pytest_llmserve.models.spec import IndexerCache, LatentCache
from pytest_llmserve.units import GIB, MIB, ZERO, Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A fitted figure with the ends that held most observations, in the unit of its table."""

    low: float
    expected: float
    high: float

    def times(self, factor: float) -> Interval:
        """The interval of ``factor`` such units, in whole bytes."""
        return Interval(
            round(self.low * factor), round(self.expected * factor), round(self.high * factor)
        )


# Bytes of the sampler's peak per row of logits and vocabulary entry.
# up to 0.16: eight logs of 0.10 and 0.11 (llm-d planner page, gh-34681159919, gh-7292846353) agree
#   within 1 %: 38.1 = 9.5 float32 copies.
# 0.17: 24 logs of 0.19.0 on H100 (llm-d campaign of April 2026).
# 0.24: the budgets of gh-57905766703a (0.27.1, at most 16), vllm-51590 (0.28.0, at most 12) and a
#   27B on an RTX PRO 6000 (9.8); at TP 2 gh-57905766703b leaves 11 at most.
_SAMPLER_BYTES: Final = (
    ("0", Fit(36.5, 38.1, 40.0)),
    ("0.17", Fit(13.5, 14.7, 16.5)),
    ("0.24", Fit(9.5, 14.0, 18.0)),
)
_SAMPLER_BYTES_TP: Final = (*_SAMPLER_BYTES[:2], ("0.24", Fit(5.0, 11.0, 18.0)))
# Bytes per batched token and hidden element that stay beside the sampler's peak (same logs).
_BESIDE_SAMPLER_BYTES: Final = 2.9
# The forward pass alone, per batched token: bytes per hidden and per local MLP element, and what a
# stage of a pipeline is handed. CodeLlama-7B and the stages of Llama-3.1-8B in the 0.19.0 campaign
# (none samples much).
_FORWARD_HIDDEN_BYTES: Final = 8.0
_FORWARD_MLP_BYTES: Final = 6.0
_HANDED_OVER_BYTES: Final = 4.0
_EXPERT_CHUNK: Final = 32 * 1024  # tokens that experts take at a time
# Mixture-of-experts workspaces: 0 (gpt-oss-20b) to 0.46 GiB (DeepSeek-V2-Lite, Kimi-VL) in 0.19.0;
# the two gpt-oss-120b reports of vllm-27508 (0.11) are 1.4 GiB above the same model elsewhere.
_MOE_BYTES: Final = Fit(-0.1 * GIB, 0.2 * GIB, 1.2 * GIB)
# The encoder pass. Fixed-size images (Gemma 3, Mistral 3, Llama 4): 0.0 to 0.2 GiB in 0.19.0.
_FIXED_IMAGE_BYTES: Final = Fit(0.0, 0.1 * GIB, 0.5 * GIB)
# Images of any size, no video: 0.4 GiB (Kimi-VL-A3B, 0.19.0).
_ANY_IMAGE_BYTES: Final = Fit(0.0, 0.4 * GIB, 1.0 * GIB)
# Video too (Qwen VL and Omni, GLM-V…): 0.0 (Qwen2.5-Omni-7B, 0.10.2), 1.3 (Qwen3.5-4B, 0.29), 1.7
# (Qwen3-VL-30B-A3B, 0.11: a budget of 153,600 video tokens) and 2.1 GiB (Qwen3.5-35B-A3B, 0.27).
_VIDEO_BYTES: Final = Fit(0.0, 1.1 * GIB, 2.3 * GIB)
_ANY_IMAGE_TYPES: Final = ("kimi_vl", "kimi_k25", "internvl", "lfm2_vl", "step3")
_FIXED_IMAGE_TYPES: Final = (
    "gemma3",
    "mistral3",
    "llama4",
    "llava",
    "paligemma",
    "pixtral",
    # Audio of 30 s, always. No log names its GPU; one of 0.15.1 leaves at most 0.2 GiB if its card
    # has 16 GiB.
    "whisper",
)
# Sparse MLA keeps a prefill workspace of `factor x max_model_len` rows of 576 x 2 bytes (0.33,
# read); factor 5 up to 256K tokens, else 2.
_SPARSE_MLA_ROW_BYTES: Final = 576 * 2
_SPARSE_MLA_LONG: Final = 256 * 1024
# The same command's pool moves by 0.5 GiB and more from boot to boot (cold or warm compile).
_NOISE_BYTES: Final = Fit(-0.45 * GIB, 0.0, 0.45 * GIB)

# Outside torch. Before 0.9.2 everything outside counted, the CUDA context too: 0.1 to 0.9 GiB
# (five reports of 0.8.5 on L4 and L40S). Later on one GPU 0.02-0.14 (0.10, 0.11) and 0.24-0.46
# (0.19.0), 0.07 with pipelines only; NCCL at TP > 1: 0.09-1.38 (0.11), 2.07-2.21 (0.19.0),
# 0.13-0.95 (0.27 and later, which measure by free memory).
_NON_TORCH_ONE_GPU: Final = (
    ("0", Fit(0.1 * GIB, 0.5 * GIB, 1.0 * GIB)),
    ("0.9.2", Fit(0.0, 0.13 * GIB, 0.3 * GIB)),
    ("0.17", Fit(0.05 * GIB, 0.25 * GIB, 0.5 * GIB)),
)
_NON_TORCH_TP: Final = (
    ("0", Fit(0.3 * GIB, 1.0 * GIB, 1.8 * GIB)),
    ("0.9.2", Fit(0.05 * GIB, 0.8 * GIB, 1.6 * GIB)),
    ("0.17", Fit(1.8 * GIB, 2.1 * GIB, 2.4 * GIB)),
    ("0.20", Fit(0.1 * GIB, 1.5 * GIB, 2.4 * GIB)),
    ("0.27", Fit(0.05 * GIB, 0.5 * GIB, 1.2 * GIB)),
)
# Communicators of data and expert parallelism beside it: the same two reports.
_NON_TORCH_DATA_PARALLEL: Final = Fit(0.2 * GIB, 1.6 * GIB, 2.8 * GIB)

# CUDA graphs per layer: 1.4-24 MiB (six dense models) and 1.7-65 MiB (nine MoE models); the
# estimate that 0.20 subtracts is up to 2.4 x what capture then takes.
_GRAPHS_DENSE: Final = Fit(2 * MIB, 14 * MIB, 28 * MIB)
_GRAPHS_MOE: Final = Fit(2 * MIB, 32 * MIB, 65 * MIB)
_GRAPHS_FIXED: Final = Fit(0.0, 0.1 * GIB, 0.3 * GIB)


@lru_cache(maxsize=32)
def _at(release: tuple[int, ...], steps: tuple[tuple[str, Fit], ...]) -> Fit:
    value = steps[0][1]
    for first, candidate in steps[1:]:
        if release < Version(first).release:
            break
        value = candidate
    return value


def activation_bytes(
    settings: VllmSettings, version: Version, model: ModelSpec, *, is_sampling_stage: bool = True
) -> Interval:
    """Peak of the profile run on one rank, with the workspaces that are made in it."""
    parts = [
        _larger_run(settings, version, model, is_sampling_stage=is_sampling_stage),
        _NOISE_BYTES.times(1),
        *_extras(settings, model),
    ]
    return _not_negative(sum_of(parts))


def _larger_run(
    settings: VllmSettings, version: Version, model: ModelSpec, *, is_sampling_stage: bool
) -> Interval:
    """The sampler's run or the forward pass, whichever peaks higher."""
    tokens = settings.max_num_batched_tokens.value
    tp = settings.tensor_parallel_size.value
    rows = min(settings.max_num_seqs.value, tokens)
    width = (2 if settings.dtype.value == "float32" else 1) * tokens
    beside = round(width * model.hidden_size * _BESIDE_SAMPLER_BYTES)
    sampler = ZERO
    if is_sampling_stage:
        steps = _SAMPLER_BYTES if tp == 1 else _SAMPLER_BYTES_TP
        sampler = _at(version.release, steps).times(rows * model.vocab_size)
    mlp = max(model.intermediate_sizes, default=0) / tp
    has_stages = settings.pipeline_parallel_size.value > 1
    hidden_bytes = _FORWARD_HIDDEN_BYTES + (_HANDED_OVER_BYTES if has_stages else 0)
    forward = round(width * (hidden_bytes * model.hidden_size + _FORWARD_MLP_BYTES * mlp))
    forward += _expert_pass(settings, model)
    return Interval(*(max(end + beside, forward) for end in sampler))


def _expert_pass(settings: VllmSettings, model: ModelSpec) -> int:
    """Buffers of the routed experts: every data-parallel rank's tokens come together.

    Tokens and results, and for a chunk of them ``top-k x (max(2 I, h) + I)`` elements of two
    bytes, as fused experts keep them. Two reports with DP 8 and EP (recipes-12, 0.10.1) are above
    the sampler's peak by about what this says.
    """
    routed = [group.layer.experts for group in model.layer_groups if group.layer.experts]
    data_parallel = settings.data_parallel_size.value
    if not routed or data_parallel == 1:
        return 0  # without data parallelism the sampler's run peaks higher in every report
    tokens = settings.max_num_batched_tokens.value * data_parallel
    h, inner = model.hidden_size, max(experts.moe_intermediate_size for experts in routed)
    if not settings.enable_expert_parallel.value:
        inner //= settings.tensor_parallel_size.value * data_parallel
    visits = min(tokens, _EXPERT_CHUNK) * max(e.num_experts_per_tok for e in routed)
    return 2 * (2 * tokens * h + visits * (max(2 * inner, h) + inner))


def _not_negative(value: Interval) -> Interval:
    return Interval(*(max(0, end) for end in value))


def sum_of(parts: Sequence[Interval]) -> Interval:
    """The sum of figures whose errors have nothing to do with each other.

    Expected values add up; the distances to the ends add up like standard deviations
    (root of the sum of squares), since not all are off the same way at once.
    """
    expected = sum(part.expected for part in parts)
    below = math.hypot(*(part.expected - part.low for part in parts))
    above = math.hypot(*(part.high - part.expected for part in parts))
    return Interval(expected - round(below), expected, expected + round(above))


def shares_of_bar(terms: Sequence[Interval]) -> tuple[Interval, ...]:
    """Each term with its share of the error bar of their sum, so that the shares add up to it."""
    total = sum_of(terms)
    below = _ratio(total.expected - total.low, [term.expected - term.low for term in terms])
    above = _ratio(total.high - total.expected, [term.high - term.expected for term in terms])
    return tuple(
        Interval(
            term.expected - math.ceil(below * (term.expected - term.low)),
            term.expected,
            term.expected + math.ceil(above * (term.high - term.expected)),
        )
        for term in terms
    )


def _ratio(joint: int, alone: list[int]) -> float:
    return joint / sum(alone) if sum(alone) else 0.0


def _extras(settings: VllmSettings, model: ModelSpec) -> list[Interval]:
    extras: list[Interval] = []
    if any(group.layer.experts is not None for group in model.layer_groups):
        extras.append(_MOE_BYTES.times(1))
    if model.is_multimodal and not settings.language_model_only.value:
        extras.append(_encoder_pass(model).times(1))
    length = settings.max_model_len.value
    if length is not None and _has_sparse_mla(model):
        factor = 5 if length <= _SPARSE_MLA_LONG else 2
        extras.append(Interval.exact(factor * length * _SPARSE_MLA_ROW_BYTES))
    return extras


def _encoder_pass(model: ModelSpec) -> Fit:
    if model.model_type.startswith(_FIXED_IMAGE_TYPES):
        return _FIXED_IMAGE_BYTES
    return _ANY_IMAGE_BYTES if model.model_type.startswith(_ANY_IMAGE_TYPES) else _VIDEO_BYTES


def _has_sparse_mla(model: ModelSpec) -> bool:
    kinds = {type(cache) for group in model.layer_groups for cache in group.layer.caches}
    return IndexerCache in kinds and LatentCache in kinds


def non_torch_bytes(settings: VllmSettings, version: Version) -> Interval:
    """Memory that grows outside torch during start-up: NCCL, cuBLAS, kernels."""
    if settings.enable_expert_parallel.value and settings.data_parallel_size.value > 1:
        return _NON_TORCH_DATA_PARALLEL.times(1)
    has_collectives = settings.tensor_parallel_size.value > 1
    steps = _NON_TORCH_TP if has_collectives else _NON_TORCH_ONE_GPU
    return _at(version.release, steps).times(1)


def graph_bytes(settings: VllmSettings, model: ModelSpec, num_layers: int) -> Interval:
    """CUDA graphs of a rank with so many layers; none under ``--enforce-eager``."""
    if not settings.has_cuda_graphs:
        return ZERO
    is_moe = any(group.layer.experts is not None for group in model.layer_groups)
    per_layer = _GRAPHS_MOE if is_moe else _GRAPHS_DENSE
    return per_layer.times(num_layers) + _GRAPHS_FIXED.times(1)
