"""The door: what is refused is refused in one clear, located sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmserve.manifests.reader import read_file
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from manifest_files import Read

    from pytest_llmserve.manifests.launch import Reading

OK = "vllm serve m\n"


def only(reading: Reading) -> Problem:
    assert reading.launches == ()
    (problem,) = reading.problems
    return problem


@pytest.mark.parametrize(
    ("data", "message", "line"),
    [
        (b"\xff\xfea\0", "is UTF-16", 1),
        (b"a\nb\0", "is binary", 2),
        (b"a\nb\xff", "is not UTF-8: byte 0xff", 2),
        (b"", "an empty file", 1),
        (b"# only a comment\n", "an empty file", 1),
        (b"---\n---\n", "an empty file", 1),
    ],
)
def test_bytes_that_are_no_text(tmp_path: Path, data: bytes, message: str, line: int) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    problem = only(read_file(path))
    assert message in problem.message
    assert problem.location.line == line
    assert problem.location.file == str(path)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, message in (
        (tmp_path / "absent.yaml", "No such file"),
        (tmp_path, "is a directory"),
        (loop, "cannot read"),
        (fifo, "not a regular file"),
        (Path("a\0b"), "cannot read"),
    ):
        problem = only(read_file(path, display="shown.yaml"))
        assert problem.kind is ProblemKind.UNREADABLE
        assert message in problem.message
        assert problem.location.file == "shown.yaml"


def test_a_file_that_is_too_big(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"#" * 10_000_001)
    assert "deployment files end at 10 MB" in only(read_file(path)).message


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_marks(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "x.sh"
    path.write_bytes(("\ufeff# c\nvllm serve m \\\n --a 1\n".replace("\n", ending)).encode())
    (launch,) = read_file(path).launches
    assert [(w.text, w.location.line) for w in launch.argv] == [("m", 2), ("--a", 3), ("1", 3)]


def test_conflict_markers_come_first(read: Read) -> None:
    problem = only(read("d.yaml", "a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> main\n"))
    assert (problem.kind, problem.location.line) == (ProblemKind.UNREADABLE, 2)
    assert "merge conflict" in problem.message


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("i.yaml", "apiVersion: v1\nkind: InferenceService\n", "InferenceService inferenceservice"),
        ("r.yaml", "apiVersion: v1\nkind: RayService\n", "no server here"),
        (
            "k.yaml",
            "apiVersion: kustomize.config.k8s.io/v1\nkind: Kustomization\n",
            "kustomize build",
        ),
        (
            "n.yaml",
            "apiVersion: v1\nkind: New\nspec: {containers: [{image: x/vllm}]}\n",
            "form not read yet: kind New",
        ),
        ("s.yaml", "apiVersion: v1\nkind: Service\n", "no server here: Service (line 1)"),
        ("u.yaml", "apiVersion: v1\nkind: Unknown\nspec: {a: 1}\n", "no server here: Unknown"),
        ("v.yaml", "servingEngineSpec: {}\n", "no modelSpec"),
        ("values.yaml", "replicas: 1\n", "Helm values"),
        ("t.yaml", "resources: {}\nrun: null\n", "SkyPilot"),
        ("x.yaml", "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\nf: 6\n", "keys a, b, c, d, e, ..."),
        ("x.yaml", "- a\n", "the document is a list"),
        ("x.yaml", "just text\n", "the document is text"),
        ("j.yaml", "{% if x %}\na: 1\n", "a Jinja template"),
        ("llm.service", "[Service]\nExecStart=/bin/true\n", "no server here"),
        (".env", "MODEL=x\n", "a file of variables"),
        ("serve.py", "vllm serve\n", "py file"),
        ("README.md", "vllm serve m\n", "a text with examples"),
    ],
)
def test_forms_that_are_not_read_are_named(read: Read, name: str, text: str, message: str) -> None:
    problem = only(read(name, text))
    assert problem.kind is ProblemKind.UNKNOWN
    assert message in problem.message


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: 1\nb: [\n", "not valid YAML", 3),
        ("a: 1\na: 2\n", "key 'a' stands twice in one mapping (first in line 1)", 2),
        ("a: *b\n", "has no anchor", 1),
        ("a: &x [*x]\n", "inside its own anchor", 1),
        ("? [a]\n: 1\n", "a list is used as a key", 1),
        ("? {a: 1}\n: 1\n", "a mapping is used as a key", 1),
        ("<<: text\n", "merges mappings only", 1),
        ("[" * 200, "nested", 1),
        ("- " * 200 + "a", "nested deeper", 1),
        ("a: \x01\n", "not valid YAML", 1),
    ],
)
def test_broken_yaml_is_located(read: Read, text: str, message: str, line: int) -> None:
    problem = only(read("x.yaml", text))
    assert problem.kind is ProblemKind.UNREADABLE
    assert message in problem.message
    assert problem.location.line == line


def test_aliases_do_not_explode(read: Read) -> None:
    rows = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "aliases expand" in only(read("x.yaml", "\n".join(rows))).message


def test_each_document_is_read_on_its_own(read: Read) -> None:
    good = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
        "spec: {containers: [{image: x, command: [vllm, serve, m]}]}\n"
    )
    reading = read("x.yaml", f"{good}---\na: [\n--- # third\n{good}...\n{good}")
    assert [launch.name for launch in reading.launches] == ["p", "p-2", "p-3"]
    assert [launch.location.line for launch in reading.launches] == [4, 11, 16]
    (problem,) = reading.problems
    assert problem.kind is ProblemKind.UNREADABLE
    assert problem.location.line == 7


def test_tabs_at_line_ends_and_unknown_tags(read: Read) -> None:
    text = (
        "apiVersion: v1\nkind: Pod\t\nmetadata: {name: !Ref p}\nspec:\n  containers:\n"
        "  - image: x\t\n    command: [vllm, serve, !vault m]\n"
    )
    (launch,) = read("x.yaml", text).launches
    assert [w.text for w in launch.argv] == ["m"]


def test_json_manifests(read: Read) -> None:
    pod = '{"containers": [{"command": ["vllm", "serve", "m"]}]}'
    text = f'{{"apiVersion": "v1", "kind": "Pod", "spec": {pod}}}'
    (launch,) = read("x.json", text).launches
    assert launch.name == "pod"


def test_private_marks_in_foreign_text_mean_nothing(read: Read) -> None:
    (launch,) = read("x.sh", "vllm serve \ue000m\ue001\n").launches
    assert launch.argv[0].unresolved == ()


NAMES = st.sampled_from(["x.yaml", "x.sh", "x", "compose.yml", "values.yaml", "x.json"])
SNIPPETS = (
    "apiVersion: v1\n|kind: Deployment\n|kind: Pod\n|kind: LeaderWorkerSet\n|spec:\n|  template:\n"
    "|    spec:\n|  containers:\n|  - image: vllm/vllm-openai\n|    command: [vllm, serve, m]\n"
    "|    args: >\n|services:\n|  a:\n|    command: ${X:-|}|vllm serve m |\\\n|--max-model-len 1\n"
    "|---\n|'|\"|$(|)|$((|<<EOF\n|EOF\n|if true; then\n|fi\n|&a |*a |<<: |\t|{{ .X }}|docker run "
    "|--gpus |bash -c |size: 2\n|env: [{name: A, value: 1}]\n|nvidia.com/gpu: 1\n"
    "|  leaderWorkerTemplate:\n|    workerTemplate:\n|max-model-len: 1\n"
)
PIECES = st.sampled_from(SNIPPETS.split("|"))
FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def check(path: Path) -> None:
    reading = read_file(path)
    assert reading.launches or reading.problems
    for problem in (*reading.problems, *(p for x in reading.launches for p in x.problems)):
        assert problem.location.line >= 1
        assert problem.message
        assert not {"\ue000", "\ue001"} & set(problem.message)
    assert len({launch.name for launch in reading.launches}) == len(reading.launches)
    for launch in reading.launches:
        assert not any({"\ue000", "\ue001"} & set(word.text) for word in launch.argv)


@FUZZ
@given(NAMES, st.binary(max_size=200))
def test_any_bytes_give_an_answer(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    check(tmp_path / name)


@FUZZ
@given(NAMES, st.text(max_size=200))
def test_any_text_gives_an_answer(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", errors="replace")
    check(tmp_path / name)


@FUZZ
@given(NAMES, st.lists(PIECES, max_size=30))
def test_any_pieces_of_deployments_give_an_answer(
    tmp_path: Path, name: str, pieces: list[str]
) -> None:
    (tmp_path / name).write_text("".join(pieces))
    check(tmp_path / name)
