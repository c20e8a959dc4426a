from __future__ import annotations

import argparse
import contextlib
import io
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version
from serving import NEWEST, parse, values, words

from pytest_llmserve.manifests.launch import Word
from pytest_llmserve.runtimes.vllm.args import (
    UnknownSettingError,
    parse_args,
    stated_from_kwargs,
)
from pytest_llmserve.runtimes.vllm.flags import flag_table
from pytest_llmserve.verdict import Location, ProblemKind

HERE = Location("chat.yaml", 7)


@dataclass(frozen=True)
class Entry:
    key: str
    value: object
    location: Location = HERE


def says(line: str, version: str = NEWEST) -> list[str]:
    return [refusal.server_says for refusal in parse(line, version).refusals]


def test_joined_separate_underscored_and_short_spellings_are_one() -> None:
    for line in (
        "M --max-model-len=8192 --tensor-parallel-size 4",
        "M --max_model_len 8192 -tp 4",
        "M --max_model_len=8192 -tp=4",
        "--max-model-len 8192 M --tensor_parallel_size 4",
    ):
        args = parse(line)
        assert values(args) == {"max_model_len": 8192, "tensor_parallel_size": 4}
        assert args.model is not None
        assert args.model.value == "M"
        assert not args.refusals
        assert not args.problems


def test_a_value_knows_its_flag_and_its_line() -> None:
    stated = parse("M --gpu-memory-util 0.85").stated["gpu_memory_utilization"]
    assert (stated.value, stated.raw, stated.source) == (0.85, "0.85", "line 3")
    assert stated.flag == "--gpu-memory-utilization"
    assert str(stated.location) == "chat.yaml:3"


def test_the_last_of_a_repeated_flag_wins() -> None:
    assert values(parse("M -tp 2 --tensor-parallel-size 8")) == {"tensor_parallel_size": 8}


@pytest.mark.parametrize(
    ("text", "value"),
    [("32k", 32_000), ("32K", 32_768), ("25.6k", 25_600), ("1m", 10**6), ("8192", 8192)],
)
def test_lengths_take_decimal_and_binary_suffixes(text: str, value: int) -> None:
    assert values(parse(f"M --max-model-len {text}")) == {"max_model_len": value}


@pytest.mark.parametrize(
    ("line", "version", "words_of_the_server"),
    [
        ("--max-model-len 25.6K", NEWEST, "Decimals are not allowed with binary suffixes like K"),
        ("--max-model-len 8k5", NEWEST, "invalid human_readable_int_or_auto value: '8k5'"),
        ("--max-num-seqs 8k", NEWEST, "invalid int value: '8k'"),
        ("--max-num-batched-tokens 8k", "0.9.0", "invalid int value: '8k'"),
        ("--num-gpu-blocks-override 8k", NEWEST, "Value 8k cannot be converted to"),
        ("--max-model-len auto", "0.13.0", "invalid human_readable_int value: 'auto'"),
        ("--gpu-memory-utilization high", NEWEST, "invalid float value: 'high'"),
        ("--dtype fp8", NEWEST, "invalid choice: 'fp8'"),
        ("--max-lora-rank 48", NEWEST, "invalid choice: 48"),
        ("--kv-cache-dtype nvfp4", "0.19.1", "invalid choice: 'nvfp4'"),
        ("--max-model-len", NEWEST, "argument --max-model-len: expected one argument"),
        ("--served-model-name", NEWEST, "expected at least one argument"),
        ("--enforce-eager=false", NEWEST, "ignored explicit argument 'false'"),
        ("--trust-remote-code=true", "0.8.5", "ignored explicit argument 'true'"),
        ("--max-num 3", NEWEST, "ambiguous option: --max-num could match"),
        ("--hf-overrides-x 1 stray", NEWEST, None),
        ("M2", NEWEST, "unrecognized arguments: M2"),
        ("'--max-model-len 4096'", NEWEST, "unrecognized arguments: --max-model-len 4096"),
        ("--swap-space 4", "0.18.0", "unrecognized arguments: --swap-space 4"),
        ("--swap-space=4", "0.33.0", "unrecognized arguments: --swap-space=4"),
        ("--task embed", "0.13.0", "unrecognized arguments: --task embed"),
        ("--num-scheduler-steps 8", "0.10.1", "unrecognized arguments: --num-scheduler-steps 8"),
        ("--performance-mode throughput", "0.16.0", "unrecognized arguments"),
        ("--speculative-model x", "0.9.0", "unrecognized arguments: --speculative-model x"),
        ("--speculative-config {", NEWEST, "cannot be converted to"),
    ],
)
def test_what_the_parser_stops_with(
    line: str, version: str, words_of_the_server: str | None
) -> None:
    found = says(f"M {line}", version)
    if words_of_the_server is None:
        assert found == []
    else:
        assert len(found) == 1
        assert words_of_the_server in found[0]


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("--swap-space 4", "0.17.1"),
        ("--task embed", "0.12.0"),
        ("--max-model-len auto", "0.14.0"),
        ("--max-model-len -1", NEWEST),
        ("--max-num-batched-tokens 8k", "0.9.1"),
        ("--enforce-eager", "0.8.5"),
        ("--no-enforce-eager", NEWEST),
        ("--no-enable-chunked-prefill --no-enable-prefix-caching", NEWEST),
        ("--disable-prefix-caching", "0.33.0"),
        ("--served-model-name a b c --port 8000", NEWEST),
        ("--limit-mm-per-prompt image=4,video=1", "0.9.2"),
        ("--limit-mm-per-prompt '{\"image\": 4}'", NEWEST),
        ("--compilation-config 3", "0.11.0"),
        ("--distributed-executor-backend ray", "0.8.5"),
        ("--num-gpu-blocks-override None", NEWEST),
        ("--hf-token", NEWEST),
    ],
)
def test_what_the_parser_takes(line: str, version: str) -> None:
    args = parse(f"M {line}", version)
    assert args.refusals == ()
    assert args.problems == ()


def test_a_removed_flag_says_when_it_went_and_what_to_write_instead() -> None:
    (found,) = parse("M --task embed").refusals
    assert found.headline == "--task is unknown to vllm 0.33: removed in 0.13"
    assert "--runner pooling" in found.expected
    assert str(found.location) == "chat.yaml:2"
    (found,) = parse("M --max-num-active-seqs 8", "0.30.0").refusals
    assert found.headline == "--max-num-active-seqs is unknown to vllm 0.30: new in 0.31"


def test_a_flag_that_no_version_had_cannot_be_told() -> None:
    args = parse("M --max-model-length 8192 --made-up x")
    assert args.refusals == ()
    assert [problem.kind for problem in args.problems] == [ProblemKind.UNKNOWN] * 2
    assert "did you mean --max-model-len?" in args.problems[0].message
    assert "did you mean" not in args.problems[1].message


def test_negatives_set_false() -> None:
    line = "M --no-enable-prefix-caching --disable-chunked-prefill"
    assert values(parse(line)) == {
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
    }


def test_dotted_values_build_one_json() -> None:
    line = "M --hf_overrides.rope_scaling.factor 4 --hf-overrides.rope_scaling.rope_type=yarn"
    expected = {"rope_scaling": {"factor": 4, "rope_type": "yarn"}}
    assert values(parse(line)) == {"hf_overrides": expected}
    assert values(parse("M -cc.cudagraph_mode NONE -cc.sizes+ 1,2 -cc.sizes+=4")) == {
        "compilation_config": {"cudagraph_mode": "NONE", "sizes": ["1", "2", "4"]}
    }
    assert values(parse("M -cc.x 80k"))["compilation_config"] == {"x": 80_000}
    assert values(parse("M --compilation-config.x 80k", "0.19.1")) == {
        "compilation_config": {"x": "80k"}
    }


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("-O3", "0.12.0", {"optimization_level": 3}),
        ("-O=2", NEWEST, {"optimization_level": 2}),
        ("-O 1", NEWEST, {"optimization_level": 1}),
        ("-O3", "0.11.0", {"compilation_config": {"level": 3}}),
        ("-O.level=3", "0.11.0", {"compilation_config": {"level": 3}}),
    ],
)
def test_the_short_o_by_version(line: str, version: str, expected: dict[str, object]) -> None:
    args = parse(f"M {line}", version)
    assert values(args) == expected
    assert args.refusals == ()


def test_o_with_json_went_in_0_12() -> None:
    assert says("M -O {}", "0.11.0") == []
    assert says("M -O {}", "0.12.0") == ["unrecognized arguments: -O {}"]


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [("0.8.2", False), ("0.8.5", True), ("0.11.0", True), ("0.33.0", False)],
)
def test_serve_with_a_model_flag_by_version(version: str, is_refused: bool) -> None:
    args = parse("--port 80 --model M -tp 2", version)
    assert bool(args.refusals) is is_refused
    assert args.model is not None
    assert args.model.value == "M"


def test_the_api_server_takes_its_model_from_the_flag() -> None:
    args = parse("--model M -tp 2", "0.8.5", entrypoint="vllm.entrypoints.openai.api_server")
    assert args.model is not None
    assert args.model.value == "M"
    args = parse("M --port 1", entrypoint="vllm.entrypoints.openai.api_server")
    assert "is ignored" in args.problems[0].message
    assert args.model is None


def test_no_model_is_a_warning_or_an_error() -> None:
    assert parse("--port 8000").problems[0].kind is ProblemKind.WARNING
    assert says("--served-model-name x", "0.17.0")[0].startswith("`model` should be provided")
    assert says("--served-model-name x", "0.16.0") == []


def test_the_word_serve_itself_may_stand_first() -> None:
    assert parse("serve M -tp 2").model is not None
    assert parse("serve M -tp 2").refusals == ()


class TestConfigFile:
    def read(self, line: str, *entries: Entry, version: str = NEWEST) -> dict[str, object]:
        args = parse_args(words(line), Version(version), config_entries=entries)
        assert args.refusals == ()
        return values(args)

    def test_the_command_line_beats_the_file_and_the_file_the_default(self) -> None:
        line = "M --config c.yaml -tp 2"
        entries = (Entry("tensor-parallel-size", 4), Entry("max_num_seqs", "64"))
        assert self.read(line, *entries) == {"tensor_parallel_size": 2, "max_num_seqs": 64}

    def test_the_file_loses_even_to_flags_written_before_it(self) -> None:
        assert self.read("M -tp 2 --config c.yaml", Entry("tensor-parallel-size", 4)) == {
            "tensor_parallel_size": 2
        }

    def test_values_point_into_the_file(self) -> None:
        args = parse_args(
            words("M --config c.yaml"), Version(NEWEST), config_entries=[Entry("max-num-seqs", 8)]
        )
        assert args.stated["max_num_seqs"].location == HERE

    def test_false_counts_since_0_28(self) -> None:
        entry = Entry("enable-prefix-caching", value=False)
        assert self.read("M --config c.yaml", entry, version="0.28.0") == {
            "enable_prefix_caching": False
        }
        args = parse_args(words("M --config c.yaml"), Version("0.27.1"), config_entries=[entry])
        assert values(args) == {}
        assert args.problems[0].kind is ProblemKind.WARNING
        assert "does nothing in vllm 0.27.1" in args.problems[0].message

    def test_false_on_an_underscored_key_is_dropped_even_then(self) -> None:
        entry = Entry("enable_prefix_caching", value=False)
        assert self.read("M --config c.yaml", entry, version="0.33.0") == {}

    def test_true_lists_and_mappings(self) -> None:
        entries = (
            Entry("enforce-eager", value=True),
            Entry("served-model-name", ["a", "b"]),
            Entry("kv-transfer-config", {"kv_connector": "N", "kv_role": "kv_both"}),
            Entry("middleware", []),
        )
        assert self.read("M --config c.yaml", *entries) == {
            "enforce_eager": True,
            "served_model_name": ("a", "b"),
            "kv_transfer_config": {"kv_connector": "N", "kv_role": "kv_both"},
        }

    def test_a_mapping_was_python_text_before_0_16(self) -> None:
        args = parse_args(
            words("M --config c.yaml"),
            Version("0.15.1"),
            config_entries=[Entry("hf-overrides", {"a": 1})],
        )
        assert args.refusals[0].rule == "flags"

    def test_the_model_of_the_file_serves_where_no_word_names_one(self) -> None:
        entries = [Entry("model", "org/name")]
        args = parse_args(words("--config c.yaml"), Version(NEWEST), config_entries=entries)
        assert args.model is not None
        assert args.model.value == "org/name"
        args = parse_args(words("M --config c.yaml"), Version(NEWEST), config_entries=entries)
        assert args.model is not None
        assert args.model.value == "M"

    def test_no_model_anywhere(self) -> None:
        args = parse_args(
            words("--config c.yaml"), Version(NEWEST), config_entries=[Entry("port", 1)]
        )
        assert args.refusals[0].server_says.startswith("No model specified!")

    def test_a_file_that_was_not_given_leaves_settings_unknown(self) -> None:
        problems = parse("M --config c.yaml").problems
        assert problems[0].kind is ProblemKind.UNRESOLVED
        assert "c.yaml" in problems[0].message

    def test_wrong_suffix_and_dangling_flag(self) -> None:
        assert says("M --config c.json")[0] == "Config file must be of a yaml/yml type."
        assert says("M --config")[0].startswith("No config file specified!")


class TestUnresolved:
    def read(self, *texts: tuple[str, tuple[str, ...]]) -> list[Word]:
        return [Word(text, HERE, unresolved) for text, unresolved in texts]

    def test_a_flag_that_matters_is_named_with_its_variable(self) -> None:
        argv = self.read(("M", ()), ("--max-model-len", ()), ("$LEN", ("LEN",)))
        args = parse_args(argv, Version(NEWEST))
        (problem,) = args.problems
        assert problem.kind is ProblemKind.UNRESOLVED
        assert "--max-model-len is `$LEN`: no value for LEN" in problem.message
        assert problem.location == HERE
        assert args.unresolved == {"max_model_len"}
        assert "max_model_len" not in args.stated

    def test_joined_values_too(self) -> None:
        args = parse_args(self.read(("M", ()), ("-tp=$N", ("N",))), Version(NEWEST))
        assert args.unresolved == {"tensor_parallel_size"}

    @pytest.mark.parametrize("flag", ["--port", "--api-key", "--served-model-name", "--host"])
    def test_harmless_flags_may_stay_open(self, flag: str) -> None:
        args = parse_args(self.read(("M", ()), (flag, ()), ("$X", ("X",))), Version(NEWEST))
        assert args.problems == ()
        assert args.refusals == ()

    def test_words_that_may_hide_flags_are_named(self) -> None:
        argv = self.read(("M", ()), ("--enforce-eager", ()), ("$EXTRA", ("EXTRA",)))
        (problem,) = parse_args(argv, Version(NEWEST)).problems
        assert "no value for EXTRA" in problem.message
        argv = self.read(("M", ()), ("--served-model-name", ()), ("a", ()), ("$EXTRA", ("EXTRA",)))
        assert len(parse_args(argv, Version(NEWEST)).problems) == 1

    def test_the_model(self) -> None:
        args = parse_args(self.read(("$MODEL", ("MODEL",))), Version(NEWEST))
        assert args.model is None
        assert args.unresolved == {"model"}


@pytest.mark.parametrize("flag", ["--api-key", "--hf-token"])
def test_secrets_are_never_shown(flag: str) -> None:
    args = parse(f"M {flag} sk-very-secret --max-model-len x")
    assert "sk-very-secret" not in repr(args)
    assert values(args)[flag[2:].replace("-", "_")] == "***"


class TestUnread:
    def test_versions_outside_of_those_read(self) -> None:
        (problem,) = parse("M", "0.34.0").problems
        assert problem.kind is ProblemKind.WARNING
        assert "those of 0.33 are applied" in problem.message
        (problem,) = parse("M", "0.7.3").problems
        assert problem.kind is ProblemKind.UNKNOWN
        assert "those of 0.8.5 are applied" in problem.message
        assert parse("M", "0.33.0").problems == ()

    def test_config_overrides_that_change_the_model(self) -> None:
        (problem,) = parse("M --hf-overrides.num_hidden_layers 8").problems
        assert problem.kind is ProblemKind.UNKNOWN
        assert "`num_hidden_layers`" in problem.message
        assert str(problem.location) == "chat.yaml:2"
        assert parse("M --hf-overrides.max_position_embeddings 8").problems == ()


class TestChanges:
    def test_a_fix_replaces_a_value_and_what_was_wrong_with_it(self) -> None:
        args = parse("M --max-model-len 25.6K -tp 3")
        fixed = args.with_value("max_model_len", 8192)
        assert fixed.stated["max_model_len"].value == 8192
        assert fixed.stated["max_model_len"].source == "fix"
        assert fixed.stated["max_model_len"].flag == "--max-model-len"
        assert fixed.refusals == ()
        assert len(args.refusals) == 1

    def test_a_flag_can_be_taken_away(self) -> None:
        args = parse("M --swap-space 4 --dtype half")
        assert args.with_value("--swap-space", None).refusals == ()
        assert "dtype" not in args.with_value("dtype", None).stated


class TestKwargs:
    def test_names_are_destinations_and_text_is_read_as_on_the_command_line(self) -> None:
        args = stated_from_kwargs(
            Version(NEWEST),
            model="org/name",
            max_model_len="8k",
            tensor_parallel_size=2,
            dtype=None,
        )
        assert values(args) == {"max_model_len": 8000, "tensor_parallel_size": 2}
        assert args.model is not None
        assert args.stated["max_model_len"].source == "argument"

    def test_an_unknown_name_lists_close_ones(self) -> None:
        with pytest.raises(UnknownSettingError, match="max_model_len"):
            stated_from_kwargs(Version(NEWEST), max_model_length=1)

    def test_a_setting_of_other_versions_is_refused(self) -> None:
        (found,) = stated_from_kwargs(Version(NEWEST), swap_space=4).refusals
        assert found.headline == "swap_space is not a setting of vllm 0.33"

    def test_a_bad_value_is_refused(self) -> None:
        (found,) = stated_from_kwargs(Version(NEWEST), dtype="fp8").refusals
        assert "invalid choice" in found.server_says


# The parser of the standard library, fed from the same table, as an oracle for simple flags.
PLAIN = ("int", "float", "str", "bool_optional", "store_true")


def oracle(version: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("model_tag", nargs="?")
    table = flag_table(Version(version))
    for flag in table.by_dest.values():
        if flag.kind == "bool_optional":
            parser.add_argument(
                *flag.names, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS
            )
        elif flag.kind == "store_true":
            parser.add_argument(*flag.names, action="store_true", default=argparse.SUPPRESS)
        else:
            parser.add_argument(
                *flag.names,
                dest=flag.dest,
                nargs="+" if flag.is_list else None,
                default=argparse.SUPPRESS,
            )
    return parser


VERSION = "0.32.0"  # the last one without --disable-x beside --enable-x, which argparse lacks
ORACLE = oracle(VERSION)
NAMES = sorted(
    name
    for name, (flag, _) in flag_table(Version(VERSION)).options.items()
    if flag.kind in PLAIN
    and not flag.is_list
    and name.startswith("--")
    and name not in ("--model", "--config")  # vLLM moves these before argparse sees them
)


@given(st.sampled_from(NAMES), st.integers(3, 40))
@settings(max_examples=200, deadline=None)
def test_abbreviations_mean_what_argparse_says(name: str, length: int) -> None:
    word = name[:length]
    flag, _ = flag_table(Version(VERSION)).options[name]
    argv = [word] if flag.is_switch else [word, "1"]
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            expected = set(vars(ORACLE.parse_args(["M", *argv]))) - {"model_tag"}
        except SystemExit:
            expected = None
    args = parse_args([Word(text, HERE) for text in ("M", *argv)], Version(VERSION))
    is_refused = any("ambiguous" in r.server_says for r in args.refusals)
    if expected is None:
        assert args.refusals
    else:
        assert not is_refused
        assert set(args.stated) | {key for key, _ in args.refused} == expected


WORDS = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(
        ["M", "--", "-", "-O3", "-O", "--config", "c.yaml", "-tp", "8", "-1", "{", "="]
    ),
    st.text(max_size=12),
    st.builds("{}={}".format, st.sampled_from(NAMES), st.text(max_size=6)),
    st.builds("{}.{}".format, st.sampled_from(NAMES), st.text("abc.+=1", max_size=6)),
)


@given(
    st.lists(st.tuples(WORDS, st.sampled_from([(), ("X",)])), max_size=8),
    st.sampled_from(["0.8.5", "0.11.0", "0.19.1", NEWEST]),
    st.sampled_from(["vllm serve", "vllm.entrypoints.openai.api_server"]),
)
@settings(max_examples=300, deadline=None)
def test_no_words_make_it_raise(
    texts: list[tuple[str, tuple[str, ...]]], version: str, entrypoint: str
) -> None:
    argv = [Word(text, HERE, unresolved) for text, unresolved in texts]
    args = parse_args(argv, Version(version), entrypoint=entrypoint)
    for refusal in args.refusals:
        assert refusal.rule == "flags"
        assert len(refusal.headline) <= 100
