"""The bundled catalogue: every entry is whole, found by its name, and says where it is from."""

import json
from pathlib import Path

import pytest

from pytest_llmserve.models.catalogue import (
    DATA,
    aliases,
    catalogue_ids,
    file_name,
    find_in_catalogue,
)
from pytest_llmserve.models.catalogue_entry import entry_of, to_text
from pytest_llmserve.models.catalogue_file import dump_shape, load_shape
from pytest_llmserve.models.totals import total_parameters

IDS = catalogue_ids()


def test_there_are_enough() -> None:
    assert len(IDS) >= 100
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("model_id", IDS)
def test_entries(model_id: str) -> None:
    text = (DATA / file_name(model_id)).read_text(encoding="utf-8")
    entry = json.loads(text)
    assert entry["id"] == model_id
    assert entry["source"]
    shape = load_shape(entry)
    assert load_shape(json.loads(json.dumps(dump_shape(shape)))) == shape
    assert to_text({"id": model_id, "source": entry["source"], **dump_shape(shape)}) == text
    positions = [index for _, indices in shape.blocks for index in indices]
    assert sorted(positions) == list(range(shape.num_layers))
    spec = find_in_catalogue(model_id)
    assert spec is not None
    assert spec.source.removesuffix(" (from memory)") == f"catalogue {model_id}"
    assert 3e7 < total_parameters(spec) < 2e12
    assert all(weight.num_elements > 0 for weight in (*spec.outside, *spec.vision))
    if shape.limits.candidates:
        assert 448 <= min(shape.limits.candidates.values()) <= 10_485_760


def test_aliases_lead_to_entries_and_hide_none() -> None:
    names = {model_id.lower() for model_id in IDS}
    for alias, target in aliases().items():
        assert alias == alias.lower()
        assert alias not in names
        assert target in IDS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("META-LLAMA/llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1"),
    ],
)
def test_names_and_aliases_in_any_case(name: str, expected: str) -> None:
    spec = find_in_catalogue(name)
    assert spec is not None
    assert spec.id == expected


@pytest.mark.parametrize(
    "name", ["org/none", "aliases", "../models/data/qwen--qwen3-8b", "Qwen--Qwen3-8B", "", "a/b/c"]
)
def test_other_names_find_nothing(name: str) -> None:
    assert find_in_catalogue(name) is None


def test_an_entry_is_made_from_a_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "architectures": ["Qwen3NextForCausalLM"],
                "model_type": "qwen3_next",
                "hidden_size": 64,
                "num_hidden_layers": 4,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "max_position_embeddings": 4096,
            }
        )
    )
    entry = entry_of(path, model_id="org/name", source="here")
    assert [block["layers"] for block in entry["blocks"]] == ["0-2", "3"]
    assert "gated_delta" in entry["blocks"][0]
    assert json.loads(to_text(entry)) == entry
