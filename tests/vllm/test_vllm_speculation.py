"""A draft model has to agree with its target: vocabulary, ranks, and a version that takes one.

Words and versions are those of ``config/speculative.py``, ``v1/spec_decode/draft_model.py``
and ``engine/arg_utils.py`` in the vLLM wheels of 0.8.5, 0.9.0 to 0.9.2, 0.10.0 to 0.15.1, 0.17.0,
0.19.0, 0.22.0 to 0.25.1, 0.29.0 and 0.33.0.
"""

from dataclasses import replace

import pytest
from packaging.version import Version
from serving import model, parse, refused

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.runtimes.vllm.unmodelled import unmodelled
from pytest_llmserve.verdict import Location

NAMED = '--speculative-config \'{"model": "org/small", "num_speculative_tokens": 4%s}\''
STATED = NAMED % ', "method": "draft_model"%s'
SMALL = replace(model(), id="org/small")
OTHER = replace(SMALL, vocab_size=SMALL.vocab_size - 128)


@pytest.mark.parametrize("version", ["0.10.0", "0.11.0", "0.14.1"])
def test_versions_between_the_engines_draft_with_no_model(version: str) -> None:
    (found,) = refused(STATED % "", version=version)
    assert "speculative decoding" in found.server_says.lower()
    assert found.server_says.endswith(" is not supported yet.")
    assert found.expected.startswith("vllm 0.15 or newer")
    assert found.is_certain


def test_a_name_alone_may_be_that_of_a_head() -> None:
    (found,) = refused(NAMED % "", version="0.11.0")
    assert not found.is_certain
    (found,) = refused(NAMED % "", version="0.11.0", draft=SMALL)
    assert found.is_certain
    assert found.server_says == "Speculative decoding with draft model is not supported yet."


@pytest.mark.parametrize("version", ["0.15.0", "0.33.0"])
@pytest.mark.parametrize("line", [STATED % "", NAMED % ""])
def test_another_vocabulary(line: str, version: str) -> None:
    (found,) = refused(line, version=version, draft=OTHER)
    size = SMALL.vocab_size
    assert found.server_says == (
        "Target and draft model should have the same vocabulary size. "
        f"Target model vocab_size={size}. Draft model vocab_size={size - 128}."
    )
    assert found.location is not None
    assert refused(line, version=version, draft=SMALL) == []
    assert refused(line, version=version) == []  # unknown: the plan cannot tell


@pytest.mark.parametrize(("version", "is_taken"), [("0.24.0", False), ("0.25.0", True)])
def test_vocabularies_may_differ_where_it_is_asked_for(version: str, *, is_taken: bool) -> None:
    line = STATED % ', "use_heterogeneous_vocab": true'
    assert (refused(line, version=version, draft=OTHER) == []) is is_taken
    (found,) = refused(STATED % "", version=version, draft=OTHER)
    assert ("use_heterogeneous_vocab" in found.expected) is is_taken


def test_heads_have_vocabularies_of_their_own() -> None:
    line = STATED.replace("draft_model", "eagle3") % ""
    assert refused(line, draft=OTHER) == []


@pytest.mark.parametrize(
    ("ranks", "tp", "method", "is_refused"),
    [
        (1, 4, "draft_model", True),
        (4, 4, "draft_model", False),
        (1, 1, "draft_model", False),
        (1, 4, "eagle3", False),
    ],
)
def test_ranks_of_a_draft_model(ranks: int, tp: int, method: str, *, is_refused: bool) -> None:
    line = STATED.replace("draft_model", method) % f', "draft_tensor_parallel_size": {ranks}'
    found = refused(f"-tp {tp} {line}", draft=SMALL)
    says = ["Currently, 'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same."]
    assert [refusal.server_says.split(" Got ")[0] for refusal in found] == says * is_refused


@pytest.mark.parametrize(
    ("line", "version", "is_old"),
    [
        (STATED % "", "0.9.2", True),
        (NAMED % "", "0.8.5", True),
        (NAMED.replace("small", "EAGLE3-x") % "", "0.9.2", True),
        (STATED.replace("draft_model", "eagle3") % "", "0.8.5", False),
        (STATED.replace("draft_model", "medusa") % "", "0.8.5", True),
        (STATED.replace("draft_model", "medusa") % "", "0.9.0", False),
        (
            '--speculative-config \'{"model": "ngram", "num_speculative_tokens": 2}\'',
            "0.8.5",
            False,
        ),
        (STATED % "", "0.10.0", False),
        ("", "0.9.2", False),
    ],
)
def test_old_versions_draft_otherwise_on_their_old_engine(
    line: str, version: str, *, is_old: bool
) -> None:
    problems = unmodelled(
        parse(f"M {line}", version),
        version=Version(version),
        model=model(),
        gpu=None,
        env={},
        location=Location("serve.sh", 1),
    )
    assert bool(problems) is is_old
    assert all("its way of speculative decoding" in p.message for p in problems)


def test_a_smaller_sibling_with_a_padded_vocabulary_is_refused() -> None:
    """Qwen2.5: 152,064 rows from 7B on, 151,936 below (their config.json)."""
    server = LlmServe().server(
        "Qwen/Qwen2.5-7B-Instruct",
        gpu="h100-sxm-80gb",
        version="0.20.0",
        speculative_config={"model": "Qwen/Qwen2.5-0.5B-Instruct", "num_speculative_tokens": 4},
    )
    (found,) = server.subjects[0].deployment.refusals
    assert found.headline == "151,936 tokens in the draft's vocabulary, 152,064 in the model's"


@pytest.mark.parametrize(
    ("line", "is_old"),
    [
        ("--disable-async-output-proc", True),
        ("--enable-prompt-adapter", True),
        ("--scheduler-delay-factor 1.0", True),
        ("--scheduler-delay-factor 0", False),
        ("--num-scheduler-steps 1", False),
        ("--num-scheduler-steps 8", True),
    ],
)
def test_flags_of_the_old_engine_count_unless_at_their_default(line: str, *, is_old: bool) -> None:
    problems = unmodelled(
        parse(f"M {line}", "0.8.5"),
        version=Version("0.8.5"),
        model=model(),
        gpu=None,
        env={},
        location=Location("serve.sh", 1),
    )
    assert bool(problems) is is_old
