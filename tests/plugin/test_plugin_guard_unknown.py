"""What guarding cannot use or does not know is told in words, and is never a pass."""

import pytest
from plugin_files import FITS, LENGTH_LINE, pod, write

SGLANG = """\
apiVersion: v1
kind: Pod
metadata:
  name: chat
spec:
  containers:
    - name: sglang
      image: lmsysorg/sglang:v0.5.6
      command: [python3, -m, sglang.launch_server]
      args: [--model-path=meta-llama/Llama-3.1-8B-Instruct]
      resources: {limits: {nvidia.com/gpu: 1}}
"""
SAME = 'files = ["*.yaml"]\n[[same]]\nfiles = ["staging.yaml", "prod.yaml"]\n'


@pytest.mark.parametrize("name", ["LLM001", "LLM401", "gpus-within-quota"])
def test_an_ignore_of_no_server_invariant_is_refused(pytester: pytest.Pytester, name: str) -> None:
    rule = f'files = ["*.yaml"]\n[[ignore]]\ninvariant = "{name}"\nreason = "known"\n'
    write(pytester, chat_yaml=FITS, llmserve_toml=rule)
    result = pytester.runpytest_subprocess("--llmserve")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "expected one of the server invariants: resolved, " in result.stderr.str()


def test_a_broken_baseline_fails_the_policy_in_its_words(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=FITS, llmserve_toml='files = ["*.yaml"]\n')
    (pytester.path / "llmserve-baseline.toml").write_text("finding = 1\n")
    result = pytester.runpytest("--llmserve", "-k", "baseline-current", "llmserve.toml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["LLM402 llmserve-baseline.toml: expected *finding* tables and nothing else"]
    )
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_check_that_raises_fails_alone(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=FITS)
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            def decide():
                raise RuntimeError("a fault of ours")

            items[0].decide = decide
        """
    )
    result = pytester.runpytest("--llmserve", "chat.yaml")
    result.assert_outcomes(passed=13, failed=1)
    result.stdout.fnmatch_lines(["*RuntimeError: a fault of ours"])


def test_environments_that_are_not_planned_are_not_alike(pytester: pytest.Pytester) -> None:
    write(pytester, staging_yaml=SGLANG, prod_yaml=SGLANG, llmserve_toml=SAME)
    result = pytester.runpytest("--llmserve", "-k", "environments-agree")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["LLM504 cannot tell: chat is run by sglang; *"])


def test_the_quota_does_not_pass_over_a_file_that_is_not_read(pytester: pytest.Pytester) -> None:
    broken = f"<<<<<<< ours\n{pod(1024)}=======\n{pod(2048)}>>>>>>> theirs\n"
    policy = 'files = ["*.yaml"]\n[quota]\ngpus = {l4 = 1}\n'
    service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: vllm\n"
    write(pytester, a_yaml=FITS, b_yaml=service, llmserve_toml=policy)
    only = ("--llmserve", "-k", "gpus-within-quota")
    assert pytester.runpytest(*only).parseoutcomes()["passed"] == 1
    write(pytester, b_yaml=broken)
    result = pytester.runpytest(*only)
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(
        ["LLM502 cannot tell: a declared file is not read whole: *unresolved merge conflict*"]
    )


def test_a_cache_of_a_server_that_is_not_planned_does_not_pay(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=SGLANG)
    pytester.makepyfile(
        """
        def test_pays(llmserve):
            server, = llmserve.read("chat.yaml")
            llmserve.assert_kv_cache_pays_off(server, tokens=4096)
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*TypeError: chat is run by sglang; *"])


def test_an_ignore_in_a_file_without_servers_is_not_needed(pytester: pytest.Pytester) -> None:
    text = FITS.replace("vllm/vllm-openai:v0.19.1", "busybox")
    text = text.replace("=8192", "=8192  # llmserve: ignore[LLM102] until the H200s")
    write(pytester, chat_yaml=f"<<<<<<< ours\n{text}")
    result = pytester.runpytest("--llmserve", "chat.yaml", "-k", "ignores-needed")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([f"LLM401 line {LENGTH_LINE + 1}: * nothing fails LLM102 there"])
