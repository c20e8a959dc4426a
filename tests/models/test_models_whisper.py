"""Whisper: totals against ``WhisperForConditionalGeneration`` of transformers 5.24.0.

The class was built on torch's meta device; whisper-large-v3's 1,543,490,560 and whisper-tiny's
37,760,640 are also what their model pages give.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmserve.engine.attention import cached_tokens, kv_bytes_per_token, request_bytes
from pytest_llmserve.engine.costs import step_costs
from pytest_llmserve.engine.parallel import Rank
from pytest_llmserve.engine.weights import weight_bytes_on_rank
from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.models.catalogue_file import dump_shape, load_shape
from pytest_llmserve.models.config_reader import read_config, read_shape
from pytest_llmserve.models.errors import BadConfig
from pytest_llmserve.models.spec import CrossCache, KvCache, ModelSpec
from pytest_llmserve.models.totals import total_parameters


def config(**changes: Any) -> dict[str, Any]:
    """Whisper-tiny: all sizes are the class's own."""
    named = {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"}
    return {**named, "d_model": 384, "decoder_layers": 4, "torch_dtype": "float16", **changes}


def read(**changes: Any) -> ModelSpec:
    return read_config(config(**changes), model_id="whisper", source="config.json")


@pytest.mark.parametrize(
    ("model_id", "total"),
    [
        ("openai/whisper-large-v3", 1_543_490_560),
        ("openai/whisper-large-v3-turbo", 808_878_080),
        ("openai/whisper-small", 241_734_912),
        ("openai/whisper-tiny", 37_760_640),
    ],
)
def test_totals_of_the_catalogue(model_id: str, total: int) -> None:
    spec = find_in_catalogue(model_id)
    assert spec is not None
    assert total_parameters(spec) == total


@pytest.mark.parametrize(
    ("layers", "heads", "width", "total"), [(6, 8, 512, 72_593_920), (24, 16, 1024, 763_857_920)]
)
def test_totals_of_base_and_medium(layers: int, heads: int, width: int, total: int) -> None:
    sizes = {
        "d_model": width,
        **{f"{side}_layers": layers for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 4 * width for side in ("encoder", "decoder")},
    }
    assert total_parameters(read(**sizes)) == total


def test_a_decoder_layer_keeps_its_own_tokens_and_the_encoders() -> None:
    own, cross = read().layers()[0].caches
    assert isinstance(own, KvCache)
    assert isinstance(cross, CrossCache)
    assert (own.num_kv_heads, own.head_dim) == (6, 64)
    assert cross.encoder_tokens == 1500
    assert cached_tokens(cross, 448) == 0


def test_the_context_is_the_decoders() -> None:
    assert dict(read().limits.candidates) == {"max_target_positions": 448}


def test_bytes_of_a_request() -> None:
    # 4 layers x 6 heads x (64 + 64) x 2 B a token; the encoder's 1,500 tokens whatever the text.
    assert kv_bytes_per_token(read()) == 6_144
    assert request_bytes(read()).of(0) == 1_500 * 6_144
    assert request_bytes(read(), "auto", 2).of(448) == 1_948 * 3_072


def test_the_encoder_is_not_streamed_in_a_step() -> None:
    # Four layers of q, k, v, o and cross q, o (384 x 384), MLP (2 x 384 x 1,536), biases and norms.
    layer = 6 * 384 * 384 + 2 * 384 * 1_536 + 6 * 384 + 1_536 + 384 + 6 * 384
    head = 51_865 * 384 + 2 * 384
    assert step_costs(read()).weight_bytes == 2 * (4 * layer + head)


def test_what_tensor_parallelism_divides() -> None:
    spec = read()
    whole, half = (
        weight_bytes_on_rank(spec, Rank(tensor_parallel_size=size)).total_bytes for size in (1, 2)
    )
    # Embedding, positions, convolutions, norms and biases of the row-parallel layers are whole.
    kept = 51_865 * 384 + (448 + 1_500) * 384 + 384 * (3 * 80 + 1 + 3 * 384 + 1)
    kept += 2 * 2 * 384 + 4 * (6 + 4) * 384 + 4 * (3 + 2) * 384
    assert 2 * half - whole == 2 * kept


def test_an_lm_head_of_its_own_is_named() -> None:
    (part,) = read(tie_word_embeddings=False).unsupported
    assert "lm_head" in part


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_heads_divide_the_width(side: str) -> None:
    with pytest.raises(BadConfig, match=f"d_model: 384, expected a multiple of {side}_attention"):
        read(**{f"{side}_attention_heads": 5})


def test_too_many_layers() -> None:
    with pytest.raises(BadConfig, match="decoder_layers: 5000, expected at most 4096 layers"):
        read(decoder_layers=5000)


def test_the_catalogue_keeps_all() -> None:
    shape = read_shape(config(), source="config.json")
    assert load_shape(dump_shape(shape)) == shape
