"""What can go wrong when a device is looked up."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (part of a public attribute's type)


class GpuCatalogueError(ValueError):
    """A part's file says something that cannot be: names file, key, value and what was expected."""

    def __init__(self, file: Path | str, key: str, value: object, expected: str) -> None:
        self.file = str(file)
        self.key = key
        self.value = value
        self.expected = expected
        place = f"{self.file}: {key}" if key else self.file
        super().__init__(f"{place}: {_shown(value)}, expected {expected}")


class GpuNameError(LookupError):
    """The common ancestor: a name that does not say which device it is.

    The message starts with the name; ``key``, the label or field it stood in, is for the caller to
    put before it, with file and line.
    """

    def __init__(self, message: str, *, name: str, key: str | None = None) -> None:
        self.name = name
        self.key = key
        super().__init__(message)


class AmbiguousGpu(GpuNameError):  # noqa: N818  (named for what the reader meets)
    """A name that several devices bear; ``candidates`` are their ids, all of which it may mean."""

    def __init__(
        self, message: str, *, name: str, key: str | None = None, candidates: tuple[str, ...]
    ) -> None:
        self.candidates = candidates
        super().__init__(message, name=name, key=key)


class UnknownGpu(GpuNameError):  # noqa: N818
    """A name that no known device bears; ``suggestions`` are the nearest ids, if any is near."""

    def __init__(
        self, message: str, *, name: str, key: str | None = None, suggestions: tuple[str, ...] = ()
    ) -> None:
        self.suggestions = suggestions
        super().__init__(message, name=name, key=key)


def _shown(value: object, limit: int = 80) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
