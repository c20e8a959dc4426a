"""Ignores, the baseline and the fleet, as their user sees them."""

import re

import pytest
from plugin_files import FITS, LENGTH_LINE, TOO_LONG, pod, write

IGNORED = TOO_LONG.replace(
    "--max-model-len=131072", "--max-model-len=131072  # llmserve: ignore[LLM102] until the H200s"
)


def test_an_ignore_comment_skips_with_its_reason(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=IGNORED)
    result = pytester.runpytest("--llmserve", "chat.yaml", "-rs")
    result.assert_outcomes(passed=14, skipped=1)
    result.stdout.fnmatch_lines(
        [f"SKIPPED * ignored: until the H200s (line {LENGTH_LINE}): LLM102 short of *"]
    )


def test_an_ignore_that_accepts_nothing_fails(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=IGNORED.replace("=131072", "=8192"))
    result = pytester.runpytest("--llmserve", "chat.yaml")
    result.assert_outcomes(passed=14, failed=1)
    result.stdout.fnmatch_lines(
        [
            f"LLM401 line {LENGTH_LINE}: this ignore comment is not honoured: "
            "nothing fails LLM102 there"
        ]
    )


def test_an_ignore_without_reason_is_not_honoured(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=IGNORED.replace(" until the H200s", ""))
    result = pytester.runpytest("--llmserve", "chat.yaml")
    result.assert_outcomes(passed=13, failed=2)
    result.stdout.fnmatch_lines(["LLM401 * it gives no reason"])


def test_owners_may_forbid_comments(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=IGNORED, llmserve_toml="allow_ignores = false\n")
    result = pytester.runpytest("--llmserve", "chat.yaml")
    result.assert_outcomes(passed=13, failed=2)
    result.stdout.fnmatch_lines(["LLM401 * llmserve.toml forbids them (allow_ignores = false)"])


POLICY = 'files = ["*.yaml"]\n[[ignore]]\ninvariant = "LLM102"\nname = "chat"\nreason = "known"\n'


def test_the_policy_may_ignore_until_a_date(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=TOO_LONG, llmserve_toml=f"{POLICY}until = 2999-01-01\n")
    result = pytester.runpytest("--llmserve", "-rs")
    result.assert_outcomes(passed=14, skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED * ignored: known (llmserve.toml, until 2999-01-01): LLM102 short of *"]
    )
    write(pytester, llmserve_toml=f"{POLICY}until = 2020-01-01\n")
    result = pytester.runpytest("--llmserve")
    result.assert_outcomes(passed=14, failed=1)
    result.stdout.fnmatch_lines(["  was ignored until 2020-01-01: known (llmserve.toml)"])


def test_a_rule_that_accepts_nothing_fails(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=FITS, llmserve_toml=POLICY)
    result = pytester.runpytest("--llmserve")
    result.assert_outcomes(passed=14, failed=1)
    result.stdout.fnmatch_lines(
        ["LLM401 ignore kv-cache-fits of [*], chat accepts nothing: no such finding is left"]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[ignore]]\ninvariant = "LLM102"\n', "ignore.0: 'reason' is missing"),
        ('[[ignore]]\ninvariant = "LLM102"\nreason = ""\n', "ignore.0.reason = ''"),
        ('[[ignore]]\ninvariant = "x"\nreason = "y"\n', "no invariant is called so"),
        ('[[ignore]]\nreasons = "y"\n', "did you mean 'reason'"),
        ('[change]\nmax_vram_increase = "2 gigs"\n', "unknown unit"),
        ("[change]\nmax_concurrency_drop = -1\n", "expected a number of requests"),
        ('[[share]]\nservers = ["a"]\n', "at least 2 items"),
        ('[quota]\ngpus = {l4 = "2"}\nsurges = 1\n', "did you mean 'surge'"),
    ],
)
def test_wrong_rules_are_usage_errors(pytester: pytest.Pytester, text: str, message: str) -> None:
    write(pytester, chat_yaml=FITS, llmserve_toml=text)
    result = pytester.runpytest_subprocess("--llmserve", "chat.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()
    assert "llmserve.toml:" in result.stderr.str()


@pytest.fixture(autouse=True)
def _not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


BASELINE = "llmserve-baseline.toml"


def test_a_baseline_is_written_held_and_cleans_itself(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=TOO_LONG, b_yaml=pod(131072, name="other"), c_yaml=FITS)
    write(pytester, llmserve_toml='files = ["*.yaml"]\n')
    update = pytester.runpytest("--llmserve", "--llmserve-update-baseline")
    update.assert_outcomes(passed=40, xfailed=2)
    update.stdout.fnmatch_lines([f"{BASELINE}: 2 accepted findings"])
    text = (pytester.path / BASELINE).read_text()
    assert re.findall(r'^(?:file|server|invariant) = "(.*)"', text, re.MULTILINE) == [
        "a.yaml", "chat", "kv-cache-fits", "b.yaml", "other", "kv-cache-fits",
    ]  # fmt: skip
    assert 'figure = "short of ' in text

    held = pytester.runpytest("--llmserve", "-rx")
    held.assert_outcomes(passed=41, xfailed=2)
    held.stdout.fnmatch_lines([f"XFAIL * in {BASELINE}: accepted when the baseline was written"])

    # fixed: it fails until it goes from the baseline
    write(pytester, a_yaml=FITS)
    fixed = pytester.runpytest("--llmserve")
    fixed.assert_outcomes(passed=41, failed=1, xfailed=1)
    fixed.stdout.fnmatch_lines(["*XPASS(strict)*"])

    # a partial run drops only what it looked at
    partial = pytester.runpytest("--llmserve", "--llmserve-update-baseline", "a.yaml")
    partial.stdout.fnmatch_lines([f"{BASELINE}: 1 accepted findings"])
    pytester.runpytest("--llmserve").assert_outcomes(passed=42, xfailed=1)

    # stale: the server is gone
    (pytester.path / "b.yaml").unlink()
    stale = pytester.runpytest("--llmserve")
    stale.assert_outcomes(passed=28, failed=1)
    stale.stdout.fnmatch_lines(["LLM402 b.yaml other kv-cache-fits: stale, the file is gone"])


def test_a_baseline_holds_under_xdist(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=TOO_LONG, llmserve_toml='files = ["*.yaml"]\n')
    pytester.runpytest_subprocess("--llmserve", "--llmserve-update-baseline", "-n", "2")
    assert "kv-cache-fits" in (pytester.path / BASELINE).read_text()
    result = pytester.runpytest_subprocess("--llmserve", "-n", "2")
    result.assert_outcomes(passed=14, xfailed=1)


def test_a_baseline_is_never_written_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(pytester, a_yaml=TOO_LONG)
    monkeypatch.setenv("CI", "true")
    result = pytester.runpytest_subprocess("--llmserve", "--llmserve-update-baseline", "a.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "not in CI" in result.stderr.str()
    assert not (pytester.path / BASELINE).exists()


def test_a_broken_baseline_is_told(pytester: pytest.Pytester) -> None:
    write(pytester, a_yaml=TOO_LONG, llmserve_baseline_toml="x")
    (pytester.path / BASELINE).write_text("finding = 1\n")
    result = pytester.runpytest("--llmserve", "a.yaml")
    result.stdout.fnmatch_lines([f"*{BASELINE}: expected *finding* tables and nothing else*"])
    assert result.ret != 0
    assert "Traceback" not in result.stdout.str()


def fleet(pytester: pytest.Pytester, rules: str, **files: str) -> pytest.RunResult:
    write(pytester, llmserve_toml='files = ["*.yaml"]\n' + rules, **files)
    return pytester.runpytest("--llmserve", "-k", "llmserve.toml")


def share_of(name: str, share: str) -> str:
    text = pod(1024, name=name)
    return text.replace(
        "        - --max-num-seqs=64", f"        - --gpu-memory-utilization={share}"
    )


def test_two_servers_on_one_gpu(pytester: pytest.Pytester) -> None:
    rules = '[[share]]\nservers = ["a", "b"]\n'
    a, b = share_of("a", "0.75"), share_of("b", "0.4")
    result = fleet(pytester, rules, a_yaml=a, b_yaml=b)
    result.assert_outcomes(failed=1, deselected=28)
    result.stdout.fnmatch_lines(
        ["LLM501 short of * per GPU: 2 servers on one GPU take *, it has *"]
    )
    fleet(pytester, rules, a_yaml=a, b_yaml=share_of("b", "0.1")).assert_outcomes(
        passed=1, deselected=28
    )
    missing = fleet(pytester, '[[share]]\nservers = ["a", "z"]\n')
    missing.stdout.fnmatch_lines(["LLM501 cannot tell: no server is called 'z' in the declared*"])


def test_the_quota_counts_replicas_and_surge(pytester: pytest.Pytester) -> None:
    deployment = pod(1024).replace(
        "apiVersion: v1\nkind: Pod", "apiVersion: apps/v1\nkind: Deployment"
    )
    head, _, spec = deployment.partition("spec:\n")
    body = "".join(f"    {line}\n" for line in f"spec:\n{spec}".splitlines())
    text = f"{head}spec:\n  replicas: 3\n  template:\n{body}"
    result = fleet(pytester, "[quota]\ngpus = {l4 = 3}\n", a_yaml=text)
    result.assert_outcomes(passed=1, deselected=14)
    result = fleet(pytester, "[quota]\ngpus = {l4 = 3}\nsurge = 1\n", a_yaml=text)
    result.stdout.fnmatch_lines(["LLM502 1 x l4 over the quota: 4 are taken, 3 are allowed"])


def test_a_pair_has_to_agree(pytester: pytest.Pytester) -> None:
    rules = '[[pair]]\nprefill = "p"\ndecode = "d"\n'
    one, other = pod(1024, name="p"), pod(1024, name="d")
    fleet(pytester, rules, a_yaml=one, b_yaml=other).assert_outcomes(passed=1, deselected=28)
    other = other.replace("--max-num-seqs=64", "--kv-cache-dtype=fp8")
    result = fleet(pytester, rules, a_yaml=one, b_yaml=other)
    result.stdout.fnmatch_lines(
        ["LLM503 2 disagreements between p and d: kv_cache_dtype auto against fp8"]
    )


def test_environments_are_alike_but_for_replicas(pytester: pytest.Pytester) -> None:
    rules = '[[same]]\nfiles = ["staging.yaml", "prod.yaml"]\n'
    fleet(pytester, rules, staging_yaml=FITS, prod_yaml=FITS).assert_outcomes(
        passed=1, deselected=28
    )
    result = fleet(pytester, rules, staging_yaml=pod(4096), prod_yaml=FITS)
    result.stdout.fnmatch_lines(
        ["LLM504 1 differences between environments: chat: max_model_len 4,096 against 8,192*"]
    )
