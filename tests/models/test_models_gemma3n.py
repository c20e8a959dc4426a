"""Gemma 3n with its towers.

Totals: ``Gemma3nForConditionalGeneration`` of transformers 5.24.0 with timm 1.0.31, built on the
meta device of torch. Bytes of a rank: what vLLM 0.32.0 builds for this text config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from pytest_llmserve.manifests.launch import Word
from pytest_llmserve.models.catalogue_file import dump_shape, load_shape
from pytest_llmserve.models.config_reader import read_config, read_shape
from pytest_llmserve.models.errors import BadConfig
from pytest_llmserve.models.totals import text_parameters, total_parameters
from pytest_llmserve.runtimes.vllm.args import parse_args
from pytest_llmserve.runtimes.vllm.resolve import resolve_settings
from pytest_llmserve.runtimes.vllm.weights import weight_bytes
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec

V32 = Version("0.32.0")


def config(layers: int = 30, shared: int = 10, width: int = 8192, **more: Any) -> dict[str, Any]:
    text = {
        "model_type": "gemma3n_text",
        "num_hidden_layers": layers,
        "num_kv_shared_layers": shared,
        "intermediate_size": [width] * layers,
        "torch_dtype": "bfloat16",
    }
    return {
        "architectures": ["Gemma3nForConditionalGeneration"],
        "model_type": "gemma3n",
        "text_config": text,
        **more,
    }


def read(**more: Any) -> ModelSpec:
    return read_config(config(**more), model_id="gemma-3n", source="config.json")


@pytest.mark.parametrize(
    ("layers", "shared", "width", "total"),
    [(30, 10, 8192, 5_418_464_192), (35, 15, 16384, 7_818_517_072)],
)
def test_totals_of_e2b_and_e4b(layers: int, shared: int, width: int, total: int) -> None:
    spec = read(layers=layers, shared=shared, width=width)
    assert total_parameters(spec) == total
    assert spec.unsupported == ()


def test_towers_alone() -> None:
    spec = read()
    # MobileNetV5 294,126,912, conformer 681,348,640, the two embedders 7,805,952.
    assert total_parameters(spec) - text_parameters(spec) == 983_281_504


@pytest.mark.parametrize(("tp", "built"), [(1, 13_890_545_636), (8, 3_560_744_932)])
def test_bytes_of_a_rank(tp: int, built: int) -> None:
    spec = read(width=16384)
    words = ["serve", "google/gemma-3n-E2B-it", "--tensor-parallel-size", str(tp)]
    args = parse_args([Word(word, Location("run.sh", 1)) for word in words], version=V32)
    settings = resolve_settings(args, version=V32, model=spec, gpu=None, env={})
    assert weight_bytes(settings, spec, None, version=V32).total == built


def test_a_conformer_of_half_the_depth() -> None:
    layers = {"conf_num_hidden_layers": 6}
    gone = total_parameters(read()) - total_parameters(read(audio_config=layers))
    assert gone == 6 * 56_644_800


@pytest.mark.parametrize(
    "vision",
    [
        {"architecture": "mobilenetv5_base"},
        {"architecture": "mobilenetv5_300m_enc", "model_args": {"channel_multiplier": 2}},
    ],
)
def test_another_network_is_named(vision: dict[str, Any]) -> None:
    (part,) = read(vision_config=vision).unsupported
    assert "vision tower" in part
    assert vision["architecture"] in part


@pytest.mark.parametrize(
    "audio",
    [
        {"sscp_conv_channel_size": [128]},
        {"sscp_conv_kernel_size": [3, 3]},
        {"sscp_conv_stride_size": [[2, 2], [2, "2"]]},
    ],
)
def test_convolutions_that_cannot_be(audio: dict[str, Any]) -> None:
    (key,) = audio
    with pytest.raises(BadConfig, match=f"audio_config.{key}"):
        read(audio_config=audio)


def test_the_catalogue_keeps_what_is_divided() -> None:
    shape = read_shape(config(), source="config.json")
    assert load_shape(dump_shape(shape)) == shape
