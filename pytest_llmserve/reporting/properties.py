"""A verdict as properties of a JUnit test case, written by pytest's own ``--junitxml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmserve.verdict import Verdict


def verdict_properties(verdict: Verdict) -> list[tuple[str, str]]:
    """Names under ``llmserve.`` with values as text; what is not known is left out."""
    properties = {"id": verdict.id, "name": verdict.name, "outcome": str(verdict.outcome)}
    if verdict.certainty is not None:
        properties["certainty"] = str(verdict.certainty)
    if verdict.location is not None:
        properties["location"] = str(verdict.location)
    if verdict.margin_bytes is not None:
        properties["margin_bytes"] = str(verdict.margin_bytes.expected)
        properties["margin_bytes_low"] = str(verdict.margin_bytes.low)
        properties["margin_bytes_high"] = str(verdict.margin_bytes.high)
    properties |= {key: str(value) for key, value in verdict.evidence.items()}
    return [(f"llmserve.{key}", value) for key, value in properties.items()]
