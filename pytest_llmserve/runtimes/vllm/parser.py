"""argparse's own rules: exact names, unique prefixes, joined values, one or more values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.advice import INSTEAD
from pytest_llmserve.runtimes.vllm.argv import refusal
from pytest_llmserve.runtimes.vllm.flags import SECRET, all_flags, flag_table
from pytest_llmserve.runtimes.vllm.values import ValueRefusedError, parse_value
from pytest_llmserve.runtimes.vllm.versions import at_least, short
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

    from pytest_llmserve.manifests.launch import Word
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.flags import Flag, FlagTable, Release

_NEGATIVE_NUMBER: Final = re.compile(r"-\d+$|-\d*\.\d+$")
_MASK: Final = "***"


@dataclass(frozen=True, slots=True)
class Stated:
    """A value that somebody wrote.

    ``source`` is ``line 33``, ``argument`` (Python) or ``fix``; ``raw`` of a secret is masked.
    """

    value: object
    raw: str
    location: Location | None
    flag: str
    source: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Option:
    """A word that names a flag: ``flag`` is ``None`` where no flag of the version is meant."""

    name: str
    flag: Flag | None
    is_negative: bool = False
    explicit: str | None = None
    candidates: tuple[str, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class Parse:
    """What argparse's pass over the words found."""

    stated: dict[str, Stated] = field(default_factory=dict)
    refused: list[tuple[str, Refusal]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unresolved: set[str] = field(default_factory=set)
    positional: Word | None = None


def find_option(text: str, table: FlagTable) -> _Option | None:
    """How argparse takes a word: as a flag, or (``None``) as a value or positional."""
    if not text.startswith("-") or text == "-":
        return None
    exact = table.options.get(text)
    if exact:
        return _Option(text, exact[0], exact[1])
    name, equals, value = text.partition("=")
    explicit = value if equals else None
    exact = table.options.get(name)
    if exact:
        return _Option(name, exact[0], exact[1], explicit)
    matches = _prefix_matches(text, name, explicit, table)
    if len(matches) == 1:
        return matches[0]
    if matches:
        return _Option(name, None, candidates=tuple(match.name for match in matches))
    if _NEGATIVE_NUMBER.match(text) or " " in text:
        return None
    return _Option(name, None, explicit=explicit)


def _prefix_matches(text: str, name: str, explicit: str | None, table: FlagTable) -> list[_Option]:
    if text.startswith("--"):
        return [
            _Option(full, flag, negative, explicit)
            for full, (flag, negative) in table.options.items()
            if full.startswith(name)
        ]
    found = []
    for full, (flag, negative) in table.options.items():
        if full == text[:2]:
            found.append(_Option(full, flag, negative, text[2:]))
        elif full.startswith(text):
            found.append(_Option(full, flag, negative, None))
    return found


def run_parser(words: Sequence[Word], version: Version, *, is_serve: bool) -> Parse:
    """One pass over the prepared words; every error is kept, not only the first."""
    table = flag_table(version)
    options = _classify(words, table)
    parse = Parse()
    skip_values = False  # the values of a flag that is not known are not errors of their own
    i = 0
    while i < len(words):
        word, option = words[i], options[i]
        if option is None:
            if word.text != "--" and not skip_values:
                _take_positional(parse, word, version, is_serve=is_serve)
            i += 1
            continue
        end = i + 1
        while end < len(words) and options[end] is None and words[end].text != "--":
            end += 1
        skip_values = option.flag is None
        if option.flag is None:
            _take_unknown(parse, word, option, words[i + 1 : end], version)
            i += 1
        else:
            i += 1 + _take_option(parse, word, option, option.flag, words[i + 1 : end], table)
    return parse


def _classify(words: Sequence[Word], table: FlagTable) -> list[_Option | None]:
    options: list[_Option | None] = []
    after_dashes = False
    for word in words:
        after_dashes = after_dashes or word.text == "--"
        options.append(None if after_dashes else find_option(word.text, table))
    return options


def _take_positional(parse: Parse, word: Word, version: Version, *, is_serve: bool) -> None:
    if is_serve and parse.positional is None:
        parse.positional = word
    elif word.unresolved:
        parse.problems.append(_hidden_words(word))
    elif not is_serve and parse.positional is None and at_least(version, "0.10"):
        parse.positional = word
        parse.problems.append(
            Problem(
                ProblemKind.WARNING,
                f"`{word.text}` is ignored: this entry point takes its model from --model",
                word.location,
                value=word.text,
                expected=f"--model {word.text}",
            )
        )
    else:
        parse.refused.append((word.text, _stray(word, version)))


def _stray(word: Word, version: Version) -> Refusal:
    expected = "delete it"
    first = word.text.split(" ", 1)[0]
    if word.text.startswith("-") and " " in word.text:
        expected = f"two words: {first} and its value, each an item of the list"
    headline = f"vllm {short(version)} does not know what to do with `{word.text}`"
    return refusal(headline, f"unrecognized arguments: {word.text}", word, expected)


def _names(word: Word) -> str:
    return ", ".join(name for name in word.unresolved if name) or f"`{word.text}`"


def _hidden_words(word: Word) -> Problem:
    names = _names(word)
    return Problem(
        ProblemKind.UNRESOLVED,
        f"arguments in `{word.text}` are not known: no value for {names} in the files given",
        word.location,
        value=word.text,
        expected=f"a value for {names}",
    )


def _take_unknown(
    parse: Parse, word: Word, option: _Option, values: Sequence[Word], version: Version
) -> None:
    if word.unresolved and option.explicit is None:
        parse.problems.append(_hidden_words(word))
        return
    if option.candidates:
        could = ", ".join(option.candidates)
        says = f"ambiguous option: {option.name} could match {could}"
        headline = f"{len(option.candidates)} flags begin with {option.name}"
        if any(option.name in flag.names for flag in all_flags()):
            headline = _when(option.name, version)[0] or headline
        parse.refused.append((option.name, refusal(headline, says, word, f"one of {could}")))
        return
    says = " ".join(["unrecognized arguments:", word.text, *(v.text for v in values)])
    headline, expected = _when(option.name, version)
    if headline:
        parse.refused.append((option.name, refusal(headline, says, word, expected)))
        return
    from difflib import get_close_matches  # rare, and slow to import

    close = get_close_matches(option.name, flag_table(version).options, n=2, cutoff=0.75)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    parse.problems.append(
        Problem(
            ProblemKind.UNKNOWN,
            f"{option.name} is no flag of vllm {short(version)} that is known here{hint}",
            word.location,
            key=option.name,
            expected=" or ".join(close) or "a flag of `vllm serve --help=all`",
        )
    )


def _when(name: str, version: Version) -> tuple[str, str]:
    """Headline and advice for a flag that other versions know; empty for one that none does."""
    bare = name.replace("--no-", "--", 1) if name.startswith("--no-") else name
    if len(bare) < 3 and bare != "-O":
        return "", ""
    flags = [f for f in all_flags() if name in f.names or bare in f.names]
    if not flags:
        flags = [f for f in all_flags() if any(n.startswith(bare) for n in f.names)]
    here: Release = version.release
    gone = [flag for flag in flags if flag.until <= here]
    later = [flag for flag in flags if flag.since > here]
    if gone and not later:
        until = ".".join(map(str, max(flag.until for flag in gone)))
        advice = INSTEAD.get(gone[-1].names[0], f"delete {name}")
        if name == "-O":
            advice = INSTEAD["-O"]
        return f"{name} is unknown to vllm {short(version)}: removed in {until}", advice
    if later:
        since = ".".join(map(str, min(flag.since for flag in later)))
        return (
            f"{name} is unknown to vllm {short(version)}: new in {since}",
            f"vllm {since} or newer, or no {name}",
        )
    return "", ""


def _take_option(
    parse: Parse,
    word: Word,
    option: _Option,
    flag: Flag,
    values: Sequence[Word],
    table: FlagTable,
) -> int:
    """Sets the flag; returns how many of the words that follow are its values."""
    label = "/".join(flag.names)
    if flag.is_switch:
        if option.explicit is not None:
            says = f"argument {label}: ignored explicit argument {option.explicit!r}"
            headline = f"{option.name} takes no value, `={option.explicit}` is refused"
            expected = _switch_words(flag, option.explicit)
            parse.refused.append((flag.dest, refusal(headline, says, word, expected)))
        else:
            text = "false" if option.is_negative else "true"
            _set(parse, flag, option.name, not option.is_negative, text, word)
        return 0
    if option.explicit is not None:
        texts: list[tuple[str, Word]] = [(option.explicit, word)]
        used = 0
    else:
        used = len(values) if flag.is_list else min(1, len(values))
        texts = [(value.text, value) for value in values[:used]]
    if not texts:
        if flag.kind == "optional_str":
            _set(parse, flag, option.name, True, "", word)
        else:
            count = "at least one argument" if flag.is_list else "one argument"
            says = f"argument {label}: expected {count}"
            headline = f"{option.name}: no value follows"
            parse.refused.append((flag.dest, refusal(headline, says, word, "a value")))
        return 0
    _take_values(parse, option, flag, texts, table)
    return used


def _switch_words(flag: Flag, explicit: str) -> str:
    is_no = explicit.strip().lower() in ("false", "0", "no", "off")
    if is_no and flag.kind == "bool_optional":
        return "--no-" + flag.names[0].removeprefix("--")
    return f"delete {flag.names[0]}" if is_no else flag.names[0]


def _take_values(
    parse: Parse,
    option: _Option,
    flag: Flag,
    texts: Sequence[tuple[str, Word]],
    table: FlagTable,
) -> None:
    parsed: list[object] = []
    for n, (text, source) in enumerate(texts):
        if source.unresolved:
            if flag.matters:
                parse.problems.append(_unresolved(option.name, flag, text, source))
                parse.unresolved.add(flag.dest)
                parse.stated.pop(flag.dest, None)
                return
            if n:
                parse.problems.append(_hidden_words(source))
            parsed.append(text)
            continue
        try:
            parsed.append(parse_value(flag, text, flag.choices_at(table.version)))
        except ValueRefusedError as error:
            label = "/".join(flag.names)
            shown = _MASK if flag.dest in SECRET else text
            says = f"argument {label}: {error.says}"
            headline = f"{option.name} {shown}: not accepted"
            parse.refused.append((flag.dest, refusal(headline, says, source, error.expected)))
            return
    value: object = tuple(parsed) if flag.is_list else parsed[0]
    _set(parse, flag, option.name, value, " ".join(text for text, _ in texts), texts[0][1])


def _unresolved(name: str, flag: Flag, text: str, source: Word) -> Problem:
    names = _names(source)
    return Problem(
        ProblemKind.UNRESOLVED,
        f"{name} is `{text}`: no value for {names} in the files given",
        source.location,
        key=flag.names[0],
        value=text,
        expected=f"a value for {names}",
    )


def _set(parse: Parse, flag: Flag, name: str, value: object, raw: str, word: Word) -> None:
    if flag.dest in SECRET:
        value = raw = _MASK
    parse.unresolved.discard(flag.dest)
    if value is None:  # "None" on the command line: back to the default
        parse.stated.pop(flag.dest, None)
        return
    source = f"line {word.location.line}"
    parse.stated[flag.dest] = Stated(value, raw, word.location, name, source)
