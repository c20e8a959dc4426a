"""What can go wrong when a model is looked up or its config is read."""

from __future__ import annotations


class ModelError(ValueError):
    """The common ancestor: a model whose size is not known."""


class UnsupportedModel(ModelError):  # noqa: N818  (named for what the reader meets)
    """The config is well formed, but its architecture is not understood: it is not sized."""


class BadConfig(ModelError):  # noqa: N818
    """A config file says something that cannot be.

    The message names the file, the key, the value and what was expected.
    """

    def __init__(self, file: str, key: str, value: object, expected: str) -> None:
        self.file = file
        self.key = key
        self.value = value
        self.expected = expected
        shown = "missing" if value is MISSING else _shorten(repr(value))
        super().__init__(f"{file}: {key}: {shown}, expected {expected}")


class ModelNotFound(ModelError):  # noqa: N818
    """No config was found; the message lists the places looked at and what to do."""


class _Missing:
    """The value of a key that is not there."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def _shorten(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
