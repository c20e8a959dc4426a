"""Words of a command line -> what they set, through the stated version's own parser rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from pytest_llmserve.runtimes.vllm.argv import prepare, refusal
from pytest_llmserve.runtimes.vllm.config_file import config_words
from pytest_llmserve.runtimes.vllm.flags import all_flags, flag_table
from pytest_llmserve.runtimes.vllm.parser import Parse, Stated, run_parser
from pytest_llmserve.runtimes.vllm.unmodelled import unread_words
from pytest_llmserve.runtimes.vllm.values import ValueRefusedError, parse_value
from pytest_llmserve.runtimes.vllm.versions import short
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from packaging.version import Version

    from pytest_llmserve.manifests.launch import Word
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.verdict import Location

__all__ = [
    "ConfigEntry",
    "ParsedArgs",
    "Stated",
    "UnknownSettingError",
    "parse_args",
    "stated_from_kwargs",
]


class ConfigEntry(Protocol):
    """One key of a ``--config`` file: as written, what YAML made of it, and its place."""

    @property
    def key(self) -> str: ...  # noqa: D102 - said above

    @property
    def value(self) -> object: ...  # noqa: D102

    @property
    def location(self) -> Location: ...  # noqa: D102


class UnknownSettingError(TypeError):
    """A keyword that no vLLM flag is called by; the message lists close names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedArgs:
    """What a command line says, by destination (``max_model_len``).

    ``refused`` pairs each refusal of the parser with the destination or word it is about.
    ``unresolved`` names destinations whose value hangs on an unknown variable.
    """

    version: Version
    stated: Mapping[str, Stated]
    model: Stated | None = None
    refused: tuple[tuple[str, Refusal], ...] = ()
    problems: tuple[Problem, ...] = ()
    unresolved: frozenset[str] = field(default_factory=frozenset)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What the argument parser itself would stop with."""
        return tuple(refusal for _, refusal in self.refused)

    def with_value(self, dest: str, value: object, source: str = "fix") -> ParsedArgs:
        """A copy in which ``dest`` is ``value``; ``None`` removes whatever was written of it.

        ``dest`` may also be the word of an unknown flag (``--swap-space``), to remove it.
        """
        table = flag_table(self.version)
        name = dest.lstrip("-").replace("-", "_")
        stated = {key: old for key, old in self.stated.items() if key != name}
        if value is not None:
            flag = table.by_dest.get(name)
            written = flag.names[0] if flag else "--" + name.replace("_", "-")
            stated[name] = Stated(value, str(value), None, written, source)
        return replace(
            self,
            stated=stated,
            refused=tuple(pair for pair in self.refused if pair[0] not in (dest, name)),
            unresolved=self.unresolved - {name},
        )


def parse_args(
    argv: Sequence[Word],
    version: Version,
    *,
    config_entries: Sequence[ConfigEntry] = (),
    entrypoint: str = "vllm serve",
) -> ParsedArgs:
    """Reads a command line as ``version`` would. Never raises, whatever the words.

    Args:
        argv: words after the program (``vllm serve`` or the api_server module).
        version: whose flag table and parser rules apply.
        config_entries: keys of the file that ``--config`` names, in file order.
        entrypoint: ``vllm serve`` takes the model as its first positional word, the api_server
            module takes ``--model``.
    """
    is_serve = "api_server" not in entrypoint
    words, dropped = config_words(config_entries, version)
    prepared = prepare(argv, words, version, is_serve=is_serve)
    parse = run_parser(prepared.words, version, is_serve=is_serve)
    problems = [*dropped, *parse.problems]
    if prepared.config is not None and not config_entries:
        problems.append(_missing_file(prepared.config))
    model = _model(parse, problems, argv, is_serve=is_serve)
    parse.stated.pop("model", None)
    args = ParsedArgs(
        version=version,
        stated=parse.stated,
        model=model,
        refused=(*prepared.refused, *parse.refused),
        problems=tuple(problems),
        unresolved=frozenset(parse.unresolved),
    )
    places = [word.location for word in (*argv, *words)]
    if not places:
        return args
    return replace(args, problems=(*problems, *unread_words(args, version, places[0])))


def _missing_file(word: Word) -> Problem:
    return Problem(
        ProblemKind.UNRESOLVED,
        f"--config {word.text}: the file is not among those given, its settings are not known",
        word.location,
        key="--config",
        value=word.text,
        expected="the file itself beside this one",
    )


def _model(
    parse: Parse, problems: list[Problem], argv: Sequence[Word], *, is_serve: bool
) -> Stated | None:
    word = parse.positional if is_serve else None
    if word is None:
        stated = parse.stated.get("model")
        if stated is None and "model" not in parse.unresolved and argv:
            problems.append(
                Problem(
                    ProblemKind.WARNING,
                    "no model is named: vLLM would serve its built-in default, a tiny one",
                    argv[0].location,
                    expected="vllm serve MODEL" if is_serve else "--model MODEL",
                )
            )
        return stated
    if word.unresolved:
        names = ", ".join(name for name in word.unresolved if name) or f"`{word.text}`"
        problems.append(
            Problem(
                ProblemKind.UNRESOLVED,
                f"the model is `{word.text}`: no value for {names} in the files given",
                word.location,
                key="model",
                value=word.text,
                expected=f"a value for {names}",
            )
        )
        parse.unresolved.add("model")
        return None
    return Stated(word.text, word.text, word.location, "model", f"line {word.location.line}")


def stated_from_kwargs(version: Version, /, **kwargs: object) -> ParsedArgs:
    """Settings given in Python, by destination name: ``max_model_len=8192``.

    Text is read as on the command line (``max_model_len="8k"``); ``None`` means not set.

    Raises:
        UnknownSettingError: no version of vLLM has a flag of that name.
    """
    stated: dict[str, Stated] = {}
    refused: list[tuple[str, Refusal]] = []
    model: Stated | None = None
    by_dest = flag_table(version).by_dest
    for dest, value in kwargs.items():
        name = "--" + dest.replace("_", "-")
        flag = by_dest.get(dest)
        if flag is None and not any(known.dest == dest for known in all_flags()):
            from difflib import get_close_matches

            close = get_close_matches(dest, by_dest, n=3)
            hint = f"; close names: {', '.join(close)}" if close else ""
            raise UnknownSettingError(f"vLLM has no setting {dest!r}{hint}")
        if value is None:
            continue
        if flag is None:
            headline = f"{dest} is not a setting of vllm {short(version)}"
            refused.append((dest, refusal(headline, f"unrecognized arguments: {name}", None)))
            continue
        is_text = isinstance(value, str) and not flag.is_list and not flag.is_switch
        try:
            parsed = parse_value(flag, str(value), None) if is_text else value
            if parsed is not None and not flag.is_switch and not isinstance(parsed, dict | list):
                parse_value(flag, str(parsed), flag.choices_at(flag_table(version).version))
        except ValueRefusedError as error:
            headline = f"{dest}={value!r}: not accepted"
            says = f"argument {'/'.join(flag.names)}: {error.says}"
            refused.append((dest, refusal(headline, says, None, error.expected)))
            continue
        entry = Stated(parsed, str(value), None, dest, "argument")
        if dest == "model":
            model = entry
        else:
            stated[dest] = entry
    return ParsedArgs(version=version, stated=stated, model=model, refused=tuple(refused))
