"""What vLLM does to its argument list before argparse sees it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_llmserve.runtimes.deployment import Refusal
from pytest_llmserve.runtimes.vllm.values import human_int
from pytest_llmserve.runtimes.vllm.versions import at_least, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

    from pytest_llmserve.manifests.launch import Word

_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prepared:
    """Words in the order argparse gets them; ``config`` is the word that names a file."""

    words: tuple[Word, ...]
    refused: tuple[tuple[str, Refusal], ...] = ()
    config: Word | None = None


def prepare(
    argv: Sequence[Word], config: Sequence[Word], version: Version, *, is_serve: bool
) -> Prepared:
    """Places the model and the config file's words, then folds names and dotted values."""
    words = list(argv)
    refused: list[tuple[str, Refusal]] = []
    if is_serve:
        words = _model_first(words[1:] if _is(words, 0, "serve") else words, version, refused)
    words, file = _splice_config(words, list(config), refused, is_serve=is_serve)
    folded = [_optimization(_fold(word, version), version) for word in words]
    flat = [word for group in folded for word in group]
    if at_least(version, "0.9"):
        flat = _merge_dotted(flat, version, refused)
    return Prepared(tuple(flat), tuple(refused), file)


def refusal(headline: str, says: str, word: Word | None, expected: str = "") -> Refusal:
    """A refusal of the argument parser, its headline cut to 100 columns."""
    return Refusal(
        rule="flags",
        headline=headline if len(headline) <= 100 else headline[:97] + "...",
        server_says=says,
        expected=expected,
        location=word.location if word else None,
    )


def _is(words: Sequence[Word], index: int, text: str) -> bool:
    return index < len(words) and words[index].text == text


def _model_first(
    words: list[Word], version: Version, refused: list[tuple[str, Refusal]]
) -> list[Word]:
    """``vllm serve --model X`` and its history: a flag, then an error, then moved to the front."""
    is_moved = at_least(version, "0.11.1")
    for i, word in enumerate(words):
        joined = is_moved and word.text.startswith("--model=")
        if word.text != "--model" and not joined:
            continue
        if not at_least(version, "0.8.3"):
            return words
        if not is_moved:
            headline = f"vllm {short(version)} serve takes the model as first word, not by --model"
            says = "With `vllm serve`, you should provide the model as a positional argument"
            refused.append(("model", refusal(headline, says, word, "vllm serve MODEL --flags")))
        if joined:
            model = replace(word, text=word.text.removeprefix("--model="))
            return [model, *words[:i], *words[i + 1 :]]
        if i + 1 < len(words):
            return [words[i + 1], *words[:i], *words[i + 2 :]]
        return words
    _served_name_without_model(words, version, refused)
    return words


def _served_name_without_model(
    words: list[Word], version: Version, refused: list[tuple[str, Refusal]]
) -> None:
    if not at_least(version, "0.17") or not words or not words[0].text.startswith("-"):
        return
    names = [word.text.partition("=")[0].replace("_", "-") for word in words]
    if "--served-model-name" in names and "--config" not in names:
        says = "`model` should be provided as the first positional argument"
        headline = f"vllm {short(version)}: the model must be the first word after `vllm serve`"
        refused.append(("model", refusal(headline, says, words[0], "vllm serve MODEL --flags")))


def _splice_config(
    words: list[Word],
    config: list[Word],
    refused: list[tuple[str, Refusal]],
    *,
    is_serve: bool,
) -> tuple[list[Word], Word | None]:
    """Command line beats file: the file's words go before all flags of the command line."""
    places = [i for i, word in enumerate(words) if word.text == "--config"]
    model = words[:1] if is_serve and words and not words[0].text.startswith("-") else []
    if not places:
        return [*model, *config, *words[len(model) :]], None
    first = words[places[0]]
    if len(places) > 1:
        says = "More than one config file specified!"
        refused.append(("config", refusal(f"{len(places)} --config flags", says, first, "one")))
    if places[0] + 1 == len(words):
        says = "No config file specified! Please check your command-line arguments."
        refused.append(("config", refusal("--config names no file", says, first, "a YAML file")))
        return words[: places[0]], None
    file = words[places[0] + 1]
    if not file.unresolved and not file.text.endswith((".yaml", ".yml")):
        says = "Config file must be of a yaml/yml type."
        headline = f"--config {file.text}: not a .yaml or .yml file"
        refused.append(("config", refusal(headline, says, file, "a name ending in .yaml or .yml")))
    has_model = bool(model) or any(word.text == "--model" for word in config)
    if is_serve and config and not has_model:
        says = "No model specified! Please specify model either as a positional argument"
        headline = "no model: neither a word after `vllm serve` nor `model:` in the config file"
        refused.append(("model", refusal(headline, says, file, "vllm serve MODEL")))
    rest = words[len(model) : places[0]] + words[places[0] + 2 :]
    return [*model, *config, *rest], file


def _fold(word: Word, version: Version) -> Word:
    """``--max_model_len=1`` -> ``--max-model-len=1``: names only, up to the first dot."""
    if not word.text.startswith("--"):
        return word
    name, equals, value = word.text.partition("=")
    head, dot, tail = name.partition(".")
    if not at_least(version, "0.9.1"):
        tail = tail.replace("_", "-")
    return replace(word, text=head.replace("_", "-") + dot + tail + equals + value)


def _optimization(word: Word, version: Version) -> list[Word]:
    """``-O3``: the level of the compilation config until 0.11, a flag of its own since 0.12."""
    text = word.text
    if not text.startswith("-O") or text in ("-O", "-O=") or text.startswith("-O."):
        return [word]
    level = text[3:] if text[2] == "=" else text[2:]
    if at_least(version, "0.12"):
        flag = replace(word, text="--optimization-level", unresolved=())
        return [flag, replace(word, text=level)]
    if not at_least(version, "0.9"):
        return [replace(word, text="-O", unresolved=()), replace(word, text=level)]
    key = "mode" if at_least(version, "0.11.1") else "level"
    return [replace(word, text=f"-O.{key}={level}")]


def _merge_dotted(
    words: list[Word], version: Version, refused: list[tuple[str, Refusal]]
) -> list[Word]:
    """``--x.a 1 --x.b 2`` -> ``--x '{"a": 1, "b": 2}'``, placed after all other words."""
    rest: list[Word] = []
    merged: dict[str, dict[str, Any]] = {}
    sources: dict[str, Word] = {}
    takes_short = at_least(version, "0.9.2")
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        name, equals, text = word.text.partition("=")
        is_dotted = name.startswith("--") or (takes_short and name.startswith("-"))
        if not is_dotted or "." not in name or " " in name or _NUMBER.match(name):
            is_plain_o = at_least(version, "0.12") and word.text == "-O" and i < len(words)
            if is_plain_o and words[i].text in ("0", "1", "2", "3"):
                word = replace(word, text="--optimization-level")
            rest.append(word)
            continue
        unresolved = word.unresolved
        if not equals:
            if i == len(words):
                says = "IndexError: list index out of range"
                refused.append((name, refusal(f"{name}: no value follows", says, word, "a value")))
                continue
            text, unresolved = words[i].text, words[i].unresolved
            i += 1
        _put(merged, name, text, version)
        root = name.split(".")[0]
        known = sources.get(root, replace(word, text=root, unresolved=()))
        sources[root] = replace(known, unresolved=known.unresolved + unresolved)
    for root, value in merged.items():
        source = sources[root]
        rest.append(replace(source, unresolved=()))
        rest.append(replace(source, text=json.dumps(value)))
    return rest


def _put(merged: dict[str, dict[str, Any]], name: str, text: str, version: Version) -> None:
    value: object
    if name.endswith("+") and at_least(version, "0.9.2"):
        name = name[:-1]
        value = text.split(",")
    else:
        value = _dotted_value(text, version)
    root, *keys = name.split(".")
    target = merged.setdefault(root, {})
    for key in keys[:-1]:
        inner = target.get(key)
        if not isinstance(inner, dict):
            inner = target[key] = {}
        target = inner
    old = target.get(keys[-1])
    if isinstance(old, list) and isinstance(value, list):
        old += value
    elif isinstance(old, dict) and isinstance(value, dict):
        old.update(value)
    else:
        target[keys[-1]] = value


def _dotted_value(text: str, version: Version) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if at_least(version, "0.20"):
        try:
            return human_int(text)
        except (ValueError, OverflowError):
            pass
    return text
