"""vLLM's own YAML, and the small pure parts of the room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_llmserve.manifests.secrets import is_secret_flag, is_secret_name, masked, masked_text
from pytest_llmserve.manifests.servers import find_start
from pytest_llmserve.manifests.text import SourceText, join, unknown, unknown_names
from pytest_llmserve.manifests.variables import mark_placeholders, parse_env_file
from pytest_llmserve.manifests.vllm_config import python_value
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, documents

if TYPE_CHECKING:
    from manifest_files import Read


def test_a_config_file_of_its_own(read: Read) -> None:
    text = """\
    # settings
    model: org/m
    tensor-parallel-size: 2
    gpu_memory_utilization: 0.90
    max-model-len: 1_000
    enforce-eager: true
    async-scheduling: off
    served-model-name: [a, "b"]
    compilation-config: {mode: 3, sizes: [1, 010]}
    kv-transfer-config: '{"a": 1}'
    dtype: null
    rate: 1e-3
    api-key: abc
    """
    (launch,) = read("llm.yaml", text).launches
    assert (launch.name, launch.form, launch.runtime) == ("llm", "vllm config", "vllm")
    assert launch.argv == ()
    assert [(e.key, e.value) for e in launch.config_entries] == [
        ("model", "org/m"),
        ("tensor-parallel-size", 2),
        ("gpu_memory_utilization", 0.9),
        ("max-model-len", 1000),
        ("enforce-eager", True),
        ("async-scheduling", False),
        ("served-model-name", ["a", "b"]),
        ("compilation-config", {"mode": 3, "sizes": [1, 8]}),
        ("kv-transfer-config", '{"a": 1}'),
        ("dtype", None),
        ("rate", "1e-3"),
        ("api-key", "***"),
    ]
    assert [e.location.line for e in launch.config_entries] == list(range(2, 14))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [\n", "not valid YAML"),
        ("- a\n", "must be a mapping"),
        ("a: 1\na: 2\n", "stands twice"),
    ],
)
def test_a_named_config_that_is_broken(read: Read, text: str, message: str) -> None:
    (launch,) = read("run.sh", "vllm serve m --config c.yaml\n", c__yaml=text).launches
    (problem,) = launch.problems
    assert message in problem.message
    assert problem.location.file == "c.yaml"


SCALARS = (
    "1|0x1f|010|1_000|0.90|1e3|1.5e+3|.5|.inf|on|No|True|~|12:30:45|a b|=|-1|+1|2024-01-01|null"
    "|!x|'q"
)


@pytest.mark.parametrize("text", SCALARS.split("|"))
def test_scalars_mean_what_pyyaml_makes_of_them(text: str) -> None:
    node = Scalar("f", 1, 1, text, None, None, 1, [text])
    try:
        expected = yaml.safe_load(text)
    except yaml.YAMLError:
        expected = text
    if not isinstance(expected, bool | int | float | None):
        expected = text
    assert python_value(node) == expected


# places


def scalar_places(text: str, key: str) -> tuple[str, list[tuple[int, int | None]]]:
    (document,) = documents(text, "f")
    assert isinstance(document.root, Mapping)
    node = document.root.entries[key]
    assert isinstance(node, Scalar)
    source = node.source()
    starts = [i for i, c in enumerate(source.text) if c.isalpha()]
    places = [source.at(i) for i in starts]
    return source.text, [(p.line, p.column) for p in places]


@pytest.mark.parametrize(
    ("text", "value", "places"),
    [
        ("k: ab\n", "ab", [(1, 4), (1, 5)]),
        ("k: 'ab'\n", "ab", [(1, 5), (1, 6)]),
        ("k: |\n  a\n\n   b\n", "a\n\n b\n", [(2, 3), (4, 4)]),
        ("k: |+2\n   a\n  b\n\n", " a\nb\n\n", [(2, 4), (3, 3)]),
        ("k: >\n  a\n  b\n\n  c\n", "a b\nc\n", [(2, 3), (3, 3), (5, 3)]),
        ("k: >-\n  a\n    b\n", "a\n  b", [(2, 3), (3, 5)]),
        ("k: a\n  b\n", "a b", [(1, 4), (2, 3)]),
        ('k: "a\n  b\n\n  c"\n', "a b\nc", [(1, 5), (2, 3), (4, 3)]),
        ('k: "a\\\n  b"\n', "ab", [(1, 5), (2, 3)]),
        ("k: 'it''s\n  a'\n", "it's a", [(1, 5), (1, 6), (1, 9), (2, 3)]),
    ],
)
def test_scalar_places(text: str, value: str, places: list[tuple[int, int]]) -> None:
    assert scalar_places(text, "k") == (value, places)


def test_source_text_survives_edits() -> None:
    source = SourceText.of_lines("one $X two\nthree", "f").replaced([(4, 6, "long value")])
    assert source.text == "one long value two\nthree"
    assert [source.at(source.text.index(w)).column for w in ("one", "long", "two")] == [1, 5, 8]
    assert source.at(source.text.index("value")).line == 1
    assert source.at(source.text.index("three")).line == 2
    assert join([source.part(0, 3), source.part(19, 24)], "-").text == "one-three"


# unknown values


def test_unknown_names() -> None:
    text = unknown("${A:-x}") + "-" + unknown("$(B)") + unknown("{{ .C }}") + unknown("$A")
    assert unknown_names(text) == ("A", "B", "{{ .C }}")
    assert unknown_names("plain") == ()
    for display in ("$(nvidia-smi -L | wc -l)", "$((A * 2))", "`x`", "{{ .Values.a }}"):
        assert unknown_names(unknown(display)) == (display,)
    assert unknown_names(unknown("${A[@]}") + unknown("${B:?set it}")) == ("A", "B")


def test_marks_do_not_nest() -> None:
    source = SourceText.of_lines("a " + unknown("$(X)") + " $(Y)", "f")
    marked = mark_placeholders(source)
    assert unknown_names(marked.text) == ("X", "Y")
    assert mark_placeholders(marked).text == marked.text


# secrets


@pytest.mark.parametrize("name", ["HF_TOKEN", "--api-key", "AWS_SECRET_ACCESS_KEY", "password"])
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)
    assert masked(name, "abc") == "***"
    assert masked(name, "4096") == "4096"


@pytest.mark.parametrize(
    "name", ["max_num_batched_tokens", "--tokenizer", "MODEL", "--ssl-keyfile", "MONKEY"]
)
def test_names_that_hold_no_secret(name: str) -> None:
    assert not is_secret_name(name)
    assert masked(name, "abc") == "abc"


def test_secret_flags() -> None:
    assert is_secret_flag("--api-key")
    assert is_secret_flag("--hf-token")
    assert not is_secret_flag("--long-prefill-token-threshold")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@host/x", "https://***@host/x"),
        ("s3://b/x?X-Amz-Signature=abc&a=1", "s3://b/x?X-Amz-Signature=***&a=1"),
        (
            "https://objectstorage.eu.oraclecloud.com/p/AbC-d/n/ns/b/x",
            "https://objectstorage.eu.oraclecloud.com/p/***/n/ns/b/x",
        ),
        ("hf_abcdefghijklmnopqrst", "***"),
        ("https://huggingface.co/a", "https://huggingface.co/a"),
    ],
)
def test_urls_and_token_shapes(text: str, shown: str) -> None:
    assert masked_text(text) == shown


# .env files


def test_env_file_rules() -> None:
    text = (
        "A=1\n #B=2\nexport C = 3\nD='$A' # x\nE=\"${A}b\" \nF=a#b #c\nbroken\n"
        "G=${A:-x}${Q:-y}\nH=\n"
    )
    assert parse_env_file(text) == {
        "A": "1",
        "C": "3",
        "D": "$A",
        "E": "1b",
        "F": "a#b",
        "G": "1y",
        "H": "",
    }


# programs


@pytest.mark.parametrize(
    ("line", "runtime"),
    [
        ("vllm serve m", "vllm"),
        ("python3.12 -X dev -m vllm.entrypoints.openai.api_server", "vllm"),
        ("python -mvllm.entrypoints.openai.api_server", "vllm"),
        ("python3 /app/vllm/entrypoints/openai/api_server.py", "vllm"),
        ("python3 /usr/local/bin/vllm serve m", "vllm"),
        ("sglang serve x", "sglang"),
        ("/app/llama-server -m x", "llamacpp"),
        ("text-generation-launcher", "tgi"),
        ("ollama run x", "ollama"),
        ("timeout 60 uv run vllm serve m", "vllm"),
        ("tini -- vllm serve m", "vllm"),
    ],
)
def test_programs(line: str, runtime: str) -> None:
    start = find_start(line.split())
    assert start is not None
    assert (start.kind, start.runtime) == ("server", runtime)


@pytest.mark.parametrize(
    "line",
    ["vllm", "vllm chat", "python3 x.py", "echo vllm serve", "ollama pull x", "pip install vllm"],
)
def test_programs_that_serve_nothing(line: str) -> None:
    assert find_start(line.split()) is None
