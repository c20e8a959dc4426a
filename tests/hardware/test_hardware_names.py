from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.hardware.catalogue import GPUS, gpu_ids, load_gpu, load_user_gpus, read_part
from pytest_llmserve.hardware.errors import AmbiguousGpu, GpuNameError, UnknownGpu
from pytest_llmserve.hardware.index import fold, load_index
from pytest_llmserve.hardware.names import resolve_gpu

PRODUCT = "nvidia.com/gpu.product"
GKE = "cloud.google.com/gke-accelerator"
KARPENTER = "karpenter.k8s.aws/instance-gpu-name"
INSTANCE = "node.kubernetes.io/instance-type"
COREWEAVE = "gpu.nvidia.com/class"

LABELS = [
    # nvidia.com/gpu.product as GPU feature discovery writes it, met in public manifests.
    (PRODUCT, "NVIDIA-H100-80GB-HBM3", "h100-sxm-80gb"),
    (PRODUCT, "NVIDIA-H100-PCIe", "h100-pcie-80gb"),
    (PRODUCT, "NVIDIA-H100-NVL", "h100-nvl-94gb"),
    (PRODUCT, "NVIDIA-L40S", "l40s"),
    (PRODUCT, "NVIDIA-L4", "l4"),
    (PRODUCT, "NVIDIA-A100-SXM4-80GB", "a100-sxm-80gb"),
    (PRODUCT, "NVIDIA-A100-SXM4-40GB", "a100-sxm-40gb"),
    (PRODUCT, "NVIDIA-A100-80GB-PCIe", "a100-pcie-80gb"),
    (PRODUCT, "Tesla-V100-SXM2-16GB", "v100-sxm2-16gb"),
    (PRODUCT, "Tesla-T4", "t4"),
    (PRODUCT, "NVIDIA-RTX-A6000", "rtx-a6000"),
    (PRODUCT, "NVIDIA-H200", "h200-sxm-141gb"),
    (PRODUCT, "NVIDIA-H20", "h20-96gb"),
    (PRODUCT, "NVIDIA-H20-3e", "h20-3e-141gb"),
    (PRODUCT, "NVIDIA-GB200", "gb200-186gb"),
    (PRODUCT, "NVIDIA-B200", "b200-sxm-180gb"),
    (PRODUCT, "NVIDIA-A10G", "a10g"),
    (PRODUCT, "NVIDIA-A10", "a10"),
    (PRODUCT, "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000-server"),
    # ... and as people type it.
    (PRODUCT, "NVIDIA-H100-SXM4-80GB", "h100-sxm-80gb"),
    (PRODUCT, "NVIDIA-H100-SXM5-80GB", "h100-sxm-80gb"),
    (PRODUCT, "NVIDIA-A100-PCIE-80GB", "a100-pcie-80gb"),
    (PRODUCT, "NVIDIA-H20-SXM5-96GB", "h20-96gb"),
    (PRODUCT, "NVIDIA-H200-SXM", "h200-sxm-141gb"),
    (PRODUCT, "NVIDIA-H200-141GB-HBM3", "h200-sxm-141gb"),
    (PRODUCT, "NVIDIA-GB200-NVL72", "gb200-186gb"),
    (PRODUCT, "NVIDIA-V100-SXM2-16GB", "v100-sxm2-16gb"),
    (GKE, "nvidia-l4", "l4"),
    (GKE, "nvidia-tesla-t4", "t4"),
    (GKE, "nvidia-tesla-a100", "a100-sxm-40gb"),
    (GKE, "nvidia-a100-80gb", "a100-sxm-80gb"),
    (GKE, "nvidia-h100-80gb", "h100-sxm-80gb"),
    (GKE, "nvidia-h100-mega-80gb", "h100-sxm-80gb"),
    (GKE, "nvidia-h200-141gb", "h200-sxm-141gb"),
    (GKE, "nvidia-b200", "b200-sxm-180gb"),
    (GKE, "nvidia-gb200", "gb200-186gb"),
    (GKE, "nvidia-rtx-pro-6000", "rtx-pro-6000-server"),
    ("gpu_type", "nvidia-h100-80gb", "h100-sxm-80gb"),
    (None, "nvidia-tesla-a100", "a100-sxm-40gb"),
    (KARPENTER, "h100", "h100-sxm-80gb"),
    (KARPENTER, "l40s", "l40s"),
    (KARPENTER, "t4", "t4"),
    (COREWEAVE, "H100", "h100-sxm-80gb"),
    (COREWEAVE, "H100_NVLINK_80GB", "h100-sxm-80gb"),
    (COREWEAVE, "A100_NVLINK_80GB", "a100-sxm-80gb"),
    ("amd.com/gpu.device-id", "74a1", "mi300x"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM", "mi300x"),
    (INSTANCE, "p5.48xlarge", "h100-sxm-80gb"),
    (INSTANCE, "G5.8xlarge", "a10g"),
    ("beta.kubernetes.io/instance-type", "BM.GPU.H100.8", "h100-sxm-80gb"),
    ("instanceType", "Standard_NC24ads_A100_v4", "a100-pcie-80gb"),
    (None, "p5.48xlarge", "h100-sxm-80gb"),
    # A team's policy.
    (None, "h100-sxm-80gb", "h100-sxm-80gb"),
    (None, "H100-SXM", "h100-sxm-80gb"),
    (None, "A100-SXM4-80GB", "a100-sxm-80gb"),
    (None, "NVIDIA B200", "b200-sxm-180gb"),
    (None, "RTX 4090", "rtx-4090"),
    (None, "GeForce RTX 4090", "rtx-4090"),
    (None, "rtx 6000 ada", "rtx-6000-ada"),
    (None, "A10g", "a10g"),
    (None, "amd-gpu-mi300x", "mi300x"),
    # Both 40 GB parts have the same figures, so that either answer is right.
    (None, "a100-40gb", "a100-sxm-40gb"),
]

REFUSED = [
    (None, "a100", {"a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-40gb", "a100-pcie-80gb"}),
    (None, "h100", {"h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb"}),
    (None, "H100", {"h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb"}),
    (None, "h200", {"h200-sxm-141gb", "h200-nvl-141gb"}),
    (None, "b200", {"b200-sxm-180gb", "gb200-186gb"}),
    (None, "gh200", {"gh200-96gb", "gh200-144gb"}),
    (None, "h20", {"h20-96gb", "h20-3e-141gb"}),
    (None, "v100-16gb", {"v100-sxm2-16gb", "v100-pcie-16gb"}),
    (None, "mi300", {"mi300x", "mi300a"}),
    (None, "a6000", {"rtx-a6000", "rtx-6000-ada"}),
    (None, "rtx-pro-5000", {"rtx-pro-5000-48gb", "rtx-pro-5000-72gb"}),
    (None, "A100-80GB", {"a100-sxm-80gb", "a100-pcie-80gb"}),
    (PRODUCT, "NVIDIA-A100-80GB", {"a100-sxm-80gb", "a100-pcie-80gb"}),
    (PRODUCT, "NVIDIA-H100-80GB", {"h100-sxm-80gb", "h100-pcie-80gb"}),
    # The same letters are GKE's name of the SXM part, but no driver prints them.
    (PRODUCT, "nvidia-h100-80gb", {"h100-sxm-80gb", "h100-pcie-80gb"}),
    (PRODUCT, "NVIDIA-A100-SXM4", {"a100-sxm-40gb", "a100-sxm-80gb"}),
    (
        PRODUCT,
        "NVIDIA-RTX-PRO-6000-Blackwell",
        {"rtx-pro-6000-ws", "rtx-pro-6000-server", "rtx-pro-6000-maxq"},
    ),
    (KARPENTER, "a100", {"a100-sxm-40gb", "a100-sxm-80gb"}),
    (KARPENTER, "v100", {"v100-sxm2-16gb", "v100-sxm2-32gb"}),
    # The 8 GB card has this name too, and the catalogue lacks it.
    (PRODUCT, "NVIDIA-GeForce-RTX-4060-Ti", {"rtx-4060-ti-16gb"}),
]

UNKNOWN = [
    # Sizes and forms that the family does not have.
    (PRODUCT, "NVIDIA-L40-40GB", ("l40",)),
    (PRODUCT, "NVIDIA-H100-SXM5-94GB", ("h100-nvl-94gb", "h100-pcie-80gb", "h100-sxm-80gb")),
    (PRODUCT, "NVIDIA-A10-24Q", ("a10",)),
    # Whole words only.
    (None, "h1", ()),
    (None, "h100x", ("h100-nvl-94gb", "h100-pcie-80gb", "h100-sxm-80gb")),
    (None, "L40S2", ("l40s",)),
    # Other cards whose figures differ.
    (None, "NVIDIA H800 PCIe", ("h800-sxm-80gb",)),
    (None, "NVIDIA RTX 4000 SFF Ada Generation", ("rtx-4000-ada",)),
    (None, "3090ti", ("rtx-3090",)),
    (None, "", ()),
    (None, "cpu", ()),
    (INSTANCE, "m5.large", ()),
]


@pytest.mark.parametrize(("key", "name", "gpu_id"), LABELS)
def test_names_that_mean_one_part(key: str | None, name: str, gpu_id: str) -> None:
    assert resolve_gpu(name, key=key) == load_gpu(gpu_id)


@pytest.mark.parametrize(("key", "name", "candidates"), REFUSED)
def test_names_that_could_mean_several(key: str | None, name: str, candidates: set[str]) -> None:
    with pytest.raises(AmbiguousGpu) as caught:
        resolve_gpu(name, key=key)
    assert set(caught.value.candidates) == candidates
    assert (caught.value.name, caught.value.key) == (name, key)
    assert all(part in str(caught.value) for part in candidates)


@pytest.mark.parametrize(("key", "name", "near"), UNKNOWN)
def test_names_that_mean_none(key: str | None, name: str, near: tuple[str, ...]) -> None:
    with pytest.raises(UnknownGpu) as caught:
        resolve_gpu(name, key=key)
    assert caught.value.suggestions == near
    assert repr(name) in str(caught.value)


def test_messages_say_what_to_write() -> None:
    with pytest.raises(AmbiguousGpu) as several:
        resolve_gpu("h20")
    assert str(several.value) == (
        "'h20' could be h20-3e-141gb (141 GB, 4800 GB/s, 148 TFLOP/s) or "
        "h20-96gb (96 GB, 4000 GB/s, 148 TFLOP/s): write the id of the one that is meant"
    )
    with pytest.raises(UnknownGpu) as none:
        resolve_gpu("NVIDIA-L40-40GB", key=PRODUCT)
    assert str(none.value) == ("'NVIDIA-L40-40GB': no known device is called so; near: l40")


@pytest.mark.parametrize("name", ["ascend910b", "tpu-v4-podslice", "gaudi-for-text", "neuron"])
def test_other_accelerators_are_not_modelled(name: str) -> None:
    with pytest.raises(UnknownGpu, match=r"is not modelled|near: tpu-v5e"):
        resolve_gpu(name)


def test_every_name_in_the_files_means_its_part_or_is_refused() -> None:
    ambiguous = load_index().ambiguous
    for gpu_id in gpu_ids():
        table: dict[str, Any] = read_part(GPUS / f"{gpu_id}.toml")
        aliases = table.get("aliases", {})
        names = [n for kind in ("nvml", "written", "short") for n in aliases.get(kind, ())]
        for name in (gpu_id, gpu_id.upper(), *names):
            assert resolve_gpu(name).id == gpu_id
        for name in aliases.get("nvml", ()):
            assert resolve_gpu(name.replace(" ", "-"), key=PRODUCT).id == gpu_id
        for name in aliases.get("gke", ()):
            assert resolve_gpu(name, key=GKE).id == gpu_id
        for name in aliases.get("ambiguous", ()):
            assert gpu_id in ambiguous[fold(name)]
            with pytest.raises(AmbiguousGpu):
                resolve_gpu(name)


def test_no_short_form_hides_a_choice() -> None:
    """A short form must not pick one of several parts that its words describe."""
    index = load_index()
    assert sum(len(index.parts_like(name)) > 1 for name in index.names) > 5
    for name, gpu_id in index.names.items():
        alike = index.parts_like(name)
        if len(alike) > 1 and fold(gpu_id) != name:
            table = read_part(GPUS / f"{gpu_id}.toml")["aliases"]
            if name in {fold(n) for kind in ("nvml", "written") for n in table.get(kind, ())}:
                continue
            assert len({index.parts[part] for part in alike}) == 1, name


@pytest.mark.parametrize(
    ("key", "name", "memory_mib", "gpu_id"),
    [
        (KARPENTER, "a100", 40960, "a100-sxm-40gb"),
        (KARPENTER, "a100", 81920, "a100-sxm-80gb"),
        (KARPENTER, "v100", 32768, "v100-sxm2-32gb"),
        (PRODUCT, "NVIDIA-GeForce-RTX-4060-Ti", 16380, "rtx-4060-ti-16gb"),
        (None, "gh200", 97871, "gh200-96gb"),
        (None, "h100", 95830, "h100-nvl-94gb"),
    ],
)
def test_a_stated_size_settles_what_a_name_leaves_open(
    key: str | None, name: str, memory_mib: int, gpu_id: str
) -> None:
    assert resolve_gpu(name, key=key, memory_mib=memory_mib).id == gpu_id


def test_a_stated_size_that_settles_nothing_is_refused() -> None:
    with pytest.raises(AmbiguousGpu) as by_form:
        resolve_gpu("h100", memory_mib=81559)
    assert by_form.value.candidates == ("h100-pcie-80gb", "h100-sxm-80gb")
    with pytest.raises(AmbiguousGpu):
        resolve_gpu("NVIDIA-GeForce-RTX-4060-Ti", key=PRODUCT, memory_mib=8188)


def test_a_shared_device_is_the_device_and_says_so() -> None:
    whole = load_gpu("a10g")
    shared = resolve_gpu("NVIDIA-A10G-SHARED", key=PRODUCT)
    assert shared.source == "catalogue a10g, shared in time with other pods"
    assert replace(shared, source=whole.source) == whole


@pytest.mark.parametrize(
    ("name", "gpu_id"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-sxm-40gb-mig-1g.5gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb-SHARED", "h100-sxm-80gb-mig-3g.40gb"),
        ("NVIDIA H200 MIG 1g.18gb", "h200-sxm-141gb-mig-1g.18gb"),
        ("nvidia.com/mig-1g.6gb", "a30-mig-1g.6gb"),
        ("h100-sxm-80gb-mig-1g.10gb", "h100-sxm-80gb-mig-1g.10gb"),
    ],
)
def test_slices_by_name(name: str, gpu_id: str) -> None:
    assert resolve_gpu(name).id == gpu_id


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NVIDIA-A100-SXM4-80GB-MIG-INVALID", "the node's MIG slices differ"),
        ("NVIDIA-H200-MIG-1g.10gb", "h200-sxm-141gb has 1g.18gb, 1g.35gb"),
        ("NVIDIA-H200-MIG-bad", "'bad' is no MIG profile"),
        ("NVIDIA-L4-MIG-1g.10gb", "no MIG profile of l4 is known"),
    ],
)
def test_slices_that_are_none(name: str, message: str) -> None:
    with pytest.raises(UnknownGpu, match=message) as caught:
        resolve_gpu(name, key=PRODUCT)
    assert str(caught.value).startswith(f"{name!r}: ")
    assert caught.value.key == PRODUCT


@pytest.mark.parametrize(
    ("instance_type", "message"),
    [
        ("g6f.large", "it has 1/8 of one l4, whose memory is not known"),
        ("Standard_NC8ads_A10_v4", "it has a share of one a10, whose memory is not known"),
        ("g5g.xlarge", "its accelerator t4g is not modelled"),
    ],
)
def test_instance_types_without_a_whole_known_device(instance_type: str, message: str) -> None:
    with pytest.raises(UnknownGpu, match=message):
        resolve_gpu(instance_type, key=INSTANCE)


def test_parts_of_ones_own_come_first(tmp_path: Path) -> None:
    text = (GPUS / "h100-sxm-80gb.toml").read_text(encoding="utf-8")
    text = text.replace('id = "h100-sxm-80gb"', 'id = "ours"').replace('"h100-mega"', '"h100"')
    (tmp_path / "ours.toml").write_text(text, encoding="utf-8")
    own = load_user_gpus(tmp_path)
    assert resolve_gpu("H100", user=own).id == "ours"
    assert resolve_gpu("NVIDIA-H100-80GB-HBM3", key=PRODUCT, user=own).id == "ours"
    assert resolve_gpu("ours-mig-1g.10gb", user=own).mig_profile == "1g.10gb"
    assert resolve_gpu("h100-sxm-80gb", user=own).id == "h100-sxm-80gb"
    with pytest.raises(AmbiguousGpu):
        resolve_gpu("h100")


def test_parts_of_ones_own_are_suggested() -> None:
    own = {"x9000": replace(load_gpu("l4"), id="x9000")}
    with pytest.raises(UnknownGpu, match="near: x9000"):
        resolve_gpu("x9000b", user=own)


WORDS = st.sampled_from(
    (
        *("nvidia", "tesla", "rtx", "pro", "ti", "a100", "h100", "h20", "h200", "l4", "l40s"),
        *("4060", "6000", "ada", "mi300x", "tpu", "sxm4", "pcie", "nvl", "80gb", "40g", "(r)"),
        *("mig", "1g.10gb", "1g.5gb.me", "invalid", "shared", "g5.xlarge", "p5.48xlarge"),
        *(".", "+", ":", "/", "_"),
    )
)
KEYS = st.sampled_from([None, "", PRODUCT, GKE, KARPENTER, INSTANCE, COREWEAVE, "accelerators"])


@given(
    name=st.one_of(
        st.text(max_size=40),
        st.lists(WORDS, max_size=6).flatmap(
            lambda words: st.sampled_from("- _").map(lambda separator: separator.join(words))
        ),
    ),
    key=KEYS,
    memory_mib=st.one_of(st.none(), st.integers(-1, 10**6)),
)
def test_any_text_resolves_or_is_refused_by_name(
    name: str, key: str | None, memory_mib: int | None
) -> None:
    try:
        gpu = resolve_gpu(name, key=key, memory_mib=memory_mib)
    except GpuNameError as refusal:
        assert refusal.name == name  # noqa: PT017
        assert str(refusal).startswith(repr(name)[:3])  # noqa: PT017
    else:
        assert gpu.id.split("-mig-")[0] in gpu_ids()


@given(name=st.sampled_from(gpu_ids()), suffix=st.text("abcgs0123456789", min_size=1, max_size=3))
def test_a_longer_word_is_another_name(name: str, suffix: str) -> None:
    """No part is found as the beginning of a longer word."""
    try:
        found = resolve_gpu(name + suffix, key=PRODUCT)
    except GpuNameError:
        return
    assert fold(name + suffix) in load_index().names
    assert found.id != name
