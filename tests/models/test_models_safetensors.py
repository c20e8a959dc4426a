"""Checkpoint bytes from safetensors headers and their index."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.models.errors import BadConfig
from pytest_llmserve.models.safetensors_header import checkpoint_bytes, read_header, tensor_bytes


def file_of(header: object, tail: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + tail


def tensor(begin: int, end: int) -> dict[str, object]:
    return {"dtype": "BF16", "shape": [(end - begin) // 2], "data_offsets": [begin, end]}


def test_a_header_is_read_without_the_data(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = {"__metadata__": {"format": "pt"}, "a": tensor(0, 8), "b": tensor(8, 20)}
    path.write_bytes(file_of(header))
    assert set(read_header(path)) == {"a", "b"}
    assert tensor_bytes(path) == 20
    assert checkpoint_bytes(tmp_path) == 20


@given(st.lists(st.integers(0, 10**12), max_size=20))
def test_sizes_add_up(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    path = tmp_path_factory.mktemp("st") / "model.safetensors"
    begin, header = 0, {}
    for index, size in enumerate(sizes):
        header[f"t{index}"] = tensor(begin, begin + size)
        begin += size
    path.write_bytes(file_of(header))
    assert tensor_bytes(path) == sum(sizes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "header length: 0, expected 8 bytes"),
        (b"\x01\x02", "expected 8 bytes that announce a header"),
        ((10**15).to_bytes(8, "little") + b"{}", "expected 8 bytes that announce a header"),
        ((50).to_bytes(8, "little") + b"{}", "header: '2 bytes', expected 50 bytes"),
        ((2).to_bytes(8, "little") + b"[]", "expected a JSON object"),
        ((2).to_bytes(8, "little") + b"{[", "expected a JSON object"),
        (file_of({"a": {"dtype": "F32"}}), r"a\.data_offsets: None, expected"),
        (file_of({"a": {"data_offsets": [8, 4]}}), r"a\.data_offsets: \[8, 4\], expected"),
        (file_of({"a": 3}), r"a\.data_offsets: None, expected"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadConfig, match=message) as error:
        tensor_bytes(path)
    assert str(error.value).startswith(str(path))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_size_or_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("st") / "model.safetensors"
    path.write_bytes(content)
    message = str(path)
    try:
        assert tensor_bytes(path) >= 0
    except BadConfig as error:
        message = str(error)
    assert message.startswith(str(path))


def index(tmp_path: Path, text: str) -> Path:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    return tmp_path


def test_the_index_says_the_total(tmp_path: Path) -> None:
    assert checkpoint_bytes(index(tmp_path, '{"metadata": {"total_size": 16060522496}}')) == (
        16_060_522_496
    )
    assert checkpoint_bytes(index(tmp_path, '{"metadata": {"total_size": 8.0}}')) == 8
    assert checkpoint_bytes(index(tmp_path, '{"weight_map": {}}')) is None


@pytest.mark.parametrize("text", ["{", '{"metadata": {"total_size": "8 GB"}}'])
def test_a_damaged_index(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadConfig, match=r"model\.safetensors\.index\.json: "):
        checkpoint_bytes(index(tmp_path, text))


def test_no_checkpoint_no_bytes(tmp_path: Path) -> None:
    assert checkpoint_bytes(tmp_path) is None
