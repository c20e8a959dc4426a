"""Length limits and rotary tables (rows and widths as vLLM 0.32 allocates them)."""

from typing import Any

import pytest

from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.spec import ModelSpec, RotaryTable

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 1000,
}


def read(**changes: Any) -> ModelSpec:
    config = {key: value for key, value in {**BASE, **changes}.items() if value != "absent"}
    return read_config(config, model_id="org/name", source="config.json")


@pytest.mark.parametrize(
    ("rope", "rows"),
    [
        (None, 1000),
        ({"rope_type": "default"}, 1000),
        ({"rope_type": "llama3", "factor": 8.0}, 1000),
        ({"type": "dynamic", "factor": 2.0}, 1000),
        ({"type": "linear", "factor": 4.0}, 4000),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 300}, 1200),
        ({"type": "longrope", "original_max_position_embeddings": 300}, 1300),
        ({"type": "mrope", "mrope_section": [2, 3, 3]}, 4000),
        ({"type": "default", "mrope_section": [2, 3, 3], "mrope_interleaved": True}, 1000),
    ],
)
def test_rows_by_rope_type(rope: dict[str, Any] | None, rows: int) -> None:
    assert read(rope_scaling=rope).rotary_tables == (RotaryTable(rows=rows, width=16),)


def test_rope_parameters_are_the_same_thing() -> None:
    block = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    assert read(rope_parameters=block).rotary_tables[0].rows == 2000


@pytest.mark.parametrize(
    ("model_id", "tables"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", (RotaryTable(rows=131072, width=128),)),
        # MLA rotates qk_rope_head_dim; yarn 4096 x 40
        ("deepseek-ai/DeepSeek-V3", (RotaryTable(rows=163840, width=64),)),
        # float32, yarn 4096 x 32
        ("openai/gpt-oss-20b", (RotaryTable(rows=131072, width=64, dtype_bits=32),)),
        # global with factor 8, local without
        (
            "google/gemma-3-27b-it",
            (RotaryTable(rows=1048576, width=128), RotaryTable(rows=131072, width=128)),
        ),
        ("Qwen/Qwen2.5-VL-7B-Instruct", (RotaryTable(rows=512000, width=128),)),
        ("microsoft/Phi-3-mini-128k-instruct", (RotaryTable(rows=135168, width=96),)),
        # the indexer of DeepSeek V3.2 has a table of its own, that of GLM-5 has not
        ("nvidia/DeepSeek-V3.2-NVFP4", (RotaryTable(rows=163840, width=64),) * 2),
        ("zai-org/GLM-5", (RotaryTable(rows=202752, width=64),)),
        # a proportional rope is as wide as the head
        (
            "google/gemma-4-26B-A4B",
            (RotaryTable(rows=262144, width=512), RotaryTable(rows=262144, width=256)),
        ),
        # vLLM's Transformers backend keeps none
        ("allenai/OLMo-2-1124-7B", ()),
        ("ai21labs/AI21-Jamba-1.5-Mini", ()),
        ("openai-community/gpt2", ()),
    ],
)
def test_tables_of_models(model_id: str, tables: tuple[RotaryTable, ...]) -> None:
    spec = find_in_catalogue(model_id)
    assert spec is not None
    assert spec.rotary_tables == tables


def test_every_length_key_is_a_candidate() -> None:
    spec = read(max_sequence_length=700, seq_length=900)
    assert spec.limits.candidates == {
        "max_position_embeddings": 1000,
        "max_sequence_length": 700,
        "seq_length": 900,
    }


def test_an_absent_length_is_the_class_default() -> None:
    assert read(max_position_embeddings="absent").limits.candidates == {
        "max_position_embeddings": 2048
    }


def test_model_max_length_is_kept_apart() -> None:
    limits = read(model_max_length=131072).limits
    assert limits.model_max_length == 131072
    assert read(model_max_length=131072).rotary_tables[0].rows == 131072


def test_scaling_is_reported() -> None:
    rope = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 250}
    limits = read(rope_scaling=rope).limits
    assert (limits.rope_type, limits.rope_factor) == ("yarn", 4.0)
    assert limits.original_max_position_embeddings == 250
    assert read().limits.rope_type is None


def test_longrope_takes_the_original_length_from_the_top_level() -> None:
    rope = {"type": "su", "original_max_position_embeddings": 111}
    limits = read(rope_scaling=rope, original_max_position_embeddings=400).limits
    assert limits.original_max_position_embeddings == 400


def test_rope_by_layer_type_reports_that_of_full_attention() -> None:
    blocks = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    spec = read(rope_parameters=blocks)
    assert (spec.limits.rope_type, spec.limits.rope_factor) == ("linear", 8.0)
    assert [table.rows for table in spec.rotary_tables] == [1000, 8000]
