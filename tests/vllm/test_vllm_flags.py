from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from packaging.version import Version

from pytest_llmserve.runtimes.vllm.flags import all_flags, flag_table
from pytest_llmserve.runtimes.vllm.versions import OLDEST_KNOWN

KINDS = {
    "append",
    "bool_optional",
    "float",
    "human_int",
    "human_int_or_auto",
    "int",
    "json",
    "json_or_pairs",
    "json_or_str",
    "optional_str",
    "store_true",
    "str",
}
# (flag, first version with it, first version without it): read in the release wheels by hand.
SPANS = [
    ("--kv-cache-memory-bytes", "0.10.2", None),
    ("--kv-offloading-size", "0.11.1", None),
    ("--performance-mode", "0.17.0", None),
    ("--attention-backend", "0.13.0", None),
    ("--max-num-active-seqs", "0.31.0", None),
    ("--swap-space", None, "0.18.0"),
    ("--task", None, "0.13.0"),
    ("--num-scheduler-steps", None, "0.10.1"),
    ("--rope-scaling", None, "0.11.1"),
    ("--disable-log-requests", None, "0.17.0"),
    ("--max-num-partial-prefills", None, "0.27.0"),
    ("--calculate-kv-scales", None, "0.28.0"),
    ("--enable-reasoning", None, "0.10.0"),
    ("--guided-decoding-backend", None, "0.11.0"),
]


def before(version: str) -> str:
    """A release just before: the table compares numbers, so .99 of the previous minor will do."""
    major, minor, *_ = (int(part) for part in version.split("."))
    patch = int(version.split(".")[2])
    return f"{major}.{minor}.{patch - 1}" if patch else f"{major}.{minor - 1}.99"


@pytest.mark.parametrize(("flag", "since", "until"), SPANS)
def test_flags_come_and_go_with_their_version(
    flag: str, since: str | None, until: str | None
) -> None:
    if since:
        assert flag in flag_table(Version(since)).options
        assert flag not in flag_table(Version(before(since))).options
    if until:
        assert flag not in flag_table(Version(until)).options
        assert flag in flag_table(Version(before(until))).options


@pytest.mark.parametrize("version", ["0.8.5", "0.10.2", "0.19.1", "0.33.0"])
@pytest.mark.parametrize(
    "flag",
    [
        *("--model", "--tensor-parallel-size", "-tp", "--max-model-len", "--quantization", "-q"),
        *("--host", "--port", "--api-key", "--served-model-name", "--chat-template"),
        *("--tool-call-parser", "--enable-auto-tool-choice", "--reasoning-parser"),
        *("--download-dir", "--seed", "--middleware", "--ssl-keyfile", "--root-path"),
        *("--allowed-origins", "--disable-log-stats", "--trust-remote-code", "--tokenizer"),
        *("--revision", "--hf-token", "--load-format", "--otlp-traces-endpoint"),
        *("--generation-config", "--override-generation-config", "--model-impl"),
        *("--limit-mm-per-prompt", "--no-enable-prefix-caching", "--kv-transfer-config"),
        *("--speculative-config", "--hf-overrides", "--lora-modules", "--config", "-h"),
    ],
)
def test_flags_that_every_version_has(version: str, flag: str) -> None:
    assert flag in flag_table(Version(version)).options


def test_every_row_has_a_known_kind_and_a_range_that_ends_after_it_begins() -> None:
    for flag in all_flags():
        assert flag.kind in KINDS, flag.names
        assert flag.since < flag.until, flag.names


def test_two_rows_of_one_flag_never_hold_at_once() -> None:
    rows = defaultdict(list)
    for flag in all_flags():
        rows[flag.dest].append((flag.since, flag.until))
    for dest, spans in rows.items():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start, dest


def test_no_option_string_means_two_flags() -> None:
    for version in ("0.8.5", "0.12.0", "0.20.2", "0.33.0"):
        table = flag_table(Version(version))
        owners = defaultdict(set)
        for flag in table.by_dest.values():
            for name in flag.names:
                owners[name].add(flag.dest)
        assert {name: dests for name, dests in owners.items() if len(dests) > 1} == {}


@pytest.mark.parametrize(
    ("version", "word", "taken"),
    [
        ("0.9.2", "fp8_inc", False),
        ("0.10.0", "fp8_inc", True),
        ("0.10.2", "bfloat16", False),
        ("0.11.0", "bfloat16", True),
        ("0.19.1", "nvfp4", False),
        ("0.20.0", "nvfp4", True),
        ("0.27.1", "nvfp4_4over6", False),
        ("0.28.0", "nvfp4_4over6", True),
        ("0.32.0", "octave_k3v4", False),
        ("0.33.0", "octave_k3v4", True),
    ],
)
def test_choices_of_the_kv_cache_dtype_by_version(version: str, word: str, taken: bool) -> None:
    table = flag_table(Version(version))
    choices = table.by_dest["kv_cache_dtype"].choices_at(table.version)
    assert choices is not None
    assert (word in choices) is taken


def test_a_version_with_and_without_trailing_zero_is_one() -> None:
    assert (
        flag_table(Version("0.28")).options.keys() == flag_table(Version("0.28.0")).options.keys()
    )


def test_older_versions_than_known_keep_the_oldest_table() -> None:
    oldest = flag_table(OLDEST_KNOWN).options.keys()
    assert oldest <= flag_table(Version("0.8.2")).options.keys()
    assert "--speculative-model" in flag_table(Version("0.8.2")).options
