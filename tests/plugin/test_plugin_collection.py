"""Which files are checked: those named, those declared, those in a named folder."""

import pytest
from plugin_files import FITS, SERVICE, TOO_LONG, pod, write


def ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line and not line.startswith("FAILED")]


def test_a_named_file_is_checked(pytester: pytest.Pytester) -> None:
    write(pytester, deploy__chat_yaml=FITS)
    result = pytester.runpytest("--llmserve", "deploy/chat.yaml", "--collect-only", "-q")
    assert ids(result) == [
        f"deploy/chat.yaml::{name}"
        for name in (
            "readable",
            "chat::resolved",
            "chat::model-known",
            "chat::gpu-known",
            "chat::weights-fit",
            "chat::kv-cache-fits",
            "chat::parallelism-valid",
            "chat::gpus-match-parallelism",
            "chat::context-within-model",
            "chat::dtype-supported",
            "chat::quantization-supported",
            "chat::scheduler-valid",
            "chat::flags-known-to-version",
            "chat::settings-valid",
        )
    ]


def test_it_passes_and_says_how_much_was_checked(pytester: pytest.Pytester) -> None:
    write(pytester, deploy__chat_yaml=FITS, deploy__more_yaml=pod(name="a") + "---\n" + pod())
    result = pytester.runpytest("--llmserve", "deploy")
    result.assert_outcomes(passed=41)
    result.stdout.fnmatch_lines(
        [
            "*= llmserve =*",
            "2 files, 3 servers, 41 invariants: 41 passed",
            "deploy/chat.yaml:11 chat: ok",
            "    * GiB usable = 14.99 weights + * runtime + * KV cache; * tokens, *x of 8,192",
        ]
    )


def test_what_does_not_fit_fails_at_its_line(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=TOO_LONG)
    result = pytester.runpytest("--llmserve", "chat.yaml", "--junitxml=junit.xml")
    result.assert_outcomes(passed=13, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ chat kv-cache-fits _*",
            "LLM102 short of * GiB per GPU: one 131,072-token request needs 16.00 GiB of KV, *",
            "  chat.yaml:12   chat",
            "  vllm 0.19.1, meta-llama/Llama-3.1-8B-Instruct bf16, 1 x l4, TP=1",
            "  any one of these passes:",
            "    --max-model-len *line 12, now 131072*",
        ]
    )
    assert "Traceback" not in result.stdout.str()


def test_the_line_is_that_of_the_flag(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=TOO_LONG)
    pytester.makeconftest(
        """
        def pytest_runtest_logreport(report):
            if report.failed:
                print("AT", *report.location[:2])
        """
    )
    result = pytester.runpytest("--llmserve", "chat.yaml", "-s")
    result.stdout.fnmatch_lines(["*AT chat.yaml 11"])  # 0-based


def test_in_a_folder_only_files_that_mention_a_server(pytester: pytest.Pytester) -> None:
    write(
        pytester,
        deploy__chat_yaml=FITS,
        deploy__other_yaml="kind: ConfigMap\n",
        deploy__notes_txt="vllm serve x\n",
        deploy__serve_sh="vllm serve meta-llama/Llama-3.1-8B-Instruct\n",
    )
    result = pytester.runpytest("--llmserve", "deploy", "--collect-only", "-q")
    files = {line.split("::")[0] for line in ids(result)}
    assert files == {"deploy/chat.yaml", "deploy/serve.sh"}


def test_a_named_file_without_a_server_fails(pytester: pytest.Pytester) -> None:
    write(pytester, service_yaml=SERVICE)
    result = pytester.runpytest("--llmserve", "service.yaml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["LLM001 *Service*", "  service.yaml:1"])


def test_a_policy_declares_files(pytester: pytest.Pytester) -> None:
    write(
        pytester,
        deploy__chat_yaml=FITS,
        deploy__draft_yaml=TOO_LONG,
        llmserve_toml='files = ["deploy/chat.yaml"]\n',
        tests__test_a_py="def test_a():\n    pass\n",
    )
    result = pytester.runpytest("--llmserve")
    result.assert_outcomes(passed=15)
    result.stdout.fnmatch_lines(["1 file, 1 server, 14 invariants: 14 passed"])


def test_declared_files_lie_outside_testpaths(pytester: pytest.Pytester) -> None:
    write(
        pytester,
        deploy__chat_yaml=FITS,
        pyproject_toml=(
            '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'
            '[tool.llmserve]\nfiles = ["deploy/*.yaml"]\n'
        ),
        tests__test_a_py="def test_a():\n    pass\n",
    )
    pytester.runpytest("--llmserve").assert_outcomes(passed=15)
    pytester.runpytest("--llmserve", "tests").assert_outcomes(passed=1)


def test_without_the_flag_nothing_is_collected(pytester: pytest.Pytester) -> None:
    write(
        pytester,
        chat_yaml=TOO_LONG,
        llmserve_toml='files = ["chat.yaml"]\n',
        test_a_py="def test_a():\n    pass\n",
    )
    result = pytester.runpytest()
    result.assert_outcomes(passed=1)
    assert "llmserve" not in "\n".join(result.outlines[5:])


def test_never_green_on_nothing(pytester: pytest.Pytester) -> None:
    write(pytester, test_a_py="def test_a():\n    pass\n")
    result = pytester.runpytest("--llmserve", "test_a.py")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["nothing was checked: *"])
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_items_are_items(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=TOO_LONG)
    node = "chat.yaml::chat::kv-cache-fits"
    pytester.runpytest("--llmserve", node).assert_outcomes(failed=1)
    pytester.runpytest("--llmserve", "chat.yaml", "-k", "weights-fit").assert_outcomes(
        passed=1, deselected=13
    )
    pytester.runpytest("--llmserve", "chat.yaml", f"--deselect={node}").assert_outcomes(
        passed=13, deselected=1
    )
    pytester.runpytest("--llmserve", "chat.yaml", "-x").assert_outcomes(failed=1, passed=5)
    pytester.runpytest("--llmserve", "chat.yaml").assert_outcomes(failed=1, passed=13)
    pytester.runpytest("--llmserve", "chat.yaml", "--lf").assert_outcomes(failed=1)


def test_a_server_of_another_runtime_is_not_a_pass(pytester: pytest.Pytester) -> None:
    write(pytester, serve_sh="python -m sglang.launch_server --model-path a/b --tp 2\n")
    result = pytester.runpytest("--llmserve", "serve.sh")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["LLM001 cannot tell: * is run by sglang; only vllm is planned so far*"]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--strict-markers",),
        ("-W", "error"),
        ("-n", "2"),
        ("-o", "xfail_strict=true"),
        pytest.param(
            ("-o", "strict=true"),
            marks=pytest.mark.skipif(pytest.version_tuple < (9,), reason="comes with pytest 9"),
        ),
    ],
    ids=" ".join,
)
def test_it_lives_with_strict_settings(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    write(pytester, chat_yaml=FITS)
    result = pytester.runpytest_subprocess("--llmserve", "chat.yaml", *arguments)
    result.assert_outcomes(passed=14)
    result.stdout.fnmatch_lines(["1 file, 1 server, 14 invariants: 14 passed"])


def test_switched_off(pytester: pytest.Pytester) -> None:
    write(pytester, test_a_py="def test_a():\n    pass\n")
    pytester.runpytest_subprocess("-p", "no:llmserve").assert_outcomes(passed=1)


def test_files_of_a_folder_that_start_no_server_are_left_out(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("deploy")
    (folder / "chat.yaml").write_text(FITS)
    (folder / "Dockerfile.client").write_text("FROM python\nRUN pip install vllm\n")
    (folder / "install.sh").write_text("pip install vllm\n")
    ran = pytester.runpytest("--llmserve", "deploy", "-v")
    ran.stdout.no_fnmatch_line("*Dockerfile.client*")
    ran.stdout.no_fnmatch_line("*install.sh*")
    named = pytester.runpytest("--llmserve", "deploy/install.sh")
    named.stdout.fnmatch_lines(["*LLM001*no server here*"])


@pytest.mark.parametrize("arguments", [("-k", "nosuch"), ()], ids=["deselected", "interrupted"])
def test_a_summary_does_not_say_that_files_hold_nothing(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    write(pytester, chat_yaml=FITS)
    if not arguments:
        write(pytester, test_broken_py="def test_a(:\n")
    result = pytester.runpytest_subprocess("--llmserve", "chat.yaml", ".", *arguments)
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["nothing was checked: 14 invariants collected, none was run"])
