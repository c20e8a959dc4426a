import pytest

from pytest_llmserve.hardware.catalogue import GPUS, gpu_ids, read_part
from pytest_llmserve.hardware.index import INDEX, build_index, dump_index, fold, load_index


def test_the_index_says_what_the_files_say() -> None:
    parts = {gpu_id: read_part(GPUS / f"{gpu_id}.toml") for gpu_id in gpu_ids()}
    made = dump_index(build_index(parts))
    assert INDEX.read_text(encoding="utf-8") == made, "python -m pytest_llmserve.hardware.index"


def test_facts_are_those_of_the_part() -> None:
    assert str(load_index().parts["h100-pcie-80gb"]) == "80 GB, 2000 GB/s, 756 TFLOP/s"
    assert str(load_index().parts["v100-pcie-16gb"]) == "16 GB, 900 GB/s, 112 TFLOP/s"
    assert str(load_index().parts["b100"]) == "192 GB, 8000 GB/s"


def test_a_name_may_be_claimed_once() -> None:
    part = {"memory": {"marketed_bytes": 10**9}, "aliases": {"short": ["same"]}}
    with pytest.raises(ValueError, match="'same' is claimed by a and by b"):
        build_index({"a": part, "b": part})


def test_a_name_is_ambiguous_or_not() -> None:
    part = {"memory": {"marketed_bytes": 10**9}, "aliases": {"ambiguous": ["a"]}}
    with pytest.raises(ValueError, match="both ambiguous and not: a"):
        build_index({"a": part})


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("AMD_Instinct_MI300X_OAM", "amd-instinct-mi300x-oam"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", "intel-arc-pro-b60-graphics"),
        ("  h100  ", "h100"),
        ("NVIDIA-H100-MIG-1g.10gb", "nvidia-h100-mig-1g.10gb"),
        ("--", ""),
    ],
)
def test_fold(name: str, folded: str) -> None:
    assert fold(name) == folded
