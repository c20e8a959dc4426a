"""Laws over whole servers: a kinder deployment never turns a pass into a failure."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.invariants import invariant
from pytest_llmserve.policy import Facts, Workload
from pytest_llmserve.servers.server import badness
from pytest_llmserve.subject import Subject
from pytest_llmserve.units import GIB, Interval
from pytest_llmserve.verdict import Outcome

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "google/gemma-2-9b-it",
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "deepseek-ai/DeepSeek-V2-Lite",
    "openai/gpt-oss-20b",
)
VERSIONS = ("0.14.1", "0.19.1", "0.20.2", "0.26.0", "0.29.0", "0.33.0")
SERVE = LlmServe()
FITS = [invariant(name) for name in ("weights-fit", "kv-cache-fits", "concurrency-fits")]

lengths = st.integers(16, 8192)
sizes = st.integers(4, 400).map(lambda gib: gib * GIB)


@st.composite
def servers(draw: st.DrawFn) -> Subject:
    flags: dict[str, Any] = {
        "max_model_len": draw(lengths),
        "max_num_seqs": draw(st.sampled_from((8, 64, 256))),
        "max_num_batched_tokens": 2048,
        "tensor_parallel_size": draw(st.sampled_from((1, 2))),
        "enforce_eager": draw(st.booleans()),
    }
    server = SERVE.server(
        draw(st.sampled_from(MODELS)),
        gpu="h100-sxm-80gb",
        version=draw(st.sampled_from(VERSIONS)),
        **flags,
    )
    load = Workload(
        prompt_tokens=draw(st.integers(1, 4000)),
        output_tokens=draw(st.integers(1, 500)),
        concurrency=draw(st.integers(1, 300)),
    )
    return with_memory(Subject(server.subjects[0].inputs, Facts(workload=load)), draw(sizes))


def with_memory(subject: Subject, total_bytes: int) -> Subject:
    gpu = subject.inputs.gpu
    assert gpu is not None
    resized = replace(gpu, memory_total_bytes=Interval.exact(total_bytes))
    return Subject(replace(subject.inputs, gpu=resized), subject.facts)


def never_worse(kinder: Subject, harsher: Subject) -> None:
    for found in FITS:
        better, worse = found.judge(kinder), found.judge(harsher)
        assert badness(better) <= badness(worse), (found.name, better.headline, worse.headline)


@settings(max_examples=60, deadline=None)
@given(servers(), sizes)
def test_more_memory(subject: Subject, other_bytes: int) -> None:
    gpu = subject.inputs.gpu
    assert gpu is not None
    assert gpu.memory_total_bytes is not None
    low, high = sorted((gpu.memory_total_bytes.expected, other_bytes))
    never_worse(with_memory(subject, high), with_memory(subject, low))


@settings(max_examples=60, deadline=None)
@given(servers(), lengths)
def test_a_shorter_context(subject: Subject, other: int) -> None:
    stated = subject.deployment.settings.max_model_len.value
    assert stated is not None
    short, long = sorted((stated, other))
    verdicts = [
        invariant("kv-cache-fits").judge(subject.changed({"max_model_len": length}))
        for length in (short, long)
    ]
    assert badness(verdicts[0]) <= badness(verdicts[1])


@settings(max_examples=60, deadline=None)
@given(servers(), st.integers(1, 300))
def test_fewer_requests(subject: Subject, other: int) -> None:
    load = subject.facts.workload
    assert load is not None
    few, many = sorted((load.concurrency, other))
    kinder, harsher = (
        Subject(subject.inputs, replace(subject.facts, workload=replace(load, concurrency=count)))
        for count in (few, many)
    )
    never_worse(kinder, harsher)


@settings(max_examples=60, deadline=None)
@given(servers())
def test_what_fits_at_once_is_what_the_pool_holds(subject: Subject) -> None:
    """capacity x request <= pool < (capacity + 1) x request."""
    load = subject.facts.workload
    assert load is not None
    verdict = invariant("concurrency-fits").judge(subject)
    at_once = verdict.evidence.get("requests_at_once")
    if not isinstance(at_once, int):
        return
    vram = subject.plan.vram
    held = subject.changed({"max_model_len": load.tokens_per_request}).plan.kv
    assert vram is not None
    assert held is not None
    pool = max(0, vram.kv_available_bytes.expected)
    assert at_once * held.request_bytes <= pool < (at_once + 1) * held.request_bytes


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(servers())
def test_every_offered_fix_makes_it_pass(subject: Subject) -> None:
    subject = subject.changed({"gpu_memory_utilization": 0.25})  # so that most do not fit
    verdict = invariant("kv-cache-fits").judge(subject)
    flags = [fix for fix in verdict.fixes if fix.change.startswith("--")]
    assume(flags)
    for fix in flags:
        flag, _, text = fix.change.partition(" ")
        dest = flag.removeprefix("--").replace("-", "_")
        value = float(text) if "." in text else int(text) if text.isdecimal() else text
        changed = subject.changed({dest: value}, gpu_count=8)
        assert invariant("kv-cache-fits").judge(changed).outcome is Outcome.PASSED
