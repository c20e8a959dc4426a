"""What quantization_config and hf_quant_config.json say, by public examples."""

from typing import Any

import pytest

from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.errors import BadConfig
from pytest_llmserve.models.spec import Quantization

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def read(
    block: object = None, beside: dict[str, Any] | None = None, **changes: Any
) -> Quantization | None:
    config = {**BASE, **changes}
    if block is not None:
        config["quantization_config"] = block
    spec = read_config(config, model_id="x", source="config.json", hf_quant_config=beside)
    return spec.quantization


def compressed(weights: dict[str, Any], **changes: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **changes}


FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True}
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # DeepSeek-V3, Qwen3-FP8
    (
        {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
        },
        {"scheme": "fp8_block", "bits": 8, "block_shape": (128, 128)},
    ),
    # Devstral-2
    (
        {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
        {"scheme": "fp8_tensor", "is_static_activation": True, "block_shape": None},
    ),
    # Llama-3.1-405B-Instruct-FP8
    (
        {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["model.layers.0.mlp.up_proj"]},
        {"scheme": "fp8_channel", "ignore": ("model.layers.0.mlp.up_proj",)},
    ),
    # GPTQModel; AutoGPTQ
    (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True},
        {"scheme": "int4", "bits": 4, "group_size": 128, "is_symmetric": True},
    ),
    (
        {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True, "lm_head": True},
        {"scheme": "int8", "group_size": None, "is_lm_head_quantized": True},
    ),
    (
        {"quant_method": "gptq", "bits": 3, "group_size": 128},
        {"scheme": "unknown", "bits": 3},
    ),
    (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*down.*": {}}},
        {"ignore": ("re:.*down.*",)},
    ),
    # AutoAWQ, new and old spelling
    (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
        {"scheme": "int4", "group_size": 128, "is_symmetric": False},
    ),
    (
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM"},
        {"scheme": "int4", "group_size": 64},
    ),
    # RedHatAI ...-FP8-dynamic, ...-FP8, quantized.w8a8, quantized.w4a16
    (compressed({**FLOAT8, "strategy": "channel"}), {"scheme": "fp8_channel"}),
    (compressed({**FLOAT8, "strategy": "tensor"}), {"scheme": "fp8_tensor"}),
    (
        compressed({**FLOAT8, "strategy": "block", "block_structure": [128, 128]}),
        {"scheme": "fp8_block", "block_shape": (128, 128)},
    ),
    (compressed({"num_bits": 8, "type": "int", "strategy": "channel"}), {"scheme": "int8"}),
    (
        compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}),
        {"scheme": "int4", "group_size": 32},
    ),
    (
        compressed(
            {"num_bits": 4, "type": "float", "group_size": 16}, format="nvfp4-pack-quantized"
        ),
        {"scheme": "nvfp4", "group_size": 16},
    ),
    (
        compressed(
            {"num_bits": 4, "type": "float", "group_size": 32}, format="mxfp4-pack-quantized"
        ),
        {"scheme": "mxfp4"},
    ),
    # gpt-oss
    (
        {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        {"scheme": "mxfp4", "bits": 4, "group_size": 32, "is_experts_only": True},
    ),
    # bitsandbytes, with and without quant_method
    (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        {"scheme": "nf4", "bits": 4, "group_size": 64},
    ),
    ({"load_in_8bit": True}, {"method": "bitsandbytes", "scheme": "int8", "bits": 8}),
    # ModelOpt inside config.json
    (
        {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            "ignore": ["lm_head"],
        },
        {"scheme": "nvfp4", "group_size": 16, "kv_cache_scheme": "fp8", "ignore": ("lm_head",)},
    ),
    (
        {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"},
        {"scheme": "fp8_block", "block_shape": (128, 128)},
    ),
    # AMD Quark
    (
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
        },
        {"scheme": "fp8_tensor"},
    ),
    # nobody's: seen, not understood
    (
        {"quant_method": "hqq", "nbits": 4, "group_size": 64},
        {"method": "hqq", "scheme": "unknown", "bits": 4},
    ),
]


@pytest.mark.parametrize(("block", "expected"), CASES)
def test_blocks(block: dict[str, Any], expected: dict[str, Any]) -> None:
    found = read(block)
    assert found is not None
    assert found.method == expected.get("method", block.get("quant_method"))
    assert {key: getattr(found, key) for key in expected} == expected


def test_none_is_none() -> None:
    assert read() is None


def test_without_quant_method_there_is_no_quantisation() -> None:
    # vLLM 0.32 loads Qwen3-32B-FP8-Static-PerTensor as bf16
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    assert read({"quant_algo": "FP8", "ignore": ["lm_head"]}, beside) is None


MODELOPT = {
    "producer": {"name": "modelopt", "version": "0.33.0"},
    "quantization": {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": ["lm_head"],
    },
}


def test_the_file_beside_counts_with_its_producer() -> None:
    found = read(beside=MODELOPT)
    assert found is not None
    assert (found.scheme, found.kv_cache_scheme, found.ignore) == ("nvfp4", "fp8", ("lm_head",))
    assert read(beside={**MODELOPT, "producer": {"name": "someone"}}) is None
    assert read(beside={"quantization": MODELOPT["quantization"]}) is None


def test_config_json_comes_before_the_file_beside() -> None:
    found = read({"quant_method": "fp8", "weight_block_size": [128, 128]}, MODELOPT)
    assert found is not None
    assert found.scheme == "fp8_block"


def test_a_block_in_the_text_config() -> None:
    # Kimi-K2.5 keeps it there
    text = {key: value for key, value in BASE.items() if key != "architectures"}
    block = compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32})
    spec = read_config(
        {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "text_config": {**text, "quantization_config": block},
        },
        model_id="x",
        source="config.json",
    )
    assert spec.quantization is not None
    assert spec.quantization.scheme == "int4"


def test_mixed_precision_lists_its_layers() -> None:
    layers = {
        "model.layers.0.mlp.down_proj": {"quant_algo": "NVFP4"},
        "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
        "model.layers.0.mlp.experts.1.up_proj": {"quant_algo": "NVFP4"},
        "model.layers.1.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
        "model.layers.1.mlp.experts.7.up_proj": {"quant_algo": "FP8"},
    }
    found = read(
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": layers,
        }
    )
    assert found is not None
    assert found.scheme == "mixed"
    assert found.per_module == {
        "model.layers.0.mlp.down_proj": "nvfp4",
        "model.layers.0.self_attn.o_proj": "fp8_tensor",
        "model.layers.0.mlp.experts.0.up_proj": "nvfp4",
        "model.layers.1.mlp.experts.0.up_proj": "unknown",  # its experts disagree
    }


def test_groups_of_different_schemes_are_mixed() -> None:
    block = compressed({**FLOAT8, "strategy": "channel"})
    block["config_groups"]["group_1"] = {
        "targets": ["re:.*experts.*"],
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
    }
    found = read(block)
    assert found is not None
    assert found.per_module == {"*": "fp8_channel", "re:.*experts.*": "int4"}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("fp8", "quantization_config: 'fp8', expected an object"),
        ({"quant_method": 8}, "quant_method: 8, expected a string"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "expected two positive integers"),
        ({"quant_method": "gptq"}, "bits: missing, expected an integer"),
        ({"quant_method": "awq", "bits": "4"}, "bits: '4', expected an integer"),
        (
            {"quant_method": "fp8", "ignored_layers": ["re:(", "lm_head"]},
            "ignored_layers: 're:\\(', expected a regular expression",
        ),
        ({"quant_method": "fp8", "ignored_layers": [3]}, "expected a list of module names"),
        (
            {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}},
            "expected one bit width for the whole checkpoint",
        ),
        (
            compressed({**FLOAT8, "strategy": "block"}),
            "block_structure: None, expected two integers",
        ),
    ],
)
def test_damaged_blocks(block: object, message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        read(block)
