"""Which scheme a module of a quantised checkpoint has."""

import pytest

from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.models.schemes import scheme_of
from pytest_llmserve.models.spec import Quantization

DOWN = "model.layers.3.mlp.down_proj"


def fp8(*ignore: str) -> Quantization:
    return Quantization(method="fp8", scheme="fp8_tensor", bits=8, ignore=ignore)


def test_an_unquantised_checkpoint_has_no_schemes() -> None:
    assert scheme_of(None, DOWN) is None


@pytest.mark.parametrize(
    ("ignore", "is_quantised"),
    [
        ((), True),
        (("model.layers.3.mlp.down_proj",), False),  # exact
        (("model.layers.3.mlp",), False),  # a prefix of the path
        (("model.layers.3",), False),
        (("model.layers.30",), True),
        (("model.layers.3.mlp.down",), True),  # no whole component
        (("model.layers.3*",), False),
        (("model.layers.3.*",), False),
        (("*.mlp.*",), False),
        (("*.self_attn.*",), True),
        (("re:.*mlp\\.(gate|up|gate_up|down)_proj.*",), False),
        (("re:.*shared_experts.*",), True),
        (("down_proj",), False),  # a bare name is a component
        (("lm_head", "gate"), True),
        (("model.language_model.layers.3.mlp.down_proj",), False),  # other wrappers
        (("language_model.model.layers.3.mlp.down_proj",), False),
    ],
)
def test_ignore_lists(ignore: tuple[str, ...], is_quantised: bool) -> None:
    assert scheme_of(fp8(*ignore), DOWN) == ("fp8_tensor" if is_quantised else None)


@pytest.mark.parametrize(
    ("listed", "path"),
    [
        ("model.layers.0.self_attn.qkv_proj", "model.layers.0.self_attn.q_proj"),
        ("model.layers.0.mlp.gate_up_proj", "model.layers.0.mlp.up_proj"),
        ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.qkv_proj"),
    ],
)
def test_a_fused_name_covers_its_parts(listed: str, path: str) -> None:
    assert scheme_of(fp8(listed), path) is None


@pytest.mark.parametrize(
    "path",
    [
        "lm_head",
        "language_model.lm_head",
        "model.embed_tokens",
        "transformer.wte",
        "model.layers.0.mlp.gate",
        "model.layers.0.block_sparse_moe.gate",
        "model.layers.0.mlp.shared_expert_gate",
        "model.layers.0.self_attn.indexer.weights_proj",
        "model.visual.blocks.0.attn.qkv",
        "vision_tower.transformer.layers.0.attention.q_proj",
    ],
)
def test_what_stays_whole_without_being_listed(path: str) -> None:
    assert scheme_of(fp8(), path) is None


def test_the_head_is_quantised_only_where_it_says_so() -> None:
    quant = Quantization(method="gptq", scheme="int4", bits=4, is_lm_head_quantized=True)
    assert scheme_of(quant, "lm_head") == "int4"


def test_experts_only() -> None:
    quant = Quantization(method="mxfp4", scheme="mxfp4", bits=4, is_experts_only=True)
    assert scheme_of(quant, "model.layers.0.mlp.experts.gate_up_proj") == "mxfp4"
    assert scheme_of(quant, "model.layers.0.self_attn.q_proj") is None


MIXED = Quantization(
    method="modelopt",
    scheme="mixed",
    bits=8,
    per_module={
        "lm_head": "nvfp4",
        "model.language_model.layers.0.mlp.experts": "nvfp4",
        "model.language_model.layers.0.self_attn.q_proj": "fp8_tensor",
        "model.layers.7.mlp.experts.0.gate_proj": "fp8_tensor",
    },
)


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("model.language_model.layers.0.self_attn.q_proj", "fp8_tensor"),
        ("model.layers.0.self_attn.qkv_proj", "fp8_tensor"),
        ("model.language_model.layers.0.mlp.experts.gate_up_proj", "nvfp4"),
        ("model.language_model.layers.0.mlp.experts.0.up_proj", "nvfp4"),
        ("model.language_model.layers.1.self_attn.q_proj", None),
        ("model.layers.7.mlp.experts.gate_up_proj", "fp8_tensor"),
        ("lm_head", "nvfp4"),
        ("model.embed_tokens", None),
    ],
)
def test_mixed_precision_quantises_what_is_listed(path: str, scheme: str | None) -> None:
    assert scheme_of(MIXED, path) == scheme


def test_a_group_for_all_linears_beside_a_narrower_one() -> None:
    quant = Quantization(
        method="compressed-tensors",
        scheme="mixed",
        bits=8,
        ignore=("re:.*self_attn.*",),
        per_module={"re:.*experts.*": "int4", "*": "fp8_channel"},
    )
    assert scheme_of(quant, "model.layers.0.mlp.experts.0.up_proj") == "int4"
    assert scheme_of(quant, "model.layers.0.mlp.up_proj") == "fp8_channel"
    assert scheme_of(quant, "model.layers.0.self_attn.q_proj") is None
    assert scheme_of(quant, "lm_head") is None


@pytest.mark.parametrize(
    ("model_id", "path", "scheme"),
    [
        ("deepseek-ai/DeepSeek-V3", "model.layers.3.mlp.experts.0.up_proj", "fp8_block"),
        ("deepseek-ai/DeepSeek-V3", "model.layers.3.mlp.gate", None),
        # attention of Kimi-K2.5 stays bf16 by a regular expression
        ("moonshotai/Kimi-K2.5", "language_model.model.layers.1.self_attn.o_proj", None),
        ("moonshotai/Kimi-K2.5", "language_model.model.layers.1.mlp.experts.0.up_proj", "int4"),
        ("openai/gpt-oss-120b", "model.layers.0.mlp.experts.down_proj", "mxfp4"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "model.layers.9.self_attn.q_b_proj", None),
        ("nvidia/DeepSeek-V3.1-NVFP4", "model.layers.9.mlp.experts.0.up_proj", "nvfp4"),
        # GDN inputs b and a stay bf16, listed layer by layer
        (
            "Qwen/Qwen3.5-122B-A10B-FP8",
            "model.language_model.layers.0.linear_attn.in_proj_a",
            None,
        ),
        (
            "Qwen/Qwen3.5-122B-A10B-FP8",
            "model.language_model.layers.0.linear_attn.in_proj_z",
            "fp8_block",
        ),
        ("nvidia/Qwen3.6-27B-NVFP4", "lm_head", "nvfp4"),
        (
            "nvidia/Qwen3.6-27B-NVFP4",
            "model.language_model.layers.0.linear_attn.in_proj_z",
            "fp8_tensor",
        ),
    ],
)
def test_schemes_of_bundled_models(model_id: str, path: str, scheme: str | None) -> None:
    spec = find_in_catalogue(model_id)
    assert spec is not None
    assert scheme_of(spec.quantization, path) == scheme


def test_the_names_of_a_model_match_its_own_ignore_list() -> None:
    """Every listed module with a weight of ours is found under ``layers_path``."""
    spec = find_in_catalogue("nvidia/DeepSeek-V3.1-NVFP4")
    assert spec is not None
    assert spec.quantization is not None
    ours = {
        f"{spec.layers_path}.{index}.{weight.name}"
        for group in spec.layer_groups
        for index in group.indices
        for weight in group.layer.weights
    } | {weight.name for weight in spec.outside}
    listed = [name for name in spec.quantization.ignore if "*" not in name]
    assert len(listed) > 200
    assert [name for name in listed if name not in ours] == []
