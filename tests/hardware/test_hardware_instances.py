import csv
from fractions import Fraction

import pytest

from pytest_llmserve.hardware.catalogue import gpu_ids
from pytest_llmserve.hardware.instances import INSTANCES, instance_gpu


def rows() -> list[dict[str, str]]:
    with INSTANCES.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_every_type_has_a_shipped_part_or_says_that_it_has_another() -> None:
    shipped = set(gpu_ids())
    assert len(rows()) >= 257
    for row in rows():
        assert row["gpu_id"] in shipped or row["gpu_id"].startswith("other:"), row
        assert row["source"], row


def test_every_row_is_found_by_its_name() -> None:
    for row in rows():
        found = instance_gpu(row["instance_type"])
        assert found is not None, row
        assert found.gpu_id == row["gpu_id"], row
        assert found.count is None or 0 < found.count <= 16, row


def test_prices_are_dated_or_from_a_named_catalogue() -> None:
    for row in rows():
        if row["usd_per_hour"]:
            assert 0.1 < float(row["usd_per_hour"]) < 200, row
            assert row["price_date"] or "SkyPilot catalog v8" in row["source"], row
        else:
            assert not row["price_date"], row


@pytest.mark.parametrize(
    ("instance_type", "gpu_id", "count"),
    [
        # As the clouds' own pages and Karpenter's reference list them.
        ("p5.48xlarge", "h100-sxm-80gb", 8),
        ("p4d.24xlarge", "a100-sxm-40gb", 8),
        ("p4de.24xlarge", "a100-sxm-80gb", 8),
        ("ml.p4de.24xlarge", "a100-sxm-80gb", 8),
        ("g5.12xlarge", "a10g", 4),
        ("g6e.48xlarge", "l40s", 8),
        ("g6f.large", "l4", Fraction(1, 8)),
        ("a2-highgpu-1g", "a100-sxm-40gb", 1),
        ("a3-megagpu-8g", "h100-sxm-80gb", 8),
        ("g2-standard-24", "l4", 2),
        ("Standard_NC24ads_A100_v4", "a100-pcie-80gb", 1),
        ("standard_nc24ads_a100_v4", "a100-pcie-80gb", 1),
        ("NC80adis_H100_v5", "h100-nvl-94gb", 2),
        ("Standard_ND96asr_A100_v4", "a100-sxm-40gb", 8),
        ("Standard_NV6ads_A10_v5", "a10", Fraction(1, 6)),
        ("Standard_NC8ads_A10_v4", "a10", None),
        ("BM.GPU.H100.8", "h100-sxm-80gb", 8),
        ("gd-8xh100ib-i128", "h100-sxm-80gb", 8),
        ("g5g.xlarge", "other:t4g", 1),
    ],
)
def test_known_types(instance_type: str, gpu_id: str, count: int | Fraction | None) -> None:
    found = instance_gpu(instance_type)
    assert found is not None
    assert (found.gpu_id, found.count) == (gpu_id, count)
    assert found.is_modelled is not gpu_id.startswith("other:")


@pytest.mark.parametrize("instance_type", ["m5.large", "", "p5", "p5.48xlarge-x", "H100"])
def test_other_types_are_not_known(instance_type: str) -> None:
    assert instance_gpu(instance_type) is None
