"""What is wrong with options or policy is a usage error: exit 4, named, without a traceback."""

import pytest
from plugin_files import FITS, write


def usage_error(pytester: pytest.Pytester, *arguments: str) -> str:
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    assert "Traceback" not in result.stderr.str()
    return result.stderr.str()


@pytest.mark.parametrize("text", ["xml=a.xml", "json", "json="])
def test_a_report_of_unknown_kind(pytester: pytest.Pytester, text: str) -> None:
    write(pytester, chat_yaml=FITS)
    error = usage_error(pytester, "--llmserve", f"--llmserve-report={text}", "chat.yaml")
    assert f"--llmserve-report {text}: expected one of: json=PATH" in error


def test_a_report_of_nothing(pytester: pytest.Pytester) -> None:
    assert "needs --llmserve" in usage_error(pytester, "--llmserve-report=json=a.json")


def test_a_wrong_policy(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=FITS, llmserve_toml='\ngpux = "l4"\n')
    error = usage_error(pytester, "--llmserve", "chat.yaml")
    assert "llmserve.toml:2: unknown key 'gpux'; did you mean 'gpu'?" in error


def test_a_wrong_policy_below_a_named_folder(pytester: pytest.Pytester) -> None:
    write(pytester, deploy__a__chat_yaml=FITS, deploy__a__llmserve_toml='gpux = "l4"\n')
    result = pytester.runpytest_subprocess("--llmserve", "deploy")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*deploy/a/llmserve.toml:1: unknown key 'gpux'*"])
    assert "Traceback" not in result.stdout.str()


def test_a_declared_file_that_is_not_there(pytester: pytest.Pytester) -> None:
    write(pytester, llmserve_toml='files = ["deploy/*.yaml"]\n')
    error = usage_error(pytester, "--llmserve")
    assert "llmserve.toml: files = 'deploy/*.yaml': no such file below" in error
