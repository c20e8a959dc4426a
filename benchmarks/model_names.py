"""Models by other names: repositories whose shape, or whose weights, are those of another one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_llmserve.models.fields import Fields
from pytest_llmserve.models.quantization import read_quantization

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import Quantization

# The same shape, stored in a format whose details are not at hand: never compared by weights.
SAME_SHAPE = {
    "MiniMaxAI/MiniMax-M2": "MiniMaxAI/MiniMax-M2.5",
    "MiniMaxAI/MiniMax-M2.7": "MiniMaxAI/MiniMax-M2.5",
    "lukealonso/MiniMax-M2.7-NVFP4": "MiniMaxAI/MiniMax-M2.5",
    "Qwen3-8B NVFP4 (RedHatAI)": "Qwen/Qwen3-8B",
    "Qwen3-14B NVFP4 (RedHatAI)": "Qwen/Qwen3-14B",
    "Qwen3-30B-A3B NVFP4 (RedHatAI)": "Qwen/Qwen3-30B-A3B",
    "RedHatAI/Qwen3-30B-A3B-NVFP4": "Qwen/Qwen3-30B-A3B",
    "cognitivecomputations/Qwen3-30B-A3B-AWQ": "Qwen/Qwen3-30B-A3B",
    "jart25/Qwen3-Coder-30B-A3B-Instruct-Int4-gptq": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    "Qwen2.5-32B-FP8": "Qwen/Qwen2.5-32B-Instruct",
    "Qwen/Qwen3.6-27B (AutoRound int4)": "nvidia/Qwen3.6-27B-NVFP4",
    "GLM-5.2 NVFP4": "nvidia/GLM-5.2-NVFP4",
}
# The same weights too.
SAME_WEIGHTS = {
    "deepseek-ai/DeepSeek-V2-Lite-Chat": "deepseek-ai/DeepSeek-V2-Lite",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": (
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503"
    ),
    "moonshotai/Kimi-Dev-72B": "Qwen/Qwen2.5-72B-Instruct",
    "Qwen/Qwen3-Next-80B-A3B": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "Qwen/Qwen2.5-32B-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "codellama/CodeLlama-7b-hf": "codellama/CodeLlama-7b-Instruct-hf",
    "Qwen3-8B FP8-dynamic (RedHatAI)": "RedHatAI/Qwen3-8B-FP8-dynamic",
}
_ORGANISATIONS = {
    "Llama": "meta-llama",
    "Meta-Llama": "meta-llama",
    "Qwen": "Qwen",
    "Mistral": "mistralai",
    "Mixtral": "mistralai",
    "Ministral": "mistralai",
    "gemma": "google",
    "phi": "microsoft",
    "granite": "ibm-granite",
    "DeepSeek": "deepseek-ai",
}
# What RedHatAI's model cards say of these endings: linear layers but lm_head (and the vision
# tower), weights per channel, int4 in groups of 128.
_IGNORE = ["lm_head", "re:vision_tower.*", "re:multi_modal_projector.*", "re:.*mlp.gate$"]


def _packed(weights: dict[str, object], scheme: str) -> dict[str, object]:
    return {
        "quant_method": "compressed-tensors",
        "format": scheme,
        "ignore": _IGNORE,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


_ENDINGS = {
    "-FP8-dynamic": _packed(
        {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
        "float-quantized",
    ),
    "-quantized.w8a8": _packed(
        {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}, "int-quantized"
    ),
    "-quantized.w4a16": _packed(
        {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True},
        "pack-quantized",
    ),
}


def variant_of(name: str) -> tuple[str, Quantization] | None:
    """The base and the stored format of a RedHatAI (neuralmagic) repository, by its name."""
    match = re.fullmatch(r"(?:RedHatAI|neuralmagic)/(.+?)(-FP8-dynamic|-quantized\.w\w+)", name)
    if match is None or match[2] not in _ENDINGS:
        return None
    organisation = next((o for p, o in _ORGANISATIONS.items() if match[1].startswith(p)), None)
    if organisation is None:
        return None
    config = Fields({"quantization_config": _ENDINGS[match[2]]}, file=name)
    quantization = read_quantization(config, config, None)
    base = match[1].replace("Meta-Llama-3.", "Llama-3.")
    return (f"{organisation}/{base}", quantization) if quantization else None
