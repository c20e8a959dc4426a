"""Keys of a ``--config`` file -> the words that vLLM inserts before those of the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.launch import Word
from pytest_llmserve.runtimes.vllm.flags import flag_table
from pytest_llmserve.runtimes.vllm.versions import at_least, short
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

    from pytest_llmserve.runtimes.vllm.args import ConfigEntry


def config_words(
    entries: Sequence[ConfigEntry], version: Version
) -> tuple[tuple[Word, ...], tuple[Problem, ...]]:
    """The words of the file, in file order, and the keys that silently do nothing."""
    words: list[Word] = []
    problems: list[Problem] = []
    for entry in entries:
        if entry.value is False:
            negative = f"--no-{entry.key}"
            if at_least(version, "0.28") and negative in flag_table(version).options:
                words.append(Word(negative, entry.location))
            else:
                problems.extend(_dropped(entry, version))
            continue
        unresolved = tuple(getattr(entry, "unresolved", ()))
        texts = _texts(entry.value, version)
        if texts is not None:
            words.append(Word("--" + entry.key, entry.location))
            words.extend(Word(text, entry.location, unresolved) for text in texts)
    return tuple(words), tuple(problems)


def _texts(value: object, version: Version) -> list[str] | None:
    """The value's words, none for ``true``, ``None`` for what leaves the whole key out."""
    if value is True:
        return []
    if isinstance(value, list) and at_least(version, "0.10.2"):
        return [str(item) for item in value] or None
    if isinstance(value, dict) and at_least(version, "0.16"):
        return [json.dumps(value, default=str)]
    return [str(value)]


def _dropped(entry: ConfigEntry, version: Version) -> list[Problem]:
    dest = entry.key.replace("-", "_")
    flag = flag_table(version).by_dest.get(dest)
    if flag is None or flag.kind != "bool_optional" or dest not in _DEFAULT_ON:
        return []
    message = (
        f"`{entry.key}: false` does nothing in vllm {short(version)}: the key is dropped, "
        f"the default stays"
    )
    return [
        Problem(
            ProblemKind.WARNING,
            message,
            entry.location,
            key=entry.key,
            value="false",
            expected=f"--no-{entry.key.replace('_', '-')} on the command line",
        )
    ]


_DEFAULT_ON = frozenset({"enable_prefix_caching", "enable_chunked_prefill", "async_scheduling"})
