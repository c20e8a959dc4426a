import tomllib
from pathlib import Path

import pytest

from pytest_llmserve.hardware.catalogue import (
    GPUS,
    gpu_ids,
    load_gpu,
    load_user_gpus,
    read_part,
    spec_of,
)
from pytest_llmserve.hardware.errors import GpuCatalogueError
from pytest_llmserve.hardware.schema import Part
from pytest_llmserve.hardware.spec import GpuSpec
from pytest_llmserve.units import GIB, Interval

MINIMAL = """\
id = "hgx-next"
name = "HGX Next"
vendor = "NVIDIA"
architecture = "Next"

[memory]
marketed_bytes = 200_000_000_000
"""


@pytest.fixture(scope="module")
def parts() -> dict[str, Part]:
    return {i: Part.model_validate(read_part(GPUS / f"{i}.toml")) for i in gpu_ids()}


@pytest.fixture(scope="module")
def specs() -> dict[str, GpuSpec]:
    return {gpu_id: load_gpu(gpu_id) for gpu_id in gpu_ids()}


def gib(interval: Interval) -> list[float]:
    return [round(value / GIB, 2) for value in interval]


def test_all_parts_are_shipped_and_keep_to_the_schema(parts: dict[str, Part]) -> None:
    assert len(parts) == 87
    assert all(part.id == gpu_id for gpu_id, part in parts.items())


def test_the_quick_way_reads_what_the_schema_reads(
    parts: dict[str, Part], specs: dict[str, GpuSpec]
) -> None:
    for gpu_id, part in parts.items():
        spec = specs[gpu_id]
        assert dict(spec.dense_flops_per_s) == {
            dtype: peak.value for dtype, peak in part.dense_flops_per_s.items()
        }
        assert part.bandwidth is not None
        assert spec.hbm_bytes_per_s == part.bandwidth.bytes_per_s
        assert spec.link_bytes_per_s == (None if part.link is None else part.link.bytes_per_s)
        assert [p.name for p in spec.mig_profiles] == [row.profile for row in part.mig]


def test_each_figure_names_its_source(parts: dict[str, Part]) -> None:
    for part in parts.values():
        listed = [
            ("bandwidth", part.bandwidth),
            ("link", part.link),
            ("power", part.power),
            *part.dense_flops_per_s.items(),
        ]
        for key, figure in listed:
            if figure is None:
                continue
            assert figure.source, (part.id, key)
            missing = set(figure.source.split(", ")) - set(part.sources)
            assert not missing, (part.id, key, missing)
        stated = [*part.memory.readings, part.memory.framework_total, part.pcie, part.price]
        stated += [row.memory for row in part.mig]
        assert all(figure.source for figure in stated if figure is not None), part.id
        assert all(part.sources.values()), part.id


def test_figures_lie_in_sane_bands(specs: dict[str, GpuSpec]) -> None:
    for spec in specs.values():
        assert 8e9 <= spec.memory_marketed_bytes <= 600e9, spec.id
        assert spec.hbm_bytes_per_s is not None
        assert 100e9 <= spec.hbm_bytes_per_s <= 10e12, spec.id
        assert spec.hbm_safe_bytes_per_s is not None
        assert 0.85 <= spec.hbm_safe_bytes_per_s / spec.hbm_bytes_per_s <= 1, spec.id
        assert all(1e12 <= peak <= 20e15 for peak in spec.dense_flops_per_s.values()), spec.id
        if spec.memory_total_bytes is not None:
            low, _, high = (v / spec.memory_marketed_bytes for v in spec.memory_total_bytes)
            # From ECC cards (44.5 GiB of 48 GB) to parts that count GiB (191.98 GiB of 192 GB).
            assert 0.91 <= low <= high <= 2**30 / 1e9, spec.id


def test_wider_dtypes_are_never_faster(specs: dict[str, GpuSpec]) -> None:
    for spec in specs.values():
        peaks = spec.dense_flops_per_s
        order = [peaks[dtype] for dtype in ("fp32", "bf16", "fp8", "fp4") if dtype in peaks]
        assert order == sorted(order), spec.id


def test_the_framework_total_lies_below_what_the_driver_reports(parts: dict[str, Part]) -> None:
    checked = 0
    for part in parts.values():
        total = part.memory.framework_total
        driver = [r.bytes for r in part.memory.readings if r.by == "nvidia-smi"]
        if total is None or not driver:
            continue
        checked += 1
        assert total.high_bytes <= max(driver), part.id
        # Rule: GiB - (0.30 + 0.0027 x GiB) within 0.35 GiB; GH200 holds back half a GiB more.
        slack = 0.61 if part.id == "gh200-96gb" else 0.36
        expected = [b / GIB - (0.30 + 0.0027 * b / GIB) for b in driver]
        assert min(abs(total.expected_bytes / GIB - e) for e in expected) < slack, part.id
    assert checked > 40


def test_unknown_totals_stay_unknown(specs: dict[str, GpuSpec]) -> None:
    unread = {spec.id for spec in specs.values() if spec.memory_total_bytes is None}
    assert {"p100-16gb", "a2", "a16", "b100", "gh200-144gb", "rtx-pro-5000-48gb"} <= unread
    assert {"m3-ultra", "mi300a", "jetson-thor-128gb", "tpu-v5e"} <= unread
    assert load_gpu("b100").dense_flops_per_s == {}


def test_h100_sxm() -> None:
    # 3.35 TB/s and 989.4 dense TFLOP/s: datasheet; 79.10-79.22 GiB: vllm PRs 10511 and 12126.
    gpu = load_gpu("h100-sxm-80gb")
    assert gpu.hbm_bytes_per_s == 3_350_000_000_000
    assert gpu.dense_flops_per_s["bf16"] == 989_400_000_000_000
    assert gpu.memory_total_bytes is not None
    assert gib(gpu.memory_total_bytes) == [79.10, 79.18, 79.22]
    assert gpu.compute_capability == (9, 0)
    assert gpu.capability == 90
    assert gpu.link_bytes_per_s == 450_000_000_000
    assert gpu.memory_kind == "HBM3"
    assert gpu.pcie_bytes_per_s == 63_000_000_000  # PCIe 5.0 x16, one direction
    assert gpu.source == "catalogue h100-sxm-80gb"


@pytest.mark.parametrize(
    ("gpu_id", "total_gib"),
    [
        # "GPU 0 has a total capacity of X GiB" and vLLM's own "X/Y GiB" lines, by thread.
        ("a100-sxm-80gb", 79.25),  # vllm issue 20581
        ("l40s", 44.53),  # vllm issue 15598
        ("l40", 44.43),  # vllm issue 14726
        ("l4", 22.03),  # public OOM log of a GCP L4
        ("rtx-3090", 23.56),  # club-3090 issue 58
        ("rtx-3090", 23.69),  # vllm issue 2140
        ("h200-sxm-141gb", 139.81),  # vLLM logs
        ("gh200-96gb", 94.5),  # vllm issue 9630
        ("b200-sxm-180gb", 178.35),  # public log
        ("gb200-186gb", 184.31),  # public log that names it
        ("rtx-pro-6000-server", 95.01),  # public vLLM log
        ("rtx-pro-4500", 31.38),  # vllm issue 51590
        ("mi300x", 191.98),  # ROCm OOM logs
    ],
)
def test_totals_read_elsewhere_lie_within_the_bounds(gpu_id: str, total_gib: float) -> None:
    total = load_gpu(gpu_id).memory_total_bytes
    assert total is not None
    low, _, high = gib(total)
    assert low <= total_gib <= high


def test_ridge_points() -> None:
    # FLOP per byte at bf16, as four public tables have them.
    for gpu_id, ridge in {"h100-sxm-80gb": 295, "a100-sxm-80gb": 153, "h20-96gb": 37}.items():
        gpu = load_gpu(gpu_id)
        assert gpu.hbm_bytes_per_s is not None
        assert round(gpu.dense_flops_per_s["bf16"] / gpu.hbm_bytes_per_s) == ridge


def test_prices_are_of_one_device_and_dated() -> None:
    h100 = load_gpu("h100-sxm-80gb").price
    assert h100 is not None
    assert (h100.low_usd_per_hour, h100.high_usd_per_hour) == (2.95, 12.29)
    assert h100.date == "2026-06-18"
    assert load_gpu("rtx-4090").price is None


def test_a_price_of_a_package_is_divided() -> None:
    """A file's price is that of what one buys; a framework sees its devices."""
    table = {
        "id": "twin",
        "name": "two devices",
        "vendor": "any",
        "architecture": "any",
        "devices_per_unit": 2,
        "memory": {"marketed_bytes": 1},
        "price": {"low_usd_per_hour": 3.0, "high_usd_per_hour": 5.0},
    }
    price = spec_of(table, source="test").price
    assert price is not None
    assert (price.low_usd_per_hour, price.high_usd_per_hour, price.date) == (1.5, 2.5, "")


def test_upper_and_safe_bandwidth_differ_where_sources_do() -> None:
    b200, pro = load_gpu("b200-sxm-180gb"), load_gpu("rtx-pro-6000-server")
    assert (b200.hbm_bytes_per_s, b200.hbm_safe_bytes_per_s) == (8_000 * 10**9, 7_700 * 10**9)
    assert (pro.hbm_bytes_per_s, pro.hbm_safe_bytes_per_s) == (1_792 * 10**9, 1_597 * 10**9)


def test_mi250x_is_one_die() -> None:
    # Two GCDs a package; torchtitan has 191.5 TFLOP/s per GCD, the package reads 3277 GB/s.
    gpu = load_gpu("mi250x")
    assert gpu.memory_marketed_bytes == 64_000_000_000
    assert gpu.dense_flops_per_s["bf16"] == 191_500_000_000_000
    assert gpu.hbm_bytes_per_s == 3_277_000_000_000 // 2
    assert gpu.compute_capability is None


def test_marks_of_kind() -> None:
    assert load_gpu("rtx-5090").is_boost_guarded
    assert not load_gpu("rtx-pro-6000-ws").is_boost_guarded
    assert load_gpu("gb10").is_unified_memory
    assert "bf16" not in load_gpu("t4").dense_flops_per_s
    assert "fp8" not in load_gpu("a100-sxm-80gb").dense_flops_per_s


@pytest.mark.parametrize("gpu_id", ["h100", "", "../spec", "H100-SXM-80GB", "x" * 5000, "\0"])
def test_only_ids_are_loaded(gpu_id: str) -> None:
    with pytest.raises(KeyError):
        load_gpu(gpu_id)


def test_a_part_of_ones_own(tmp_path: Path) -> None:
    aliases = '\n[aliases]\nnvml = ["NVIDIA HGX Next"]\nshort = ["next"]\n'
    (tmp_path / "hgx-next.toml").write_text(MINIMAL + aliases, encoding="utf-8")
    own = load_user_gpus(tmp_path)
    assert set(own) == {"hgx-next", "NVIDIA HGX Next", "next"}
    gpu = own["next"]
    assert gpu.memory_total_bytes is None
    assert gpu.hbm_bytes_per_s is None
    assert gpu.source == str(tmp_path / "hgx-next.toml")


def test_a_shipped_file_is_a_template(tmp_path: Path) -> None:
    text = (GPUS / "h100-sxm-80gb.toml").read_text(encoding="utf-8")
    (tmp_path / "h100-sxm-80gb.toml").write_text(text, encoding="utf-8")
    assert load_user_gpus(tmp_path)["h100-sxm"].hbm_bytes_per_s == 3_350_000_000_000


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("id = ", "", "expected TOML"),
        (MINIMAL.replace("hgx-next", "other"), "id", "'other', expected 'hgx-next', as the file"),
        (MINIMAL.replace("marketed_bytes", "marketed_gb"), "memory.marketed_bytes", "missing"),
        (MINIMAL + "marketed_gb = 200\n", "memory.marketed_gb", "200, expected no such key"),
        (MINIMAL.replace("200_000_000_000", "-1"), "memory.marketed_bytes", "greater than 0"),
        (MINIMAL.replace("200_000_000_000", "2e11"), "memory.marketed_bytes", "a valid integer"),
        (
            MINIMAL + "[bandwidth]\nbytes_per_s = 1\nsafe_bytes_per_s = 2\n",
            "bandwidth",
            "safe_bytes_per_s to be at most bytes_per_s",
        ),
        (
            MINIMAL + "[memory.framework_total]\nlow_bytes=2\nexpected_bytes=1\nhigh_bytes=3\n",
            "memory.framework_total",
            "expected low_bytes <= expected_bytes <= high_bytes",
        ),
        (
            MINIMAL + "[dense_flops_per_s]\nbf17 = { value = 1 }\n",
            "dense_flops_per_s.bf17",
            "'fp32', 'tf32', 'fp16', 'bf16', 'fp8', 'int8' or 'fp4'",
        ),
        (
            MINIMAL + "[power]\nwatts = 1\nstatus = 'sure'\n",
            "power.status",
            "'sure', expected 'two-source'",
        ),
        (
            MINIMAL + "[[mig]]\nprofile = '1g.5gb'\nmax_count = 7\n"
            "memory_fraction = '1/8'\ncompute_fraction = '9/7'\n",
            "mig.0.compute_fraction",
            "a share above 0 and at most 1, such as '1/8'",
        ),
        ("compute_capability = '9'\n" + MINIMAL, "compute_capability", "'9', expected"),
    ],
)
def test_a_broken_file_is_named_with_key_value_and_expectation(
    tmp_path: Path, text: str, key: str, message: str
) -> None:
    file = tmp_path / "hgx-next.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(GpuCatalogueError) as caught:
        load_user_gpus(tmp_path)
    assert caught.value.file == str(file)
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "hgx-next.toml").write_bytes(b'id = "\xff"\n')
    with pytest.raises(GpuCatalogueError, match="byte 6', expected UTF-8 text"):
        load_user_gpus(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GpuCatalogueError, match="expected a folder with one TOML file"):
        load_user_gpus(tmp_path / "gpus")


def test_two_files_that_claim_one_name(tmp_path: Path) -> None:
    for stem in ("one", "two"):
        text = MINIMAL.replace("hgx-next", stem) + '[aliases]\nshort = ["next"]\n'
        (tmp_path / f"{stem}.toml").write_text(text, encoding="utf-8")
    with pytest.raises(GpuCatalogueError, match=r"'next', expected a name that one\.toml does not"):
        load_user_gpus(tmp_path)


def test_files_say_bytes_as_their_comments_do() -> None:
    """The GiB in a file's comment is for people; it must not drift from the bytes."""
    checked = 0
    for path in GPUS.glob("*.toml"):
        text = path.read_text(encoding="utf-8")
        total = tomllib.loads(text)["memory"].get("framework_total")
        if total is not None:
            figures = [total[f"{bound}_bytes"] / GIB for bound in ("low", "expected", "high")]
            assert f"reports: {' / '.join(f'{f:.2f}' for f in figures)} GiB." in text, path.stem
            checked += 1
    assert checked == 60
