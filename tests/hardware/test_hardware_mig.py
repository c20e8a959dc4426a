from fractions import Fraction

import pytest

from pytest_llmserve.hardware.catalogue import gpu_ids, load_gpu
from pytest_llmserve.hardware.errors import AmbiguousGpu, UnknownGpu
from pytest_llmserve.hardware.mig import mig_profile_name, resolve_mig
from pytest_llmserve.units import GIB


def test_every_profile_of_every_part() -> None:
    count = 0
    for gpu_id in gpu_ids():
        parent = load_gpu(gpu_id)
        for profile in parent.mig_profiles:
            gpu = resolve_mig(f"nvidia.com/mig-{profile.name}", parent)
            assert gpu.price is None, "list prices are those of whole parts"
            count += 1
            assert gpu.mig_profile == profile.name
            assert gpu.link_bytes_per_s is None
            assert parent.hbm_bytes_per_s is not None
            assert gpu.hbm_bytes_per_s == int(parent.hbm_bytes_per_s * profile.memory_fraction)
            if gpu.memory_total_bytes is None:
                assert parent.memory_total_bytes is None
                continue
            # A slice holds 1-17 % less than the number in its name, and never more.
            share = gpu.memory_total_bytes.expected / (gpu.memory_marketed_bytes / 1e9 * GIB)
            assert 0.83 <= share <= 1, (gpu_id, profile)
            slices = profile.max_count * gpu.memory_total_bytes.expected
            if parent.memory_total_bytes is not None:
                assert slices <= parent.memory_total_bytes.high + GIB / 4, (gpu_id, profile)
    assert count > 120


@pytest.mark.parametrize(
    ("gpu_id", "profile", "size_gib"),
    [
        # nvidia-smi mig -lgip: mig-parted PRs 101 and 139, gpu-operator PR 1303, public notes.
        ("h100-nvl-94gb", "1g.12gb", 10.75),
        ("h100-nvl-94gb", "3g.47gb", 46.38),
        ("h100-pcie-80gb", "1g.10gb", 9.75),
        ("a100-sxm-80gb", "1g.10gb", 9.50),
        ("a100-sxm-40gb", "1g.5gb", 4.75),
        ("h200-sxm-141gb", "1g.18gb", 16.0),
        ("b200-sxm-180gb", "1g.23gb", 20.5),
        ("gb200-186gb", "1g.24gb", 20.0),
        ("rtx-pro-6000-server", "1g.24gb", 23.12),
    ],
)
def test_sizes_that_were_read(gpu_id: str, profile: str, size_gib: float) -> None:
    total = resolve_mig(profile, load_gpu(gpu_id)).memory_total_bytes
    assert total is not None
    assert total.expected == total.high == round(size_gib * GIB)
    assert total.low == pytest.approx((size_gib - 0.25) * GIB, rel=1e-9)


def test_the_estimates_bracket_readings_of_the_same_share() -> None:
    # B300 slices were not read; B200's 1g and 2g slices are 0.115 and 0.248 of the whole.
    b300 = load_gpu("b300-sxm-288gb")
    assert b300.memory_total_bytes is not None
    for profile, share in {"1g.34gb": 20.5 / 178.35, "2g.67gb": 44.25 / 178.35}.items():
        total = resolve_mig(profile, b300).memory_total_bytes
        assert total is not None
        assert total.low < share * b300.memory_total_bytes.expected < total.high


def test_shares_of_an_h100() -> None:
    # The SXM part lists 60 of 132 multiprocessors for 3g.40gb: more than three sevenths.
    whole = load_gpu("h100-sxm-80gb")
    half = resolve_mig("mig-3g.40gb", whole)
    assert half.id == "h100-sxm-80gb-mig-3g.40gb"
    assert half.hbm_bytes_per_s == 1_675_000_000_000
    assert half.dense_flops_per_s["bf16"] == int(989_400_000_000_000 * Fraction(60, 132))
    assert half.compute_capability == (9, 0)
    assert half.memory_marketed_bytes == 40_000_000_000
    assert half.source == (
        "catalogue h100-sxm-80gb, MIG 3g.40gb (bandwidth x 1/2 and peaks x 5/11 inferred)"
    )


def test_quarters_of_an_a30() -> None:
    gpu = resolve_mig("2g.12gb", None)
    assert gpu.id == "a30-mig-2g.12gb"
    assert gpu.hbm_bytes_per_s == 466_500_000_000


def test_the_whole_as_one_slice_has_the_memory_of_the_device() -> None:
    whole = load_gpu("a100-sxm-80gb")
    assert resolve_mig("7g.80gb", whole).memory_total_bytes == whole.memory_total_bytes


def test_without_a_parent_only_what_is_one_thing() -> None:
    # Both 40 GB A100s give the same 1g.5gb.
    assert resolve_mig("nvidia.com/mig-1g.5gb", None).id == "a100-sxm-40gb-mig-1g.5gb"
    with pytest.raises(AmbiguousGpu) as caught:
        resolve_mig("nvidia.com/mig-1g.10gb", None)
    assert {"a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb"} <= set(caught.value.candidates)
    assert "say which device it is cut from" in str(caught.value)


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("nvidia.com/mig-1g.10gb", "1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me", "1g.10gb"),
        ("nvidia.com/mig-1g.24gb.me.all", "1g.24gb"),
        ("1G.10GB", "1g.10gb"),
        ("1g.10gb+me", "1g.10gb"),
        ("mig-1g.24gb-me", "1g.24gb"),
        ("1g.24gb+gfx", "1g.24gb"),
        ("nvidia.com/gpu", None),
        ("1c.3g.40gb", None),
        ("8g.80gb", None),
        ("mig-all-balanced", None),
        ("", None),
    ],
)
def test_profile_names(resource: str, name: str | None) -> None:
    assert mig_profile_name(resource) == name


@pytest.mark.parametrize(
    ("resource", "gpu_id", "message"),
    [
        ("nvidia.com/gpu", None, "expected a profile such as '1g.10gb'"),
        ("1g.99gb", None, "no known device has a MIG profile '1g.99gb'"),
        ("1g.18gb", "h100-sxm-80gb", "h100-sxm-80gb has 1g.10gb, 1g.20gb"),
        ("1g.10gb", "l4", "no MIG profile of l4 is known"),
    ],
)
def test_what_is_no_slice(resource: str, gpu_id: str | None, message: str) -> None:
    parent = None if gpu_id is None else load_gpu(gpu_id)
    with pytest.raises(UnknownGpu, match=message):
        resolve_mig(resource, parent)


def test_a_slice_is_not_cut_again() -> None:
    half = resolve_mig("3g.40gb", load_gpu("h100-sxm-80gb"))
    with pytest.raises(UnknownGpu, match="is a MIG slice itself"):
        resolve_mig("1g.10gb", half)
