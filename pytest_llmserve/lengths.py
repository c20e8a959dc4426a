"""Lengths of requests as a distribution: percentiles or a histogram file, reduced to three figures.

What is planned with is the mean, the deviation and the longest. Between two percentiles lengths are
taken as evenly spread; above the last one there are none, so the last has to be ``p99`` or ``max``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PERCENTILES: Final = {
    "p10": 0.10, "p25": 0.25, "p50": 0.50, "p75": 0.75, "p90": 0.90, "p95": 0.95, "p99": 0.99,
    "max": 1.0,
}  # fmt: skip
_LAST: Final = ("p99", "max")
_COLUMNS: Final = ("prompt_tokens", "output_tokens", "count")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a prompt or an output."""

    mean: float
    deviation: float
    longest: int


@dataclass(frozen=True, slots=True)
class RequestLengths:
    """Prompts, outputs and their sum, whose deviation knows how the two go together."""

    prompt: Lengths
    output: Lengths
    total: Lengths


def fixed(tokens: int) -> Lengths:
    """Every request alike."""
    return Lengths(float(tokens), 0.0, tokens)


def from_percentiles(points: Mapping[str, int]) -> Lengths:
    """Lengths of which some percentiles are known.

    Raises:
        ValueError: an unknown name, no end of the tail, or percentiles that fall.
    """
    unknown = [name for name in points if name not in PERCENTILES]
    if unknown:
        raise ValueError(f"unknown percentile {unknown[0]!r}; valid: {', '.join(PERCENTILES)}")
    if not any(name in points for name in _LAST):
        raise ValueError("expected p99 or max too: the longest requests decide what fits")
    ordered = sorted((PERCENTILES[name], value) for name, value in points.items())
    below, low, mean, square = 0.0, 1, 0.0, 0.0
    for share, value in ordered:
        if value < low:
            raise ValueError(f"percentiles must not fall: {value} comes after {low}")
        mass = share - below
        mean += mass * (low + value) / 2
        square += mass * (low * low + low * value + value * value) / 3
        below, low = share, value
    mean += (1 - below) * low
    square += (1 - below) * low * low
    return Lengths(mean, math.sqrt(max(0.0, square - mean * mean)), low)


def independent(prompt: Lengths, output: Lengths) -> RequestLengths:
    """Both, where nothing says how they go together."""
    deviation = math.hypot(prompt.deviation, output.deviation)
    longest = prompt.longest + output.longest
    total = Lengths(prompt.mean + output.mean, deviation, longest)
    return RequestLengths(prompt, output, total)


def from_histogram(path: Path) -> RequestLengths:
    """Lengths from a CSV with the columns ``prompt_tokens``, ``output_tokens`` and ``count``.

    Raises:
        ValueError: the file cannot be read or a line is wrong; the message names both.
    """
    import csv

    try:
        with path.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            header = tuple(reader.fieldnames or ())
            if set(header) != set(_COLUMNS):
                expected = ",".join(_COLUMNS)
                raise ValueError(f"{path}:1: columns {','.join(header)}: expected {expected}")
            rows = [_row(path, reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    if not rows:
        raise ValueError(f"{path}: no lengths below the header")
    weights = [count for _, _, count in rows]
    return RequestLengths(
        _weighted([prompt for prompt, _, _ in rows], weights),
        _weighted([output for _, output, _ in rows], weights),
        _weighted([prompt + output for prompt, output, _ in rows], weights),
    )


def _row(path: Path, line: int, row: Mapping[str, str | None]) -> tuple[int, int, int]:
    values = []
    for column in _COLUMNS:
        text = (row.get(column) or "").strip()
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"{path}:{line}: {column} = {text!r}: expected a number from 1 on")
        values.append(int(text))
    prompt, output, count = values
    return prompt, output, count


def _weighted(values: list[int], weights: list[int]) -> Lengths:
    total = sum(weights)
    mean = sum(v * w for v, w in zip(values, weights, strict=True)) / total
    square = sum(w * (v - mean) ** 2 for v, w in zip(values, weights, strict=True)) / total
    return Lengths(mean, math.sqrt(square), max(values))
