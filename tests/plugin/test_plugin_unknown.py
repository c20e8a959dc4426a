"""Cannot tell is never a pass: it fails once, in its own words, unless the policy allows it."""

import pytest
from plugin_files import pod, write

ALL_OF_IT = ["gpu-known", "weights-fit", "kv-cache-fits", "LLM204", "LLM205"]
NO_GPU = pod(node="restartPolicy: Never")


def test_an_unknown_gpu_fails_once(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=NO_GPU)
    result = pytester.runpytest("--llmserve", "chat.yaml", "-rs")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["skipped"] == 4
    result.stdout.fnmatch_lines(
        [
            "*_ chat gpu-known _*",
            "LLM004 cannot tell: chat: no field says which GPU this server runs on*",
            '  declare it in the policy, e.g. *gpu = "h100-sxm-80gb"*',
        ]
    )
    result.stdout.fnmatch_lines(
        ["SKIPPED * chat.yaml:11: cannot tell: the GPU is unknown (see gpu-known)"]
    )


def test_what_depends_on_it_fails_when_it_runs_alone(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=NO_GPU)
    result = pytester.runpytest("--llmserve", "chat.yaml", "-k", "kv-cache-fits")
    result.assert_outcomes(failed=1, deselected=13)
    result.stdout.fnmatch_lines(["LLM102 cannot tell: the GPU is unknown (see gpu-known)"])


def test_what_depends_on_an_allowed_unknown_still_fails(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=NO_GPU, llmserve_toml='allow_cannot_tell = ["gpu-known"]\n')
    outcomes = pytester.runpytest("--llmserve", "chat.yaml").parseoutcomes()
    assert (outcomes["failed"], outcomes["skipped"]) == (4, 1)


def test_the_policy_may_allow_all_of_it(pytester: pytest.Pytester) -> None:
    write(
        pytester,
        chat_yaml=NO_GPU,
        llmserve_toml=f"allow_cannot_tell = {ALL_OF_IT}\n",
    )
    result = pytester.runpytest("--llmserve", "chat.yaml", "-rs")
    outcomes = result.parseoutcomes()
    assert "failed" not in outcomes
    assert outcomes["skipped"] == 5
    result.stdout.fnmatch_lines(["SKIPPED * allowed by the policy: LLM102 cannot tell: *"])


def test_the_policy_tells_the_gpu(pytester: pytest.Pytester) -> None:
    write(
        pytester,
        chat_yaml=NO_GPU,
        llmserve_toml='gpu = "t4"\n[[server]]\nfile = "*.yaml"\nname = "ch*"\ngpu = "l4"\n',
    )
    result = pytester.runpytest("--llmserve", "chat.yaml")
    result.assert_outcomes(passed=14)


def test_an_ambiguous_gpu_is_refused_with_what_it_may_be(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=NO_GPU, llmserve_toml='gpu = "a100"\n')
    result = pytester.runpytest("--llmserve", "chat.yaml")
    result.stdout.fnmatch_lines(
        ["LLM004 cannot tell: llmserve.toml: gpu = 'a100': *a100-sxm-40gb*"]
    )


def test_an_unknown_model_and_an_unresolved_variable(pytester: pytest.Pytester) -> None:
    write(
        pytester,
        chat_yaml=pod().replace("meta-llama/Llama-3.1-8B-Instruct", "acme/secret-7b"),
        serve_sh='vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len "$LENGTH"\n',
        llmserve_toml='gpu = "l4"\n',
    )
    result = pytester.runpytest("--llmserve", "chat.yaml", "serve.sh")
    result.stdout.fnmatch_lines(
        [
            "LLM003 cannot tell: no config.json found for model 'acme/secret-7b'; looked at:",
            "  chat.yaml:11   chat",
            "LLM002 cannot tell: *LENGTH*",
            "  serve.sh:1 *",
        ]
    )


def test_close_to_the_limit_warns(pytester: pytest.Pytester) -> None:
    """The KV cache of an 8B model on an L4 is about 4.3 GiB: 34,000 tokens lie in its error bar."""
    write(pytester, chat_yaml=pod(34000))
    result = pytester.runpytest_subprocess("--llmserve", "chat.yaml")
    result.assert_outcomes(passed=14, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*LlmServeWarning: LLM102 may be short of * GiB per GPU: *",
            "1 file, 1 server, 14 invariants: 13 passed, 1 close",
        ]
    )
    pytester.makefile(".toml", llmserve='fail_on = ["certain", "likely", "close"]\n')
    pytester.runpytest("--llmserve", "chat.yaml").assert_outcomes(passed=13, failed=1)
