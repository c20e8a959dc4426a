"""LLM201 to LLM208 and the roots: what the runtime refuses, and what is not known."""

from dataclasses import replace

import pytest
from judging import LLAMA_8B, LLAMA_70B, judge, subject

from pytest_llmserve.invariants import invariant, server_invariants
from pytest_llmserve.invariants.names import NAMES
from pytest_llmserve.policy import Facts
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.subject import Subject
from pytest_llmserve.verdict import Certainty, Outcome


def test_ids_and_names_are_those_of_the_table() -> None:
    found = {i.id: i.name for i in server_invariants()}
    # about a file, about upkeep and about the fleet: no server of its own to ask
    of_files = {id_ for id_ in NAMES if id_ == "LLM001" or id_[3] in "45"}
    assert {**found, **{id_: NAMES[id_] for id_ in of_files}} == NAMES
    assert not of_files & found.keys()
    assert [i.id for i in server_invariants()] == sorted(found)


@pytest.mark.parametrize(
    ("name", "passing", "failing", "says"),
    [
        (
            "parallelism-valid",
            {"tensor_parallel_size": 4},
            {"tensor_parallel_size": 3},
            "must be divisible by tensor parallel size",
        ),
        (
            "gpus-match-parallelism",
            {"tensor_parallel_size": 2, "gpu_count": 2},
            {"tensor_parallel_size": 4, "gpu_count": 2},
            "is larger than the number of available GPUs",
        ),
        (
            "context-within-model",
            {"max_model_len": 131072},
            {"max_model_len": 131073},
            "is greater than the derived max_model_len",
        ),
        (
            "dtype-supported",
            {"dtype": "bfloat16"},
            {"dtype": "bfloat16", "gpu": "t4"},
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0",
        ),
        (
            "quantization-supported",
            {"quantization": "fp8"},
            {"quantization": "awq"},
            "awq",
        ),
        (
            "scheduler-valid",
            {"max_num_batched_tokens": 1024, "max_num_seqs": 1024},
            {"max_num_batched_tokens": 1023, "max_num_seqs": 1024},
            "max_num_batched_tokens",
        ),
        (
            "flags-known-to-version",
            {"swap_space": 4, "version": "0.16.0"},
            {"swap_space": 4, "version": "0.19.1"},
            "unrecognized arguments: --swap-space",
        ),
        (
            "settings-valid",
            {"gpu_memory_utilization": 1.0},
            {"gpu_memory_utilization": 1.1},
            "Input should be less than or equal to 1",
        ),
    ],
)
def test_each_kind_of_refusal(
    name: str, passing: dict[str, object], failing: dict[str, object], says: str
) -> None:
    assert judge(name, **passing)
    verdict = judge(name, **failing)
    assert (verdict.outcome, verdict.certainty) == (Outcome.FAILED, Certainty.CERTAIN)
    assert len(verdict.headline) <= 100
    assert says in verdict.details[0]


def test_idle_gpus_fail() -> None:
    verdict = judge("gpus-match-parallelism", gpu_count=4, tensor_parallel_size=2)
    assert verdict.headline == "2 of 4 GPUs stay idle: TP x PP x DP uses 2"


def test_gpus_that_nobody_counted() -> None:
    about = subject()
    uncounted = Subject(replace(about.inputs, gpu_count=None), Facts())
    verdict = invariant("gpus-match-parallelism").judge(uncounted)
    assert verdict.outcome is Outcome.CANNOT_TELL
    assert "needs 1" in verdict.headline


def test_an_assumed_version_is_no_certainty_about_flags() -> None:
    about = subject(swap_space=4)
    assumed = Subject(replace(about.inputs, is_version_assumed=True), Facts())
    verdict = invariant("flags-known-to-version").judge(assumed)
    assert verdict.certainty is Certainty.LIKELY
    assert "the version is assumed" in verdict.details[-1]


def test_unknown_roots_are_told_once_and_block_the_rest() -> None:
    inputs = subject().inputs
    blind = Subject(replace(inputs, model=None, gpu=None), Facts())
    verdicts = {i.name: i.judge(blind) for i in server_invariants() if i.applies(blind)}
    assert verdicts["model-known"].outcome is Outcome.CANNOT_TELL
    assert verdicts["gpu-known"].outcome is Outcome.CANNOT_TELL
    blocked = {name: v.blocked_by for name, v in verdicts.items() if v.blocked_by}
    assert blocked == dict.fromkeys(
        (
            "weights-fit",
            "kv-cache-fits",
            "parallelism-valid",
            "context-within-model",
            "dtype-supported",
            "quantization-supported",
            "decode-memory-bound",
            "prefill-compute-bound",
            "batch-amortizes-weights",
            "concurrency-kv-bound",
        ),
        "model-known",
    )


def test_a_version_without_rules_is_told_as_such() -> None:
    """The old engine of vLLM up to 0.10 on a GPU below compute capability 8."""
    verdict = judge("flags-known-to-version", gpu="t4", version="0.9.2")
    assert verdict.outcome is Outcome.CANNOT_TELL
    assert judge("kv-cache-fits", gpu="t4", version="0.9.2").blocked_by == "flags-known-to-version"
    assert judge("flags-known-to-version", gpu="t4", version="0.19.1")


def test_what_passes_says_why() -> None:
    given = {"tensor_parallel_size": 2, "gpu_count": 2}
    assert judge("parallelism-valid", **given).headline == "TP 2 x PP 1 fits the model"
    assert judge("gpus-match-parallelism", **given).headline == "2 GPUs are asked for and used"
    assert judge("model-known").headline.startswith(f"{LLAMA_8B} from catalogue")
    assert judge("context-within-model", LLAMA_70B, max_model_len=4096).headline.startswith("4,096")
    assert Setting(1, "argument").is_stated
