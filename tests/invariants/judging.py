"""A server in a line, and the verdict of one invariant about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.invariants import invariant
from pytest_llmserve.policy import Facts
from pytest_llmserve.reporting.text import explain
from pytest_llmserve.subject import Subject

if TYPE_CHECKING:
    from pytest_llmserve.verdict import Verdict

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
_SERVE = LlmServe()


def subject(
    model: str = LLAMA_8B, gpu: str = "h100-sxm-80gb", facts: Facts | None = None, **given: Any
) -> Subject:
    given.setdefault("version", "0.19.1")
    (found,) = _SERVE.server(model, gpu=gpu, **given).subjects
    return Subject(found.inputs, facts or Facts())


def judge(name: str, *args: Any, **given: Any) -> Verdict:
    return invariant(name).judge(subject(*args, **given))


def message(name: str, *args: Any, **given: Any) -> str:
    about = subject(*args, **given)
    return explain(invariant(name).judge(about), about.deployment)
