"""Published strategies: what they draw is sound, prints shortly, and shrinks to the least."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import find, given, settings

import pytest_llmserve as llmserve
from pytest_llmserve.assertions import InvariantError
from pytest_llmserve.engine.attention import request_bytes
from pytest_llmserve.invariants.llm103_concurrency_fits import fits
from pytest_llmserve.models.spec import Experts, KvCache, LatentCache, ModelSpec, StateCache
from pytest_llmserve.policy import Facts
from pytest_llmserve.strategies import (
    FAMILIES,
    MOE_FAMILIES,
    Change,
    DrawnModel,
    DrawnServer,
    changes,
    deployments,
    gpus,
    model_specs,
    workloads,
)
from pytest_llmserve.subject import Subject

DOCS = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text(encoding="utf-8")
QUICK = settings(max_examples=300, derandomize=True, database=None, deadline=None)
CHAT = llmserve.server(
    "meta-llama/Llama-3.1-8B-Instruct",
    gpu="h100-sxm-80gb",
    version="0.19.1",
    max_model_len=8192,
    max_num_seqs=64,
)


def snippets() -> dict[str, Any]:
    """The page's code, run as one module."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL):
        exec(block, names)
    return {name: found for name, found in names.items() if name.startswith("test_")}


@pytest.mark.parametrize("name", snippets())
def test_the_uses_of_the_page_hold(name: str) -> None:
    snippets()[name]()


def test_the_page_has_three_uses() -> None:
    assert len(snippets()) == 3


def kinds_of(spec: ModelSpec) -> set[str]:
    kinds = set()
    for group in spec.layer_groups:
        for cache in group.layer.caches:
            match cache:
                case KvCache(window=None):
                    kinds.add("full")
                case KvCache():
                    kinds.add("sliding")
                case LatentCache():
                    kinds.add("latent")
                case StateCache():
                    kinds.add("state")
    return kinds


@settings(max_examples=150, deadline=None)
@given(model_specs())
def test_models_are_of_their_family(spec: DrawnModel) -> None:
    assert kinds_of(spec) <= FAMILIES[spec.model_type]
    has_experts = any(isinstance(g.layer.experts, Experts) for g in spec.layer_groups)
    assert has_experts == (spec.model_type in MOE_FAMILIES)
    assert request_bytes(spec).of(100) > 0
    assert len(repr(spec)) < 120


@pytest.mark.parametrize("attention", ["full", "sliding", "latent"])
def test_attention_is_asked_for(attention: Any) -> None:
    @settings(max_examples=20, deadline=None)
    @given(model_specs(attention=attention))
    def only(spec: ModelSpec) -> None:
        assert kinds_of(spec) == {attention}

    only()


def test_models_shrink_to_the_smallest() -> None:
    assert repr(find(model_specs(), lambda spec: True)) == (
        "<llama: 1 layers, hidden 64, 1 heads, 1 KV heads, vocabulary 512>"
    )
    grouped = find(model_specs(), lambda spec: spec.num_attention_heads > spec.num_kv_heads)
    assert (grouped.num_layers, grouped.num_attention_heads, grouped.num_kv_heads) == (1, 2, 1)


def test_gpus() -> None:
    assert repr(find(gpus(), lambda gpu: True)) == "<h100-sxm-80gb>"
    assert repr(find(gpus(vendor="AMD"), lambda gpu: True)) == "<mi210>"
    assert repr(find(gpus(["l4", "t4"]), lambda gpu: True)) == "<l4>"


@settings(max_examples=40, deadline=None)
@given(gpus(vendor=None))
def test_figures_of_gpus_are_known(gpu: Any) -> None:
    assert gpu.memory_total_bytes
    assert gpu.hbm_bytes_per_s
    assert gpu.dense_flops_per_s


@settings(max_examples=60, deadline=None)
@given(workloads(max_prompt_tokens=500, max_output_tokens=90, max_concurrency=7, max_tokens=550))
def test_loads_stay_within_their_envelope(load: Any) -> None:
    assert 1 <= load.prompt_tokens <= 500
    assert 1 <= load.output_tokens <= 90
    assert 1 <= load.concurrency <= 7
    assert load.tokens_per_request <= 550


@settings(max_examples=40, deadline=None)
@given(deployments())
def test_deployments_are_planned_or_refused(server: DrawnServer) -> None:
    (subject,) = server.subjects
    assert subject.deployment.refusals or subject.plan.vram is not None
    assert repr(server).startswith("<vllm serve <")
    assert "--max-model-len" in repr(server)


@settings(max_examples=40, deadline=None)
@given(deployments(models=["Qwen/Qwen2.5-7B-Instruct"], parts=gpus(["h100-sxm-80gb"])))
def test_deployments_of_named_models(server: DrawnServer) -> None:
    assert repr(server).startswith("<vllm serve Qwen/Qwen2.5-7B-Instruct --")


def test_deployments_shrink_to_no_flag_more_than_needed() -> None:
    def fails(server: DrawnServer) -> bool:
        try:
            llmserve.assert_context_within_model(server)
        except InvariantError:
            return True
        return False

    found = find(deployments(), fails, settings=QUICK)
    assert repr(found) == (
        "<vllm serve <llama: 1 layers, hidden 64, 1 heads, 1 KV heads, vocabulary 512> "
        "--max-model-len 257 (1 x h100-sxm-80gb, vllm 0.19.1)>"
    )


@settings(max_examples=60, deadline=None)
@given(changes())
def test_a_change_is_made(change: Change) -> None:
    changed = change.apply(CHAT)
    settings_ = changed.subjects[0].deployment.settings
    for name, value in change.flags.items():
        assert getattr(settings_, name).value == value
    assert 1 <= len(change.flags) <= 3
    assert changed.subjects[0].deployment.gpu_count is not None
    assert changed.subjects[0].deployment.gpu_count.value == settings_.world_size
    assert repr(changed).endswith(f"changed to {repr(change)[9:-1]}>")


def test_a_forbidden_change_shrinks_to_its_first_bad_value() -> None:
    """The page says so: one token more than the model was made for."""

    def fails(change: Change) -> bool:
        try:
            llmserve.assert_starts(change.apply(CHAT))
        except InvariantError:
            return True
        return False

    found = find(changes(flags=["max_model_len"]), fails, settings=QUICK)
    assert repr(found) == "<change: --max-model-len 131073>"


def test_the_naive_autoscaler_is_caught() -> None:
    """The page says so: few tokens, and more sequences than max_num_seqs."""

    def fails(load: Any) -> bool:
        tokens = load.concurrency * load.tokens_per_request
        each = -(-load.concurrency // max(1, -(-tokens // 300_000)))
        about = Subject(CHAT.subjects[0].inputs, Facts(workload=replace(load, concurrency=each)))
        return not fits(about)

    found = find(workloads(max_concurrency=2000, max_tokens=8192), fails, settings=QUICK)
    assert repr(found) == "<65 at once of 1 prompt + 1 output tokens>"
    assert f"`{found!r}`" in DOCS


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: model_specs(families=["gpt5"]), "unknown family 'gpt5'; valid: llama"),
        (lambda: model_specs(attention="state"), "has only state attention"),
        (lambda: changes(flags=["seed"]), "unknown flag 'seed'; valid: max_model_len"),
        (lambda: changes(flags=[]), "unknown flag none"),
        (lambda: changes(runtime="tgi"), "unknown runtime 'tgi'; valid: vllm"),  # type: ignore[arg-type]
    ],
)
def test_what_is_asked_wrongly_is_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  (the text is what is tested)
        make()
    assert message in str(error.value)


def test_deployments_of_other_runtimes_are_not_known() -> None:
    other: Any = deployments(runtime="tgi")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown runtime 'tgi'; valid: vllm"):
        find(other, lambda drawn: True)
