"""The benchmark of parameter counts tells equal from different from not understood."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "params.py"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
# 2 x (4 x 64 x 64 + 3 x 64 x 128 + 2 x 64) + 2 x 100 x 64 + 64
TOTAL = 95_040


@pytest.fixture
def compare() -> Any:
    return runpy.run_path(str(SCRIPT))["compare"]


def folder(tmp_path: Path, config: dict[str, Any], counts: dict[str, Any]) -> Path:
    path = tmp_path / "org--name"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    (path / "params.json").write_text(json.dumps({"by_group": {}, **counts}))
    return path


@pytest.mark.parametrize(("total", "state"), [(TOTAL, "equal"), (TOTAL + 1, "different")])
def test_equality_is_exact(tmp_path: Path, compare: Any, total: int, state: str) -> None:
    counts = {"total_params": total, "text_params": total, "active_params": total}
    assert compare(folder(tmp_path, CONFIG, counts))["state"] == state


def test_an_unknown_architecture_is_its_own_state(tmp_path: Path, compare: Any) -> None:
    config = {**CONFIG, "architectures": ["NewForCausalLM"]}
    row = compare(folder(tmp_path, config, {"total_params": 1}))
    assert (row["state"], row["architecture"]) == ("not understood", "NewForCausalLM")
