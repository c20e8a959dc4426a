"""The shell reader: words, expansion, control flow. Positions are of the place of use."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmserve.manifests.command_words import split_command
from pytest_llmserve.manifests.shell_lexer import Lexer
from pytest_llmserve.manifests.shell_math import arithmetic
from pytest_llmserve.manifests.shell_math import test as shell_test
from pytest_llmserve.manifests.shell_run import Script
from pytest_llmserve.manifests.shell_state import State
from pytest_llmserve.manifests.shell_tokens import ShellError
from pytest_llmserve.manifests.text import SourceText, shown, unknown, unknown_names
from pytest_llmserve.manifests.words import field
from pytest_llmserve.verdict import Location


def run(text: str, *parameters: str, **variables: str) -> Script:
    place = Location("list.yaml", 90)
    state = State(
        variables=variables,
        exported=frozenset(variables),
        parameters=tuple(field(p, place) for p in parameters),
    )
    return Script(SourceText.of_lines(dedent(text), "s.sh"), state)


def launches(text: str, *parameters: str, **variables: str) -> list[list[str]]:
    """Arguments of every `vllm serve` found."""
    return [
        [shown(item.text) for item in found.fields[found.start.index :]]
        for found in run(text, *parameters, **variables).invocations()
    ]


def only(text: str, *parameters: str, **variables: str) -> list[str]:
    (found,) = launches(text, *parameters, **variables)
    return found


# S1: cut at operators outside quotes, comments dropped, continuations joined


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --a 1",
        "ulimit -n 9; echo vllm serve no; vllm serve m --a 1; echo done",
        "wget x && vllm serve m --a 1",
        "# vllm serve no\nvllm serve m --a 1 # vllm serve no",
        "vllm serve m \\\n  --a \\\n 1\n",
        "vllm serve m --a 1 2>&1 | tee log &",
        "vllm serve m --a 1 > file 2>/dev/null &",
        "vllm serve m --a 1 &>> log",
        "vllm serve m --a 1 \\\n\n--not-an-argument",
        "(cd /x; vllm serve m --a 1)",
        "{ vllm serve m --a 1; }",
        "! vllm serve m --a 1",
        "time vllm serve m --a 1",
        "nohup vllm serve m --a 1 &",
        "exec vllm serve m --a 1",
        "A=1 B=$(cat f) vllm serve m --a 1",
        "env A=1 vllm serve m --a 1",
        "numactl --cpunodebind=0 vllm serve m --a 1",
        "srun -N1 --gpus 8 vllm serve m --a 1",
        "CUDA_VISIBLE_DEVICES=0 /opt/venv/bin/vllm serve m --a 1",
        'eval "exec vllm serve m --a 1"',
        "bash -c 'vllm serve m --a 1'",
        "bash -lc -- 'vllm serve m --a 1'",
        "sh -e -o pipefail -c 'vllm serve m --a $1' name 1",
        "python3 -m vllm.entrypoints.openai.api_server m --a 1",
        "python -u -m vllm.entrypoints.cli.main serve m --a 1",
        "false || vllm serve m --a 1",
        "[ 1 = 2 ] || vllm serve m --a 1",
        "f() { vllm serve m --a $1; }; f 1",
        "function f { vllm serve m --a 1; }\nf",
        "while true; do vllm serve m --a 1; sleep 5; done",
        "until curl x; do sleep 1; done; vllm serve m --a 1",
        "cat > run.sh <<'E'\nvllm serve m --a $1\nE\nbash run.sh 1",
        "set -- --a 1; vllm serve m $@",
        "case x in y) vllm serve no;; x|z) vllm serve m --a 1;; esac",
    ],
)
def test_the_launch_is_found(text: str) -> None:
    assert only(text) == ["m", "--a", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "echo vllm serve m",
        "pip install vllm serve",
        "vllm bench serve m",
        "true || vllm serve m",
        "false && vllm serve m",
        "if [ a = b ]; then vllm serve m; fi",
        "exit 0; vllm serve m",
        "exec sleep 1; vllm serve m",
        "f() { vllm serve m; }",
        "x='vllm serve m'",
        "cat <<E\nvllm serve m\nE",
        "python3 -m sglang.bench_serving --model m",
    ],
)
def test_what_is_not_launched(text: str) -> None:
    assert launches(text) == []


EXPANSIONS = [
    ("'a b'", ["a b"]),
    ('"a \\"b\\" $X"', ['a "b" 1']),
    ("a\\ b", ["a b"]),
    ("$'a\\nb'", ["a\nb"]),
    ("'a'\"b\"c", ["abc"]),
    ("''", [""]),
    ("$X", ["1"]),
    ("${X}y", ["1y"]),
    ("${N:-d}", ["d"]),
    ("${N-d}", ["d"]),
    ("${E:-d}", ["d"]),
    ("${E-d}", []),
    ('"${E-d}"', [""]),
    ("${N-}", []),
    ("--x=${N-}", ["--x="]),
    ("${N:-${M:-deep}}", ["deep"]),
    ("${N:---flag on}", ["--flag", "on"]),
    ('"${N:---flag on}"', ["--flag on"]),
    ("${X:+yes}", ["yes"]),
    ("${N:+yes}", []),
    ("${N:=new}$N", ["newnew"]),
    ("$W", ["two", "words"]),
    ('"$W"', ["two words"]),
    ("a$W", ["atwo", "words"]),
    ("${W}b", ["two", "wordsb"]),
    ("$((X + 2 * 3))", ["7"]),
    ("$(( (X+9) / 4 ))", ["2"]),
    ("${A[@]}", ["--p", "q", "r"]),
    ('"${A[@]}"', ["--p", "q r"]),
    ('x"${A[@]}"y', ["x--p", "q ry"]),
    ('"${A[*]}"', ["--p q r"]),
    ("${A[1]}", ["q", "r"]),
    ("${NONE[@]}", []),
    ('"${NONE[@]}"', []),
    ("$#", ["0"]),
    ('"$@"', []),
]


@pytest.mark.parametrize(("word", "value"), EXPANSIONS)
def test_expansion(word: str, value: list[str]) -> None:
    text = f"A=(--p 'q r')\nvllm serve {word}\n"
    assert only(text, X="1", E="", W="two words") == value


@pytest.mark.skipif(shutil.which("bash") is None, reason="the oracle is bash itself")
def test_expansion_is_that_of_bash() -> None:
    setup = "A=(--p 'q r'); X=1; E=; W='two words'; v() { printf '%s\\0' \"$@\" END; }\n"
    script = setup + "".join(f"(v {word})\n" for word, _ in EXPANSIONS)
    result = subprocess.run(["bash", "-c", script], capture_output=True, check=True, text=True)
    fields = result.stdout.split("\0")[:-1]
    for word, value in EXPANSIONS:
        end = fields.index("END")
        assert (word, fields[:end]) == (word, value)
        fields = fields[end + 1 :]


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("$HOST", ("HOST",)),
        ("${HOST}", ("HOST",)),
        ("${HOST:?set it}", ("HOST",)),
        ("$(hostname -i)", ("$(hostname -i)",)),
        ("`nproc`", ("`nproc`",)),
        ("x-$HOST-$PORT", ("HOST", "PORT")),
        ("${HOST##*/}", ("HOST##*/",)),
    ],
)
def test_what_stays_unknown_is_named(word: str, names: tuple[str, ...]) -> None:
    (found,) = run(f"vllm serve m {word}").invocations()
    got = unknown_names(found.fields[-1].text)
    assert got == names or got == (word,)


def test_arrays_grow_and_are_kept_apart() -> None:
    text = """\
    ARGS=(--a "b c")
    ARGS+=(--d)
    ARGS+=("$X")
    vllm serve m "${ARGS[@]}"
    """
    (found,) = run(text, X="y z").invocations()
    assert [f.text for f in found.fields[2:]] == ["m", "--a", "b c", "--d", "y z"]
    assert [f.location.line for f in found.fields[2:]] == [4, 1, 1, 2, 3]


def test_substituted_values_stand_where_they_are_used() -> None:
    (found,) = run("LEN=8192\n\nvllm serve m \\\n  --max-model-len $LEN\n").invocations()
    assert [(f.location.line, f.location.column) for f in found.fields] == [
        (3, 1),
        (3, 6),
        (3, 12),
        (4, 3),
        (4, 19),
    ]


def test_parameters_keep_their_own_place() -> None:
    (found,) = run('exec vllm serve --x "$@"', "m", "--y").invocations()
    places = [str(f.location) for f in found.fields[found.start.index :]]
    assert places == ["s.sh:1", "list.yaml:90", "list.yaml:90"]


def test_nested_script_lines() -> None:
    text = 'bash -c "python3 -V\nvllm serve m \\\n --a 1"\n'
    (found,) = run(text).invocations()
    assert [f.location.line for f in found.fields] == [2, 2, 2, 3, 3]


# S5, S6: conditions


def test_known_conditions_are_decided() -> None:
    text = """\
    if [[ "$TP" -gt 1 && $NAME == h* ]]; then A=(--x); elif [ -z "$NONE" ]; then A=(--y)
    else A=(--z); fi
    [[ "${EAGER:-0}" == 1 ]] && A+=(--enforce-eager)
    vllm serve m "${A[@]}"
    """
    assert only(text, TP="2", NAME="h100", NONE="") == ["m", "--x"]
    assert only(text, TP="1", NAME="h100", NONE="") == ["m", "--y"]
    assert only(text, TP="1", NAME="x", NONE="a", EAGER="1") == ["m", "--z", "--enforce-eager"]


@pytest.mark.parametrize(
    "text",
    [
        'if [ "$RANK" = 0 ]; then A=--a; else A=--b; fi; vllm serve $A',
        "if nvidia-smi -q; then A=--a; else A=--b; fi; vllm serve $A",
        "A=--b; [ -f /etc/x ] && A=--a; vllm serve $A",
        "A=--b; case $RANK in 0) A=--a;; esac; vllm serve $A",
        "if [[ $RANK =~ x ]]; then vllm serve --a; else vllm serve --b; fi",
        "source /unknown; if [ ${_X:-0} = 1 ]; then vllm serve --a; else vllm serve --b; fi",
    ],
)
def test_unknown_conditions_give_every_alternative(text: str) -> None:
    assert sorted(launches(text)) == [["--a"], ["--b"]]


def test_equal_settings_under_if_else_are_one_server() -> None:
    assert only('if [ "$R" = 0 ]; then vllm serve m; else vllm serve m; fi') == ["m"]


def test_the_same_words_in_another_environment_are_another_server() -> None:
    text = "X=0 vllm serve m &\nX=1 vllm serve m &\nX=1 vllm serve m &\n"
    assert launches(text) == [["m"], ["m"]]


def test_a_way_that_exits_launches_nothing() -> None:
    assert only("if ! curl x; then exit 1; fi\nvllm serve m") == ["m"]


def test_too_many_ways_leave_unknown_values() -> None:
    text = "".join(f"if probe{i}; then V{i}=1; else V{i}=2; fi\n" for i in range(8))
    found = launches(text + "vllm serve m --x $V0")
    assert len(found) == 1
    assert found[0][-1] == "$V0"


def test_loops_over_known_words() -> None:
    text = """\
    OUT=()
    for a in "$@"; do
      if [ "$a" = --drop ]; then continue; fi
      case "$a" in --stop) break;; esac
      OUT+=("$a")
    done
    vllm serve "${OUT[@]}"
    """
    assert only(text, "m", "--drop", "--keep", "--stop", "late") == ["m", "--keep"]


def test_heredocs() -> None:
    text = """\
    LEN=4096
    cat > a.yaml <<EOF
    max-model-len: $LEN
    say: "x"
    EOF
    cat <<'EOF' > b.yaml
    raw: $LEN
    EOF
    tee c.yaml <<-EOF
    \ttabbed: ${LEN}
    \tEOF
    echo "d: 1" > d.yaml
    vllm serve m
    """
    (found,) = run(text).invocations()
    assert {name: source.text for name, source in found.files.items()} == {
        "a.yaml": 'max-model-len: 4096\nsay: "x"\n',
        "b.yaml": "raw: $LEN\n",
        "c.yaml": "tabbed: 4096\n",
        "d.yaml": "d: 1",
    }
    assert found.files["a.yaml"].at(0).line == 3
    assert found.files["b.yaml"].at(0).line == 7


def test_exported_variables_and_prefixes_reach_the_server() -> None:
    (found,) = run("A=1\nexport B=2 C\nC=3\nD=4 vllm serve m").invocations()
    assert found.exported == {"B", "C", "D"}
    assert {name: found.variables[name] for name in "ABCD"} == dict(
        zip("ABCD", "1234", strict=True)
    )


def test_secrets_never_get_into_words() -> None:
    (found,) = run("HF_TOKEN=hf_abcdefghijklmnopqrst\nvllm serve m --x $HF_TOKEN").invocations()
    assert found.fields[-1].text == "***"


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("echo\nvllm serve 'm", "quote ' is not closed", 2),
        ('vllm serve "m', 'quote " is not closed', 1),
        ("if true; then\nvllm serve m\n", "expected elif or else or fi", 3),
        ("\ncat <<E\nx\n", "no closing 'E'", 2),
        ("vllm serve $(x", "parenthesis is not closed", 1),
        ("vllm serve ${x", "not closed", 1),
        ("fi", "unexpected 'fi'", 1),
        ("a )", "unexpected ')'", 1),
        ("eval 'if x'", "expected then", 1),
    ],
)
def test_broken_scripts_are_located(text: str, message: str, line: int) -> None:
    with pytest.raises(ShellError, match=message.replace("(", r"\(").replace(")", r"\)")) as error:
        run(text)
    assert error.value.location is not None
    assert error.value.location.line == line


@pytest.mark.parametrize(
    "text", ["f() { f; }; f", 'eval "$X"', "(" * 500, "$((" * 500, "${a:-" * 500, '"$(' * 500]
)
def test_bottomless_scripts_end(text: str) -> None:
    with contextlib.suppress(ShellError):
        assert run(text, X='eval "$X"').invocations() == []


def test_a_backslash_before_a_blank_is_a_trap() -> None:
    script = run("vllm serve m \\ \n  --a 1\n")
    assert [f.text for f in script.invocations()[0].fields[2:]] == ["m", "--a", "1"]
    assert [place.line for place in script.traps] == [1]


# words


def lex(text: str) -> list[str]:
    tokens = Lexer(SourceText.of_lines(text, "f")).tokens()
    return ["".join(getattr(p, "text", "?") for p in t.parts) for t in tokens if t.kind == "word"]


SIMPLE = st.text(alphabet="ab-_=/.,:1 '\"\\{}[]", max_size=12)


@given(st.lists(SIMPLE, min_size=1, max_size=6))
def test_what_shlex_joins_both_splitters_split(items: list[str]) -> None:
    text = shlex.join(items)
    assert lex(text) == items
    fields, problems = split_command(SourceText.of_lines(text, "f"))
    assert [item.text for item in fields] == items
    assert problems == []


@given(st.text(alphabet="ab \t-='\"{}:,", max_size=25))
def test_plain_text_splits_as_shlex_splits(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        with pytest.raises(ShellError):
            split_command(SourceText.of_lines(text, "f"))
        return
    assert [f.text for f in split_command(SourceText.of_lines(text, "f"))[0]] == expected
    assert lex(text) == expected


@given(st.text(alphabet="a$({})'\"`\\ \n;&|<>=[]if#-:+@", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ShellError):
        for found in run(text).invocations():
            assert all(item.location.line >= 1 for item in found.fields)


def test_command_strings_end_at_operators() -> None:
    fields, problems = split_command(SourceText.of_lines("--model m `x` $Y | tee log", "f"))
    assert [f.text for f in fields] == ["--model", "m", "`x`", "$Y"]
    assert "no shell runs it" in problems[0].message


# arithmetic and tests


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1+2)*3", 9),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("A * 2", 8),
        ("A / 0", None),
        ("B", None),
        ("1 +", None),
        ("1 << 2", None),
        ("(" * 100, None),
    ],
)
def test_arithmetic(text: str, value: int | None) -> None:
    assert arithmetic(text, {"A": "4"}.get) == value


@given(st.integers(-99, 99), st.integers(1, 99), st.integers(-99, 99))
def test_arithmetic_agrees_with_python(a: int, b: int, c: int) -> None:
    unset: dict[str, str] = {}
    assert arithmetic(f"{a} + {b} * ({c} - {a})", unset.get) == a + b * (c - a)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["a", "=", "a"], True),
        (["a", "!=", "a"], False),
        (["2", "-ge", "10"], False),
        (["x", "-ge", "10"], None),
        (["-n", "x"], True),
        (["-z", ""], True),
        (["-f", "/x"], None),
        (["!", "-z", ""], False),
        (["a"], True),
        ([""], False),
        ([], False),
        (["a", "=", "a", "-a", "b", "=", "c"], False),
        (["-f", "x", "||", "a", "=", "a"], True),
        (["-f", "x", "&&", "a", "=", "b"], False),
        ([unknown("$X"), "=", "a"], None),
        (["-n", unknown("$X")], None),
    ],
)
def test_tests_are_three_valued(words: list[str], value: bool | None) -> None:
    assert shell_test(words, globs=False) is value
