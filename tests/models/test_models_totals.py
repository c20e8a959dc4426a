"""Parameter totals and cache sizes of bundled models against outside counts.

Totals and active parameters: transformers 5.24.0, each model built without weights on torch's meta
device; MTP layers are not built and router correction biases are buffers there. Cache elements per
token: transformers' own cache objects while every window still grows (Falcon's heads counted once).
"""

import pytest

from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.models.spec import Group, ModelSpec
from pytest_llmserve.models.totals import (
    active_parameters,
    kv_elements_per_token,
    parameter_count,
    state_elements,
    text_parameters,
    total_parameters,
)

COUNTS = [
    # id, total, active, cache elements per token
    ("meta-llama/Llama-2-7b-hf", 6_738_415_616, 6_738_415_616, 262144),
    ("meta-llama/Llama-2-13b-hf", 13_015_864_320, 13_015_864_320, 409600),
    ("meta-llama/Llama-2-70b-hf", 68_976_648_192, 68_976_648_192, 163840),
    ("meta-llama/Meta-Llama-3-8B", 8_030_261_248, 8_030_261_248, 65536),
    ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248, 8_030_261_248, 65536),
    ("meta-llama/Llama-3.1-70B-Instruct", 70_553_706_496, 70_553_706_496, 163840),
    ("meta-llama/Meta-Llama-3.1-405B", 405_853_388_800, 405_853_388_800, 258048),
    ("meta-llama/Llama-3.2-1B-Instruct", 1_235_814_400, 1_235_814_400, 16384),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 108_641_793_536, 18_044_827_136, 98304),
    ("codellama/CodeLlama-34b-Instruct-hf", 33_743_970_304, 33_743_970_304, 98304),
    ("01-ai/Yi-6B-Chat", 6_061_035_520, 6_061_035_520, 32768),
    ("mistralai/Mistral-7B-v0.1", 7_241_732_096, 7_241_732_096, 65536),
    ("mistralai/Mistral-Nemo-Instruct-2407", 12_247_782_400, 12_247_782_400, 81920),
    ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704, 12_879_925_248, 65536),
    ("mistralai/Mixtral-8x22B-v0.1", 140_620_634_112, 39_152_031_744, 114688),
    ("Qwen/Qwen1.5-7B-Chat", 7_721_324_544, 7_721_324_544, 262144),
    ("Qwen/Qwen1.5-MoE-A2.7B", 14_315_784_192, 2_689_173_504, 98304),
    ("Qwen/Qwen2-72B-Instruct", 72_706_203_648, 72_706_203_648, 163840),
    ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768, 494_032_768, 6144),
    ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, 7_615_616_512, 28672),
    ("Qwen/Qwen2.5-32B-Instruct", 32_763_876_352, 32_763_876_352, 131072),
    ("Qwen/Qwen3-8B", 8_190_735_360, 8_190_735_360, 73728),
    ("Qwen/Qwen3-32B", 32_762_123_264, 32_762_123_264, 131072),
    ("Qwen/Qwen3-235B-A22B", 235_093_634_560, 22_190_763_520, 96256),
    ("Qwen/Qwen3-30B-A3B-FP8", 30_532_122_624, 3_353_032_704, 49152),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 79_674_391_296, 3_874_929_408, 12288),
    ("Qwen/Qwen3.5-35B-A3B", 35_107_181_936, 3_901_560_176, 10240),
    ("Qwen/Qwen2.5-VL-7B-Instruct", 8_292_166_656, 8_292_166_656, 28672),
    ("Qwen/Qwen3-VL-8B-Instruct", 8_767_123_696, 8_767_123_696, 73728),
    ("google/gemma-7b", 8_537_680_896, 8_537_680_896, 229376),
    ("google/gemma-2-9b", 9_241_705_984, 9_241_705_984, 172032),
    ("google/gemma-3-27b-it", 27_432_406_640, 27_432_406_640, 253952),
    ("google/gemma-3-4b-it", 4_300_079_472, 4_300_079_472, 69632),
    ("google/gemma-4-E2B-it", 5_104_297_504, 5_104_297_504, 9216),
    ("google/gemma-4-26B-A4B", 25_805_933_872, 4_395_322_672, 112640),
    ("microsoft/phi-2", 2_779_683_840, 2_779_683_840, 163840),
    ("microsoft/Phi-3-mini-128k-instruct", 3_821_079_552, 3_821_079_552, 196608),
    ("microsoft/Phi-3.5-MoE-instruct", 41_873_153_344, 6_640_999_744, 65536),
    ("microsoft/phi-4", 14_659_507_200, 14_659_507_200, 102400),
    ("openai/gpt-oss-20b", 20_914_757_184, 4_187_440_704, 24576),
    ("openai/gpt-oss-120b", 116_829_156_672, 5_711_982_912, 36864),
    ("deepseek-ai/DeepSeek-V2-Lite", 15_706_484_224, 2_661_150_208, 15552),
    ("deepseek-ai/DeepSeek-V3", 671_026_404_352, 37_552_282_624, 35136),
    ("moonshotai/Kimi-K2-Instruct", 1_026_408_209_408, 32_861_477_888, 35136),
    ("moonshotai/Kimi-K2.5", 1_026_879_353_328, 33_332_621_808, 35136),
    ("zai-org/GLM-4.5", 352_797_814_784, 33_632_251_904, 188416),
    ("zai-org/GLM-5", 743_911_199_232, 41_784_709_632, 54912),
    ("zai-org/GLM-5.3", 743_377_000_704, 41_250_511_104, 47616),
    ("THUDM/GLM-4.1V-9B-Thinking", 10_292_777_472, 10_292_777_472, 20480),
    ("tiiuae/falcon-7b", 6_921_720_704, 6_921_720_704, 4096),
    ("tiiuae/falcon-40b", 41_303_293_952, 41_303_293_952, 61440),
    ("openai-community/gpt2", 124_439_808, 124_439_808, 18432),
    ("EleutherAI/gpt-j-6b", 6_050_882_784, 6_050_882_784, 229376),
    ("WizardLM/WizardCoder-15B-V1.0", 15_517_462_528, 15_517_462_528, 10240),
    ("bigcode/starcoder2-7b", 7_173_923_840, 7_173_923_840, 32768),
    ("CohereForAI/aya-23-8B", 8_028_033_024, 8_028_033_024, 65536),
    ("allenai/OLMo-2-1124-7B", 7_298_617_344, 7_298_617_344, 262144),
    ("stabilityai/stablelm-3b-4e1t", 2_795_443_200, 2_795_443_200, 163840),
    ("HuggingFaceTB/SmolLM3-3B-Base", 3_075_098_624, 3_075_098_624, 36864),
    ("LGAI-EXAONE/EXAONE-4.0-32B", 32_003_216_384, 32_003_216_384, 131072),
    ("ByteDance-Seed/Seed-OSS-36B-Instruct", 36_151_104_512, 36_151_104_512, 131072),
    ("nvidia/Nemotron-H-8B-Base-8K", 8_100_852_736, 8_100_852_736, 8192),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31_577_937_344, 3_580_073_408, 3072),
    ("ai21labs/AI21-Jamba-1.5-Mini", 51_570_323_328, 12_110_311_296, 8192),
    ("LiquidAI/LFM2.5-VL-1.6B", 1_596_625_904, 1_596_625_904, 6144),
    ("tiiuae/falcon-mamba-7b", 7_272_665_088, 7_272_665_088, 0),
    ("nvidia/MiniMax-M3-NVFP4", 427_040_132_864, 26_828_033_792, 68736),
    ("meta-llama/Llama-3.2-90B-Vision-Instruct", 88_593_355_323, 88_593_355_323, 163840),
    ("mistralai/Devstral-Small-2-24B-Instruct-2512", 24_011_361_280, 24_011_361_280, 81920),
    ("llava-hf/llava-1.5-7b-hf", 7_063_427_072, 7_063_427_072, 262144),
]


def bundled(model_id: str) -> ModelSpec:
    spec = find_in_catalogue(model_id)
    assert spec is not None
    return spec


@pytest.mark.parametrize(("model_id", "total", "active", "per_token"), COUNTS)
def test_counts_equal_those_of_the_built_model(
    model_id: str, total: int, active: int, per_token: int
) -> None:
    spec = bundled(model_id)
    assert total_parameters(spec) == total
    assert active_parameters(spec) == active
    assert kv_elements_per_token(spec) == per_token


@pytest.mark.parametrize(
    ("model_id", "total"),
    [
        # totals that the safetensors metadata on the model pages state
        ("meta-llama/Llama-3.2-3B-Instruct", 3_212_749_824),
        ("mistralai/Mistral-Small-24B-Instruct-2501", 23_572_403_200),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 24_011_361_280),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 480_154_875_392),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 401_583_781_376),
        ("zai-org/GLM-4-32B-0414", 32_566_081_536),
        ("ibm-granite/granite-3.1-8b-instruct", 8_170_848_256),
        ("CohereForAI/c4ai-command-r-plus", 103_810_674_688),
        ("facebook/opt-6.7b", 6_658_473_984),
        ("bigscience/bloom-7b1", 7_069_016_064),
        ("01-ai/Yi-34B-Chat", 34_388_917_248),
    ],
)
def test_totals_equal_the_published_ones(model_id: str, total: int) -> None:
    assert total_parameters(bundled(model_id)) == total


def test_groups_of_deepseek_v3() -> None:
    # by_group of the built model, transformers 5.24.0
    counts = parameter_count(bundled("deepseek-ai/DeepSeek-V3"))
    assert counts[Group.EMBEDDING] == counts[Group.LM_HEAD] == 129280 * 7168
    assert counts[Group.EXPERTS] == 58 * 256 * 3 * 7168 * 2048
    assert counts[Group.SHARED_EXPERTS] == 58 * 3 * 7168 * 2048
    assert counts[Group.ROUTER] == 58 * 256 * 7168
    assert counts[Group.MLP] == 3 * 3 * 7168 * 18432
    assert counts[Group.VISION] == 0


def test_a_correction_bias_is_stored_and_no_parameter() -> None:
    spec = bundled("deepseek-ai/DeepSeek-V3")
    buffers = [
        weight
        for group in spec.layer_groups
        for weight in group.layer.weights
        if not weight.is_parameter
    ]
    # transformers 5.24.0 builds 14,848 of them as buffers
    assert sum(weight.num_elements for weight in buffers) * 58 == 14_848
    assert {weight.dtype_bits for weight in buffers} == {32}


def test_text_parameters_leave_the_tower_out() -> None:
    spec = bundled("google/gemma-3-27b-it")
    # text_params of the built model, transformers 5.24.0
    assert text_parameters(spec) == 27_009_346_304
    assert total_parameters(spec) - text_parameters(spec) == sum(
        weight.num_elements for weight in spec.vision
    )


def test_state_of_qwen3_next() -> None:
    # vLLM 0.32: conv (3, 8192) and recurrent (32, 128, 128) in each of 36 layers
    spec = bundled("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert state_elements(spec) == 36 * (3 * 8192 + 32 * 128 * 128)


def test_state_of_falcon_mamba() -> None:
    # transformers keeps 4 conv inputs where engines keep 3: 10,485,760 fixed elements there
    spec = bundled("tiiuae/falcon-mamba-7b")
    assert state_elements(spec) + 64 * 8192 == 10_485_760
