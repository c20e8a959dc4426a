"""Text of one argument -> value, as vLLM's argument parser converts it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmserve.runtimes.vllm.flags import Flag

_HUMAN: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# A longer number is no setting; int() itself refuses above 4300 digits with another error.
_MAX_DIGITS: Final = 400


class ValueRefusedError(ValueError):
    """The parser would stop: ``says`` in its words, ``expected`` in ours."""

    def __init__(self, says: str, expected: str) -> None:
        super().__init__(says)
        self.says = says
        self.expected = expected


def human_int(text: str) -> int:
    """``32k`` = 32000, ``32K`` = 32768, ``25.6k`` = 25600.

    Raises:
        ValueError: no integer.
        ValueRefusedError: decimals before a binary suffix (``25.6K``).
    """
    text = text.strip()
    match = _HUMAN.fullmatch(text)
    if match is None or len(text) > _MAX_DIGITS:
        return _int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    if "." in number:
        raise ValueRefusedError(
            f"Decimals are not allowed with binary suffixes like {suffix}.",
            f"{number}{suffix.lower()} (decimal) or a whole number of {suffix}",
        )
    return int(number) * _BINARY[suffix]


def human_int_or_auto(text: str) -> int:
    """As :func:`human_int`; ``auto`` and ``-1`` give -1."""
    return -1 if text.strip().lower() in ("-1", "auto") else human_int(text)


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(text)
    return int(text)


def _json_or_str(text: str) -> object:
    stripped = text.strip()
    is_object = stripped.startswith("{") and stripped.endswith("}")
    return _json(text) if is_object else text


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _json_or_pairs(text: str) -> object:
    if text.startswith("{") and text.endswith("}"):
        return _json(text)
    pairs: dict[str, int] = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(item)
        pairs[key.lower()] = _int(value)
    return pairs


_PARSERS: Final[dict[str, tuple[Callable[[str], object], str]]] = {
    "int": (_int, "a whole number"),
    "float": (float, "a number"),
    "human_int": (human_int, "a whole number such as 8192, 8k (8000) or 8K (8192)"),
    "human_int_or_auto": (human_int_or_auto, "a whole number such as 8192, 8k, 8K, or auto"),
    "json": (_json, "JSON in one word, such as '{\"key\": 1}'"),
    "json_or_str": (_json_or_str, "JSON or a name"),
    "json_or_pairs": (_json_or_pairs, "JSON, or pairs such as image=4"),
}


def parse_value(flag: Flag, text: str, choices: tuple[str, ...] | None) -> object:
    """The value of one word.

    Raises:
        ValueRefusedError: vLLM's parser refuses the word.
    """
    if flag.is_optional and text in ("", "None"):
        return None
    value: object = text
    if flag.kind in _PARSERS:
        parse, expected = _PARSERS[flag.kind]
        try:
            value = parse(text)
        except ValueRefusedError:
            raise
        except (ValueError, OverflowError):
            kind = flag.kind.replace("human_int", "human_readable_int")
            says = f"invalid {kind} value: {text!r}"
            if flag.is_optional or flag.kind.startswith("json"):
                says = f"Value {text} cannot be converted to"
            raise ValueRefusedError(says, expected) from None
    if choices is not None and str(value) not in choices:
        raise ValueRefusedError(f"invalid choice: {value!r}", f"one of {', '.join(choices)}")
    return value
