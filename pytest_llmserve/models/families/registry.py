"""Which reader an architecture has, where its text config is, and its habits in a pipeline.

Pipeline habits as vLLM 0.32 builds them (design notes, section 6.1): most families keep the
vocabulary matrices on the first and last stage only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    has_rotary_tables: bool = True


# vLLM runs these through its Transformers backend: no cos/sin tables, vocabulary at the ends.
def _backend(reader: str) -> Family:
    return Family(reader, has_rotary_tables=False)


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
    "OlmoForCausalLM": _backend("llama:olmo"),
    "Olmo2ForCausalLM": _backend("llama:olmo2"),
    "Olmo3ForCausalLM": _backend("llama:olmo2"),
    "SeedOssForCausalLM": _backend("llama:seed_oss"),
    "SmolLM3ForCausalLM": _backend("llama:smollm3"),
    "GlmForCausalLM": _backend("llama:glm"),
    "Glm4ForCausalLM": Family("llama:glm4"),
    "Ernie4_5ForCausalLM": Family("llama:ernie"),
    "Ernie4_5_ForCausalLM": Family("llama:ernie"),
    "HunYuanDenseV1ForCausalLM": _backend("llama:hunyuan_dense"),
    "NemotronForCausalLM": Family("llama:nemotron"),
    "ArceeForCausalLM": _backend("llama:arcee"),
    "ApertusForCausalLM": Family("llama:apertus"),
    "InternLMForCausalLM": Family("llama:internlm"),
    "InternLM2ForCausalLM": Family("llama:internlm2"),
    "InternLM3ForCausalLM": Family("llama:internlm2"),
    "BaichuanForCausalLM": Family("llama:baichuan"),
    "BaiChuanForCausalLM": Family("llama:baichuan"),
    "OrionForCausalLM": Family("llama:orion"),
    "QWenLMHeadModel": Family("llama:qwen1"),
    "MiniCPMForCausalLM": Family("llama:minicpm", "everywhere"),
    # mixtures of experts
    "MixtralForCausalLM": Family("moe:mixtral", "everywhere"),
    "Qwen2MoeForCausalLM": Family("moe:qwen2_moe", "everywhere"),
    "Qwen3MoeForCausalLM": Family("moe:qwen3_moe", "everywhere"),
    "OlmoeForCausalLM": Family("moe:olmoe", "everywhere"),
    "PhiMoEForCausalLM": Family("moe:phimoe", "everywhere"),
    "PhimoeForCausalLM": Family("moe:phimoe", "everywhere"),
    "GptOssForCausalLM": Family("moe:gpt_oss", "everywhere"),
    "Ernie4_5_MoeForCausalLM": Family("moe:ernie_moe"),
    "Ernie4_5_MoEForCausalLM": Family("moe:ernie_moe"),
    "Glm4MoeForCausalLM": Family("moe:glm4_moe"),
    "Dots1ForCausalLM": _backend("moe:dots1"),
    "DeepseekForCausalLM": Family("moe:deepseek_moe"),
    "BailingMoeForCausalLM": Family("moe:bailing"),
    "BailingMoeV2ForCausalLM": Family("moe:bailing"),
    "MiniMaxM2ForCausalLM": Family("moe:minimax_m2"),
    "MiniMaxM1ForCausalLM": Family("moe:minimax_m1"),
    "MiniMaxText01ForCausalLM": Family("moe:minimax_m1"),
    "GraniteMoeForCausalLM": Family("moe:granite_moe", "everywhere"),
    "GraniteMoeSharedForCausalLM": Family("moe:granite_moe", "everywhere"),
    "Llama4ForCausalLM": Family("moe:llama4"),
    "HunYuanMoEV1ForCausalLM": _backend("moe:hunyuan_moe"),
    "MiMoV2FlashForCausalLM": Family("moe:mimo_v2"),
    "ExaoneMoEForCausalLM": Family("moe:exaone_moe"),
    "ExaoneMoeForCausalLM": Family("moe:exaone_moe"),
    # latent attention
    "DeepseekV2ForCausalLM": Family("latent:deepseek_v2"),
    "DeepseekV3ForCausalLM": Family("latent:deepseek_v3"),
    "Glm4MoeLiteForCausalLM": Family("latent:glm4_moe_lite"),
    "DeepseekV32ForCausalLM": Family("latent:deepseek_v32"),
    "GlmMoeDsaForCausalLM": Family("latent:glm_dsa"),
    "MiniCPM3ForCausalLM": Family("latent:minicpm3", "everywhere"),
    # older ones
    "GPT2LMHeadModel": Family("classic:gpt2", "everywhere"),
    "GPTBigCodeForCausalLM": _backend("classic:gpt_bigcode"),
    "GPTJForCausalLM": Family("classic:gptj", "everywhere"),
    "GPTNeoXForCausalLM": _backend("classic:gpt_neox"),
    "BloomForCausalLM": Family("classic:bloom", "everywhere"),
    "OPTForCausalLM": Family("classic:opt", "everywhere"),
    "MptForCausalLM": Family("classic:mpt", "everywhere"),
    "MPTForCausalLM": Family("classic:mpt", "everywhere"),
    "Starcoder2ForCausalLM": _backend("classic:starcoder2"),
    "FalconForCausalLM": Family("classic:falcon", "everywhere"),
    "RWForCausalLM": Family("classic:falcon", "everywhere"),
    "PhiForCausalLM": _backend("classic:phi"),
    "Phi3SmallForCausalLM": Family("classic:phi3_small", "everywhere"),
    "StableLmForCausalLM": Family("classic:stablelm", "everywhere"),
    "StableLMEpochForCausalLM": Family("classic:stablelm", "everywhere"),
    "CohereForCausalLM": Family("classic:cohere", "everywhere"),
    "Cohere2ForCausalLM": Family("classic:cohere2", "everywhere"),
    "ChatGLMModel": Family("classic:chatglm", "everywhere"),
    "ChatGLMForConditionalGeneration": Family("classic:chatglm", "everywhere"),
    "GemmaForCausalLM": Family("gemma:gemma", "everywhere"),
    "Gemma2ForCausalLM": Family("gemma:gemma2", "everywhere"),
    "Gemma3ForCausalLM": Family("gemma:gemma3", "everywhere"),
    # hybrids
    "Qwen3NextForCausalLM": Family("hybrid:qwen3_next", "everywhere"),
    "KimiLinearForCausalLM": Family("hybrid:kimi_linear"),
    "NemotronHForCausalLM": Family("state_space:nemotron_h", "everywhere"),
    "GraniteMoeHybridForCausalLM": Family("state_space:granite_hybrid", "everywhere"),
    "FalconH1ForCausalLM": Family("state_space:falcon_h1"),
    "BambaForCausalLM": Family("state_space:bamba", "everywhere"),
    "JambaForCausalLM": Family("state_space:jamba", "everywhere"),
    "Mamba2ForCausalLM": Family("state_space:mamba2", "everywhere"),
    "MambaForCausalLM": Family("state_space:mamba1", "everywhere"),
    "FalconMambaForCausalLM": Family("state_space:mamba1", "everywhere"),
    "Lfm2ForCausalLM": Family("hybrid:lfm2", "embedding_everywhere"),
    "Lfm2MoeForCausalLM": Family("hybrid:lfm2_moe", "embedding_everywhere"),
    # draft heads
    "LlamaForCausalLMEagle3": Family("drafts:eagle3"),
    "Eagle3LlamaForCausalLM": Family("drafts:eagle3"),
    "DFlashDraftModel": Family("drafts:dflash"),
    # with vision towers
    "Gemma3ForConditionalGeneration": Family(
        "gemma:gemma3", "everywhere", ("text_config",), "gemma3_text", "towers:gemma3"
    ),
    "Qwen2VLForConditionalGeneration": Family(
        "llama:qwen2", "ends", ("text_config",), "qwen2_vl_text", "towers_qwen:qwen2_vl"
    ),
    "Qwen2_5_VLForConditionalGeneration": Family(
        "llama:qwen2", "ends", ("text_config",), "qwen2_5_vl_text", "towers_qwen:qwen25_vl"
    ),
    "Qwen3VLForConditionalGeneration": Family(
        "llama:qwen3", "ends", ("text_config",), "qwen3_vl_text", "towers_qwen:qwen3_vl"
    ),
    "Qwen3VLMoeForConditionalGeneration": Family(
        "moe:qwen3_moe_fused",
        "everywhere",
        ("text_config",),
        "qwen3_vl_moe_text",
        "towers_qwen:qwen3_vl",
    ),
    "Qwen3_5ForConditionalGeneration": Family(
        "hybrid:qwen3_5",
        "embedding_everywhere",
        ("text_config",),
        "qwen3_5_text",
        "towers_qwen:qwen3_5",
    ),
    "Qwen3_5MoeForConditionalGeneration": Family(
        "hybrid:qwen3_5",
        "embedding_everywhere",
        ("text_config",),
        "qwen3_5_moe_text",
        "towers_qwen:qwen3_5",
    ),
    "Glm4vForConditionalGeneration": Family(
        "llama:glm4", "ends", ("text_config",), "glm4v_text", "towers_qwen:glm4v"
    ),
    "Glm4vMoeForConditionalGeneration": Family(
        "moe:glm4_moe", "ends", ("text_config",), "glm4v_moe_text", "towers_qwen:glm4v"
    ),
    "Llama4ForConditionalGeneration": Family(
        "moe:llama4", "ends", ("text_config",), "llama4_text", "towers:llama4"
    ),
    "MllamaForConditionalGeneration": Family(
        "llama:mllama", "ends", ("text_config",), "mllama_text_model", "towers:mllama"
    ),
    "LlavaForConditionalGeneration": Family("", "ends", ("text_config",), "llama", "towers:llava"),
    "Mistral3ForConditionalGeneration": Family(
        "", "ends", ("text_config",), "mistral", "towers:mistral3"
    ),
    "KimiK25ForConditionalGeneration": Family(
        "latent:deepseek_v3", "ends", ("text_config",), "deepseek_v3", "towers:kimi_k25"
    ),
    "Lfm2VlForConditionalGeneration": Family(
        "", "embedding_everywhere", ("text_config",), "lfm2", "towers:lfm2_vl"
    ),
    "MiniCPMV4_6ForConditionalGeneration": Family(
        "hybrid:qwen3_5",
        "embedding_everywhere",
        ("text_config",),
        "qwen3_5_text",
        "towers:minicpmv4_6",
    ),
    "Gemma4ForConditionalGeneration": Family(
        "gemma_layered:gemma4", "everywhere", ("text_config",), "gemma4_text", "towers_gemma:gemma4"
    ),
    "Gemma4ForCausalLM": Family("gemma_layered:gemma4", "everywhere"),
    "Gemma3nForConditionalGeneration": Family(
        "gemma_layered:gemma3n",
        "everywhere",
        ("text_config",),
        "gemma3n_text",
        "towers_gemma3n:gemma3n",
    ),
    "Gemma3nForCausalLM": Family("gemma_layered:gemma3n", "everywhere"),
    "DeciLMForCausalLM": Family("varied:nemotron_nas"),
    "MiniMaxM3SparseForConditionalGeneration": Family(
        "varied:minimax_m3", "ends", ("text_config",), "minimax_m3_vl_text", "towers:minimax_m3"
    ),
    "Qwen2_5OmniForConditionalGeneration": Family(
        "llama:qwen2",
        "ends",
        ("thinker_config", "text_config"),
        "qwen2_5_omni_text",
        "towers_qwen:qwen25_omni",
    ),
    "Qwen2_5OmniModel": Family(
        "llama:qwen2",
        "ends",
        ("thinker_config", "text_config"),
        "qwen2_5_omni_text",
        "towers_qwen:qwen25_omni",
    ),
    "LlavaNextForConditionalGeneration": Family(
        "", "ends", ("text_config",), "llama", "towers:llava_next"
    ),
    "InternVLForConditionalGeneration": Family(
        "", "ends", ("text_config",), "qwen2", "towers:internvl"
    ),
    "KimiVLForConditionalGeneration": Family(
        "latent:deepseek_v3", "ends", ("text_config",), "deepseek_v3", "towers:kimi_k25"
    ),
    "Qwen3OmniMoeForConditionalGeneration": Family(
        "moe:qwen3_moe_fused",
        "everywhere",
        ("thinker_config", "text_config"),
        "qwen3_omni_moe_text",
        "towers:qwen3_omni",
    ),
    "InternVLChatModel": Family("", "ends", ("llm_config",), "llama", "towers:internvl"),
    "Phi3VForCausalLM": Family("llama:phi3", "ends", (), "phi3", "towers:phi3_v"),
    # an encoder and a decoder
    "WhisperForConditionalGeneration": Family(
        "whisper:whisper", tower="whisper:encoder", has_rotary_tables=False
    ),
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
    "lfm2": "Lfm2ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "opt": "OPTForCausalLM",
    "bloom": "BloomForCausalLM",
    "falcon": "FalconForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "phi": "PhiForCausalLM",
}
