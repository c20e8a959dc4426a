"""Laws that every llama-shaped config obeys."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.models.catalogue_file import dump_shape, load_shape
from pytest_llmserve.models.config_reader import read_config, read_shape
from pytest_llmserve.models.errors import ModelError
from pytest_llmserve.models.totals import (
    active_parameters,
    kv_elements_per_token,
    total_parameters,
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    kv_heads = draw(st.integers(1, 8))
    heads = kv_heads * draw(st.integers(1, 8))
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": heads * draw(st.sampled_from([32, 64, 80, 128])),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": draw(st.integers(1, 50_000)),
        "num_hidden_layers": draw(st.integers(1, 200)),
        "vocab_size": draw(st.integers(1, 300_000)),
        "tie_word_embeddings": draw(st.booleans()),
        "attention_bias": draw(st.booleans()),
        "mlp_bias": draw(st.booleans()),
    }
    if draw(st.booleans()):
        config["head_dim"] = draw(st.integers(1, 512))
    return config


@given(configs())
def test_totals_equal_the_closed_formula(config: dict[str, Any]) -> None:
    spec = read_config(config, model_id="x", source="y")
    h, i, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    d = config.get("head_dim", h // heads)
    attention = 2 * h * heads * d + 2 * h * kv_heads * d
    mlp = 3 * h * i
    if config["attention_bias"]:
        attention += heads * d + 2 * kv_heads * d + h
    if config["mlp_bias"]:
        mlp += 2 * i + h
    layer = attention + mlp + 2 * h
    outside = v * h * (1 if config["tie_word_embeddings"] else 2) + h
    assert total_parameters(spec) == config["num_hidden_layers"] * layer + outside
    assert active_parameters(spec) == total_parameters(spec)
    assert kv_elements_per_token(spec) == config["num_hidden_layers"] * 2 * kv_heads * d


@given(configs())
def test_a_shape_survives_the_catalogue_format(config: dict[str, Any]) -> None:
    shape = read_shape(config, source="y")
    assert load_shape(dump_shape(shape)) == shape


@given(configs(), st.integers(2, 16), st.integers(1, 16))
def test_more_experts_never_change_the_active_part(
    config: dict[str, Any], experts: int, more: int
) -> None:
    base = {
        **config,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_experts_per_tok": 2,
    }
    few = read_config({**base, "num_local_experts": experts}, model_id="x", source="y")
    many = read_config({**base, "num_local_experts": experts + more}, model_id="x", source="y")
    routers = config["num_hidden_layers"] * more * config["hidden_size"]
    assert active_parameters(many) - active_parameters(few) == routers


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [
        "architectures",
        "model_type",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "torch_dtype",
        "rope_scaling",
        "rope_parameters",
        "quantization_config",
        "sliding_window",
        "layer_types",
        "tie_word_embeddings",
        "max_position_embeddings",
    ]
)
ARCHITECTURES = st.sampled_from(
    [
        ("LlamaForCausalLM", "llama"),
        ("MistralForCausalLM", "mistral"),
        ("Qwen3MoeForCausalLM", "qwen3_moe"),
        ("DeepseekV3ForCausalLM", "deepseek_v3"),
        ("NemotronHForCausalLM", "nemotron_h"),
        ("Gemma3ForConditionalGeneration", "gemma3"),
        ("GptOssForCausalLM", "gpt_oss"),
    ]
)


@given(configs(), ARCHITECTURES, st.dictionaries(KEYS, JSON, max_size=4))
def test_whatever_a_file_says_is_a_model_or_one_clear_error(
    config: dict[str, Any], names: tuple[str, str], noise: dict[str, Any]
) -> None:
    whole = {**config, "architectures": [names[0]], "model_type": names[1], **noise}
    message = "config.json: "
    try:
        assert total_parameters(read_config(whole, model_id="x", source="config.json")) > 0
    except ModelError as error:
        message = str(error)
    assert message.startswith("config.json: ")
