"""Fields: words on their way through quoting and substitution; ``Word`` is what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmserve.manifests.launch import Word
from pytest_llmserve.manifests.secrets import masked, masked_argv, masked_text
from pytest_llmserve.manifests.text import SourceText, shown, unknown_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_llmserve.verdict import Location


@dataclass(frozen=True, slots=True)
class Field:
    """One word with its unknown parts still marked, and its own text-to-file map."""

    source: SourceText

    @property
    def text(self) -> str:
        """The word, unknown parts marked."""
        return self.source.text

    @property
    def location(self) -> Location:
        """Where its first character was written."""
        return self.source.at(0)


def field(text: str, location: Location) -> Field:
    """A word that all comes from one place."""
    return Field(SourceText.at_place(text, location))


def word(item: Field) -> Word:
    """The finished word; secrets in URLs are masked."""
    return Word(masked_text(shown(item.text)), item.location, unknown_names(item.text))


def argument_words(fields: Sequence[Field]) -> tuple[Word, ...]:
    """Finished arguments; values of secret flags are masked."""
    texts = masked_argv([shown(item.text) for item in fields])
    return tuple(
        Word(text, item.location, unknown_names(item.text))
        for text, item in zip(texts, fields, strict=True)
    )


def environment_words(
    values: Mapping[str, str], places: Mapping[str, Location], default: Location
) -> dict[str, Word]:
    """Environment as words; values of secret names are masked."""
    return {
        name: Word(masked(name, shown(value)), places.get(name, default), unknown_names(value))
        for name, value in values.items()
    }


def texts(fields: Iterable[Field]) -> list[str]:
    """The words' texts, unknown parts marked."""
    return [item.text for item in fields]
