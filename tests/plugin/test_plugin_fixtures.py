"""Fixtures and the marker, as a user's test file sees them."""

import pytest
from plugin_files import FITS, TOO_LONG, write


def test_fixtures_are_bound_to_the_policy(pytester: pytest.Pytester) -> None:
    write(pytester, llmserve_toml='gpu = "l4"\nvllm_version = "0.19.1"\nvram_budget = "10GiB"\n')
    pytester.makepyfile(
        """
        import pytest

        def test_policy(llmserve_policy):
            assert llmserve_policy.facts.gpu == "l4"

        def test_bound(llmserve):
            server = llmserve.server("meta-llama/Llama-3.1-8B-Instruct", max_model_len=8192)
            (subject,) = server.subjects
            assert subject.deployment.gpu.id == "l4"
            assert str(subject.deployment.version.value) == "0.19.1"
            llmserve.assert_starts(server)
            with pytest.raises(AssertionError, match="LLM104 short of"):
                llmserve.assert_vram_within_budget(server)

        @pytest.mark.llmserve(model="meta-llama/Llama-3.1-8B-Instruct", max_model_len=131072)
        def test_marker(kv_cache_fits, llmserve):
            assert not kv_cache_fits()
            assert kv_cache_fits(max_model_len=8192)
            assert kv_cache_fits(gpu="h200-sxm-141gb")
        """
    )
    pytester.runpytest("--strict-markers").assert_outcomes(passed=3)


def test_the_gpu_fixture_is_an_override_point(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def llmserve_gpu():
            return "t4"
        """
    )
    pytester.makepyfile(
        """
        def test_gpu(llmserve):
            server = llmserve.server("meta-llama/Llama-3.1-8B-Instruct")
            assert server.subjects[0].deployment.gpu.id == "t4"
        """
    )
    pytester.runpytest().assert_outcomes(passed=1)


def test_servers_of_a_file(pytester: pytest.Pytester) -> None:
    write(pytester, good_yaml=FITS, long_yaml=TOO_LONG)
    pytester.makepyfile(
        """
        import pytest

        def test_read(llmserve):
            (good,) = llmserve.read("good.yaml")
            llmserve.assert_starts(good)
            (long,) = llmserve.read("long.yaml")
            llmserve.assert_weights_fit(long)
            llmserve.assert_starts(long)
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *InvariantError: LLM102 short of *", "E  *chat.yaml*"][:1])
    # our own frames are hidden: the last line shown is the user's
    result.stdout.fnmatch_lines(["test_servers_of_a_file.py:8: *"])
    assert "assertions.py" not in result.stdout.str()


def test_a_wrong_policy_is_an_error_of_the_fixture(pytester: pytest.Pytester) -> None:
    write(pytester, llmserve_toml="gpux = 1\n")
    pytester.makepyfile("def test_a(llmserve):\n    pass\n")
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*unknown key 'gpux'*"])


def test_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--fixtures")
    result.stdout.fnmatch_lines_random(
        [
            f"{name}* -- *"
            for name in ("llmserve_policy", "llmserve_gpu", "llmserve", "kv_cache_fits")
        ]
    )
    pytester.runpytest("--markers").stdout.fnmatch_lines(["@pytest.mark.llmserve(model=None, *"])
