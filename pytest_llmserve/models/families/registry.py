"""Which reader an architecture has, where its text config is, and its habits in a pipeline.

Pipeline habits as vLLM 0.32 builds them (design notes, section 6.1): most families keep the
vocabulary matrices on the first and last stage only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Family:
    """How one architecture is read.

    ``reader`` is ``module:function``; empty: that of the nested text config's model_type.
    ``text_type`` is the model_type of the nested text config where the file does not say.
    """

    reader: str
    vocab: Literal["ends", "everywhere", "embedding_everywhere"] = "ends"
    text_keys: tuple[str, ...] = ()
    text_type: str = ""
    tower: str = ""


FAMILIES: Final[Mapping[str, Family]] = {
    # llama-shaped
    "LlamaForCausalLM": Family("llama:llama"),
    "LLaMAForCausalLM": Family("llama:llama"),
    "AquilaForCausalLM": Family("llama:llama"),
    "AquilaModel": Family("llama:llama"),
    "XverseForCausalLM": Family("llama:llama"),
    "MiMoForCausalLM": Family("llama:qwen2"),
    "GraniteForCausalLM": Family("llama:llama"),
    "MistralForCausalLM": Family("llama:mistral"),
    "Ministral3ForCausalLM": Family("llama:mistral"),
    "MinistralForCausalLM": Family("llama:mistral"),
    "Qwen2ForCausalLM": Family("llama:qwen2"),
    "Qwen3ForCausalLM": Family("llama:qwen3"),
    "Phi3ForCausalLM": Family("llama:phi3"),
    "Exaone4ForCausalLM": Family("llama:exaone4"),
    "ExaoneForCausalLM": Family("llama:exaone"),
    "OlmoForCausalLM": Family("llama:olmo", "everywhere"),
    "Olmo2ForCausalLM": Family("llama:olmo2", "everywhere"),
    "Olmo3ForCausalLM": Family("llama:olmo2", "everywhere"),
    "SeedOssForCausalLM": Family("llama:seed_oss"),
    "SmolLM3ForCausalLM": Family("llama:smollm3"),
    "GlmForCausalLM": Family("llama:glm"),
    "Glm4ForCausalLM": Family("llama:glm4"),
    "Ernie4_5ForCausalLM": Family("llama:ernie"),
    "Ernie4_5_ForCausalLM": Family("llama:ernie"),
    "HunYuanDenseV1ForCausalLM": Family("llama:hunyuan_dense"),
    "NemotronForCausalLM": Family("llama:nemotron"),
    "ArceeForCausalLM": Family("llama:arcee"),
    "InternLMForCausalLM": Family("llama:internlm"),
    "InternLM2ForCausalLM": Family("llama:internlm2"),
    "InternLM3ForCausalLM": Family("llama:internlm2"),
    "BaichuanForCausalLM": Family("llama:baichuan"),
    "BaiChuanForCausalLM": Family("llama:baichuan"),
    "OrionForCausalLM": Family("llama:orion"),
    "QWenLMHeadModel": Family("llama:qwen1"),
    "MiniCPMForCausalLM": Family("llama:minicpm", "everywhere"),
}
# Where a file names no architecture, and for nested text configs.
MODEL_TYPES: Final[Mapping[str, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "granite": "GraniteForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "glm4": "Glm4ForCausalLM",
}
