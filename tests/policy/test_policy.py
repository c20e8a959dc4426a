from pathlib import Path

import pytest
from packaging.version import Version

from pytest_llmserve.policy import Budget, Facts, Policy, ServerRule, Slo, Workload
from pytest_llmserve.policy_file import PolicyError, parse_policy, read_policy
from pytest_llmserve.units import GIB
from pytest_llmserve.verdict import Certainty, Outcome, Verdict

FULL = """
files = ["deploy/**/*.yaml", "compose.yaml"]
models = "models"
gpus = "gpus"
gpu = "h100-sxm-80gb"
gpu_count = 2
vllm_version = "v0.19.1"
vram_budget = "90%"
fail_on = ["certain"]
allow_cannot_tell = ["gpu-known", "LLM003"]
extend_select = ["decode_memory_bound"]

[model_paths]
"/models/llama" = "meta-llama/Llama-3.1-8B-Instruct"

[workload]
concurrency = 32
prompt_tokens = 4000
output_tokens = 500

[slo]
ttft = "500ms"
tpot = "0.05s"

[[server]]
file = "deploy/small/*"
gpu = "l4"
gpu_count = 1

[[server]]
name = "batch-*"
vram_budget = "20GiB"
"""


def written(folder: Path, text: str, name: str = "llmserve.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_a_full_policy(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, FULL), root=tmp_path)
    assert policy is not None
    assert policy == Policy(
        base_dir=tmp_path,
        origin="llmserve.toml",
        files=("deploy/**/*.yaml", "compose.yaml"),
        models=("models",),
        gpus="gpus",
        model_paths={"/models/llama": "meta-llama/Llama-3.1-8B-Instruct"},
        fail_on=frozenset((Certainty.CERTAIN,)),
        allow_cannot_tell=frozenset(("gpu-known", "model-known")),
        extend_select=frozenset(("decode-memory-bound",)),
        facts=Facts(
            gpu="h100-sxm-80gb",
            gpu_count=2,
            vllm_version=Version("0.19.1"),
            vram_budget=Budget("90%", share=0.9),
            workload=Workload(concurrency=32, prompt_tokens=4000, output_tokens=500),
            slo=Slo(ttft_s=0.5, tpot_s=0.05),
        ),
        servers=(
            ServerRule(facts=Facts(gpu="l4", gpu_count=1), file="deploy/small/*"),
            ServerRule(
                facts=Facts(vram_budget=Budget("20GiB", size_bytes=20 * GIB)), name="batch-*"
            ),
        ),
    )


def test_rules_go_over_what_holds_for_all(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, FULL))
    assert policy is not None
    small = policy.facts_for(tmp_path / "deploy" / "small" / "a.yaml", "chat")
    assert (small.gpu, small.gpu_count) == ("l4", 1)
    batch = policy.facts_for(tmp_path / "deploy" / "a.yaml", "batch-nightly")
    assert batch.gpu == "h100-sxm-80gb"
    assert batch.vram_budget is not None
    assert batch.vram_budget.text == "20GiB"


def test_pyproject_and_its_absence(tmp_path: Path) -> None:
    folder = written(tmp_path, '[tool.llmserve]\ngpu = "l4"\n', "pyproject.toml")
    policy = read_policy(folder, root=tmp_path)
    assert policy is not None
    assert policy.facts.gpu == "l4"
    assert policy.origin == "pyproject.toml"
    assert read_policy(written(tmp_path / "b", "[tool.ruff]\n", "pyproject.toml")) is None
    assert read_policy(tmp_path / "nowhere") is None


def test_two_policies_in_one_folder_are_refused(tmp_path: Path) -> None:
    written(tmp_path, 'gpu = "l4"\n')
    written(tmp_path, '[tool.llmserve]\ngpu = "t4"\n', "pyproject.toml")
    with pytest.raises(PolicyError, match="two policies in one folder; keep one"):
        read_policy(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'gpux = "l4"',
            "llmserve.toml:1: unknown key 'gpux'; did you mean 'gpu'? valid keys: allow",
        ),
        ('\n[slo]\nttfb = "1s"', "llmserve.toml:3: unknown key 'slo.ttfb'; did you mean 'ttft'?"),
        ('[slo]\ntpot = "50"', "llmserve.toml:2: slo.tpot = '50': '50': unknown unit ''"),
        ("[slo]\ntpot = 50", "llmserve.toml:2: slo.tpot = 50: expected a duration with its unit"),
        ('vram_budget = "120%"', "llmserve.toml:1: vram_budget = '120%': '120%': a share of the"),
        ("vram_budget = 76", "llmserve.toml:1: vram_budget = 76: expected a size such as '76GiB'"),
        ('vram_budget = "76 gigs"', "llmserve.toml:1: vram_budget = '76 gigs': '76 gigs': unknown"),
        ('gpu_count = "2"', "llmserve.toml:1: gpu_count = '2': expected a whole number"),
        ("gpu_count = 0", "llmserve.toml:1: gpu_count = 0: expected a number greater than 0"),
        ("gpus = 3", "llmserve.toml:1: gpus = 3: expected text in quotes"),
        ('files = "x"', "llmserve.toml:1: files = 'x': expected a list"),
        ('allow_ignores = "x"', "llmserve.toml:1: allow_ignores = 'x': expected true or false"),
        ('[[ignore]]\nreason = "r"', "llmserve.toml:1: ignore.0: 'invariant' is missing"),
        ("models = 3", "llmserve.toml:1: models = 3: expected text in quotes"),
        ("slo = 3", "llmserve.toml:1: slo = 3: expected a table"),
        ('vllm_version = "next"', "llmserve.toml:1: vllm_version = 'next': expected a version"),
        ("vllm_version = 0.19", "llmserve.toml:1: vllm_version = 0.19: expected a version in quo"),
        ('fail_on = ["sure"]', "llmserve.toml:1: fail_on.0 = 'sure': expected 'certain',"),
        (
            'extend_select = ["kv-cache-fit"]',
            "llmserve.toml:1: extend_select.0 = 'kv-cache-fit': did you mean 'kv-cache-fits'? val",
        ),
        (
            "[workload]\nprompt_tokens = 5",
            "llmserve.toml:1: workload = {'prompt_tokens': 5}: output_tokens missing",
        ),
        ("gpu = \n", "llmserve.toml: cannot be read: Invalid value (at line 1, column 7)"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        read_policy(written(tmp_path, text), root=tmp_path)
    assert str(error.value).replace(f"{tmp_path}/", "").startswith(message)


def test_all_wrong_keys_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as error:
        read_policy(written(tmp_path, 'gpux = "l4"\nmodelz = "m"\n'), root=tmp_path)
    assert len(str(error.value).splitlines()) == 2


def test_files_are_declared_by_glob(tmp_path: Path) -> None:
    policy = parse_policy(
        {"files": ["deploy/**/*.yaml", "./compose.yaml"]}, origin="", base_dir=tmp_path
    )
    for name in ("deploy/a.yaml", "deploy/b/c/d.yaml", "compose.yaml", "deploy/a.yml", "x.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    declared = [p.relative_to(tmp_path).as_posix() for p in policy.declared_files()]
    assert declared == ["compose.yaml", "deploy/a.yaml", "deploy/b/c/d.yaml"]
    for path in tmp_path.rglob("*.y*ml"):
        assert policy.declares(path) == (path.relative_to(tmp_path).as_posix() in declared)
    assert not policy.declares(Path("/elsewhere/compose.yaml"))
    missing = parse_policy({"files": ["nope/*.yaml"]}, origin="", base_dir=tmp_path)
    assert missing.empty_patterns() == ["nope/*.yaml"]


def verdict(outcome: Outcome, certainty: Certainty | None = None) -> Verdict:
    return Verdict(
        id="LLM102", name="kv-cache-fits", outcome=outcome, headline="", certainty=certainty
    )


def test_what_fails_a_test() -> None:
    policy = Policy()
    assert not policy.is_failure(verdict(Outcome.PASSED))
    assert policy.is_failure(verdict(Outcome.CANNOT_TELL))
    assert policy.is_failure(verdict(Outcome.FAILED, Certainty.CERTAIN))
    assert policy.is_failure(verdict(Outcome.FAILED, Certainty.LIKELY))
    assert not policy.is_failure(verdict(Outcome.FAILED, Certainty.CLOSE))
    lenient = Policy(
        fail_on=frozenset((Certainty.CLOSE,)), allow_cannot_tell=frozenset(("kv-cache-fits",))
    )
    assert not lenient.is_failure(verdict(Outcome.CANNOT_TELL))
    assert lenient.is_failure(verdict(Outcome.FAILED, Certainty.CLOSE))
    assert not lenient.is_failure(verdict(Outcome.FAILED, Certainty.LIKELY))


def test_a_budget_in_bytes_and_as_a_share() -> None:
    assert Budget("20GiB", size_bytes=20 * GIB).bytes_of(80 * GIB) == 20 * GIB
    assert Budget("50%", share=0.5).bytes_of(80 * GIB) == 40 * GIB
