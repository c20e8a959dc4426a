"""Distributions of lengths: against numbers worked out by hand and against sampling."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.lengths import (
    PERCENTILES,
    fixed,
    from_histogram,
    from_percentiles,
    independent,
)
from pytest_llmserve.policy_file import PolicyError, parse_policy


def test_percentiles() -> None:
    """Half of the mass evenly in 1..100, 49 % in 100..200, 1 % at 200."""
    found = from_percentiles({"p50": 100, "p99": 200})
    assert found.mean == pytest.approx(0.5 * 50.5 + 0.49 * 150 + 0.01 * 200)
    assert found.longest == 200


@given(st.lists(st.integers(1, 100_000), min_size=len(PERCENTILES), max_size=len(PERCENTILES)))
def test_percentiles_bound_their_mean(values: list[int]) -> None:
    points = dict(zip(PERCENTILES, sorted(values), strict=True))
    found = from_percentiles(points)
    assert 1 <= found.mean <= found.longest == points["max"]
    assert 0 <= found.deviation <= found.longest
    higher = from_percentiles({name: value + 1 for name, value in points.items()})
    assert higher.mean >= found.mean


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({"p50": 5}, "expected p99 or max too"),
        ({"p98": 5, "max": 6}, "unknown percentile 'p98'; valid: p10"),
        ({"p50": 9, "p99": 5}, "must not fall: 5 comes after 9"),
    ],
)
def test_percentiles_that_say_too_little(points: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_percentiles(points)


def test_fixed_lengths_have_no_spread() -> None:
    found = independent(fixed(1000), fixed(300)).total
    assert (found.mean, found.deviation, found.longest) == (1300, 0, 1300)


def test_a_histogram_knows_how_prompts_and_outputs_go_together(tmp_path: Path) -> None:
    """Long prompts with short answers: the sum does not vary at all."""
    path = tmp_path / "traffic.csv"
    path.write_text("prompt_tokens,output_tokens,count\n900,100,3\n100,900,1\n")
    found = from_histogram(path)
    assert found.prompt.mean == 700
    assert found.output.mean == 300
    assert (found.total.mean, found.total.deviation, found.total.longest) == (1000, 0, 1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt,output\n1,2\n", "traffic.csv:1: columns prompt,output: expected prompt_tokens"),
        ("prompt_tokens,output_tokens,count\n1,0,5\n", "traffic.csv:2: output_tokens = '0'"),
        ("prompt_tokens,output_tokens,count\n1,2\n", "traffic.csv:2: count = ''"),
        ("prompt_tokens,output_tokens,count\n", "no lengths below the header"),
    ],
)
def test_a_bad_histogram_is_named_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "traffic.csv").write_text(text)
    table = {"workload": {"lengths_file": "traffic.csv"}}
    written = '[workload]\nlengths_file = "traffic.csv"\n'
    with pytest.raises(PolicyError) as error:
        parse_policy(table, origin="llmserve.toml", base_dir=tmp_path, text=written)
    assert str(error.value).startswith("llmserve.toml:2: lengths_file: ")
    assert message in str(error.value)


def test_a_policy_with_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "traffic.csv").write_text(
        "prompt_tokens,output_tokens,count\n1000,100,9\n11000,100,1\n"
    )
    policy = parse_policy(
        {
            "workload": {"lengths_file": "traffic.csv", "rate_per_s": 2.5},
            "slo": {"ttft_expected": "500ms", "tpot_expected": "30ms"},
            "price": {"usd_per_gpu_hour": 2.5},
            "cost": {"max_usd_per_million_tokens": 1.2},
        },
        origin="llmserve.toml",
        base_dir=tmp_path,
    )
    facts = policy.facts
    assert facts.workload is not None
    assert facts.workload.prompt_tokens == 2000
    assert facts.workload.rate_per_s == 2.5
    assert facts.workload.longest_tokens == 11_100
    assert facts.workload.request_deviation == pytest.approx(3000)
    # the mean and three standard errors of nine
    assert facts.workload.tokens_held(9) == 2100 + 3000
    assert facts.workload.tokens_held(1) == 11_100
    assert facts.slo is not None
    assert (facts.slo.ttft_expected_s, facts.slo.tpot_expected_s) == (0.5, 0.03)
    assert (facts.usd_per_gpu_hour, facts.max_usd_per_million_tokens) == (2.5, 1.2)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"workload": {"prompt_tokens": {"p50": 5}, "output_tokens": 5}},
            "workload.prompt_tokens = {'p50': 5}: expected p99 or max too",
        ),
        (
            {"workload": {"prompt_tokens": 0, "output_tokens": 5}},
            "workload.prompt_tokens = 0: expected a number of tokens from 1 on",
        ),
        (
            {"workload": {"prompt_tokens": 5, "output_tokens": 5, "lengths_file": "a.csv"}},
            "not both",
        ),
        ({"price": {"usd_per_gpu_hour": 0}}, "price.usd_per_gpu_hour = 0"),
        ({"price": {"usd": 2}}, "valid keys: usd_per_gpu_hour"),
        ({"cost": {"max_usd_per_million_tokens": -1}}, "cost.max_usd_per_million_tokens = -1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, table: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy(table, origin="llmserve.toml", base_dir=tmp_path)
    assert message in str(error.value)
