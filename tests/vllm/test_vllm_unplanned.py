"""Flags whose memory is not modelled: a plan says which one and why, it never guesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version
from serving import MAMBA_HYBRID, model, settle

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.runtimes.vllm.plan import make_plan

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import Unknown


def told(line: str, version: str = "0.33.0", **changes: Any) -> tuple[Unknown, ...]:
    spec = model(**changes)
    stated = settle(line, version=version, of=spec)
    return make_plan(
        stated, version=Version(version), model=spec, gpu=load_gpu("h100-sxm-80gb")
    ).unknown


@pytest.mark.parametrize(
    ("line", "what", "why"),
    [
        # vllm-project/vllm#40256 and #43951: the profile run does not see what is kept.
        ("--enable-sleep-mode", "memory", "2 to 71 GiB"),
        ("--offload-group-size 4 --offload-num-in-group 1", "weights", "host memory"),
        ("--cpu-offload-gb 4 --cpu-offload-params experts", "weights", "host memory"),
    ],
)
def test_what_is_not_modelled_is_said(line: str, what: str, why: str) -> None:
    (found,) = told(line)
    assert found.what == what
    assert found.why.startswith("--")
    assert why in found.why
    assert found.location is not None


def test_ring_buffers_matter_for_mamba_2_only() -> None:
    (found,) = told("--use-replayssm", **MAMBA_HYBRID)
    assert found.what == "KV cache"
    assert told("--use-replayssm") == ()


@pytest.mark.parametrize(
    "line", ["", "--no-enable-sleep-mode", "--cpu-offload-gb 4", "--cpu-offload-params experts"]
)
def test_the_rest_is_planned(line: str) -> None:
    assert told(line) == ()


@pytest.mark.parametrize("partition", ["12,x", "12,12"])
def test_a_partition_that_vllm_refuses_leaves_the_plan_untold(partition: str) -> None:
    server = LlmServe().server(
        "meta-llama/Llama-3.1-8B-Instruct",
        gpu="h100-sxm-80gb",
        gpu_count=2,
        version="0.20.2",
        pipeline_parallel_size=2,
        env={"VLLM_PP_LAYER_PARTITION": partition},
    )
    (subject,) = server.subjects
    assert [refusal.rule for refusal in subject.deployment.refusals] == ["parallelism"]
    assert subject.plan.vram is None
    assert subject.plan.unknown[0].what == "weights"
