"""A draft model is looked up where the served one is."""

import json
from pathlib import Path

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.policy import Policy

DRAFT = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
SPEC = json.dumps({"model": "acme/draft-1b", "method": "draft_model", "num_speculative_tokens": 3})


def planned(serve: LlmServe) -> int | None:
    server = serve.server(
        "meta-llama/Llama-3.1-8B-Instruct", gpu="h100-sxm-80gb", speculative_config=SPEC
    )
    vram = server.subjects[0].plan.vram
    return None if vram is None else vram.weights_bytes.expected


def test_a_draft_in_the_models_folder_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "acme--draft-1b"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(DRAFT))
    serve = LlmServe(Policy(base_dir=tmp_path, models=("models",)))
    alone = serve.server("meta-llama/Llama-3.1-8B-Instruct", gpu="h100-sxm-80gb")
    vram = alone.subjects[0].plan.vram
    assert vram is not None
    with_draft = planned(serve)
    assert with_draft is not None
    # 1.236e9 parameters of 2 bytes, and its own rotary table
    assert 2.4e9 < with_draft - vram.weights_bytes.expected < 2.6e9


def test_a_draft_that_is_not_known_leaves_the_plan_untold() -> None:
    assert planned(LlmServe()) is None
