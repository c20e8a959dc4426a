"""Models by family and attention kind, and GPUs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from hypothesis import strategies as st

from pytest_llmserve.hardware.catalogue import gpu_ids, load_gpu
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.strategies.drawn import DrawnGpu, DrawnModel, as_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    return as_kind(DrawnGpu, load_gpu(name))


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
    return as_kind(DrawnModel, spec)
