"""Typed access to a ``config.json``: a key or one of its other names, then the class default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_llmserve.models.errors import MISSING, BadConfig

# A config that asks for more is a typing slip, and building it would only burn memory.
_MAX_SIZE: Final = 1 << 40
_MAX_LAYERS: Final = 4096
_EMPTY: Final[Mapping[str, Any]] = {}


class Fields:
    """One level of a config, with the defaults of its transformers class behind it.

    Args:
        values: the JSON object.
        file: what messages call the file.
        defaults: what the class fills in for an absent key.
        path: the keys that led here, for messages (``text_config.``).
    """

    __slots__ = ("defaults", "file", "path", "values")

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        file: str,
        defaults: Mapping[str, Any] = _EMPTY,
        path: str = "",
    ) -> None:
        self.values = values
        self.file = file
        self.defaults = defaults
        self.path = path

    def bad(self, key: str, value: object, expected: str) -> BadConfig:
        """The error for one key of this level."""
        return BadConfig(self.file, f"{self.path}{key}", value, expected)

    def has(self, key: str) -> bool:
        """Whether the file itself has the key, null or not."""
        return key in self.values

    def value(self, *keys: str) -> Any:
        """The first key with a value, else the class default, else ``None``.

        A null in the file stands: the class default is for absent keys only.
        """
        for key in keys:
            found = self.values.get(key)
            if found is not None:
                return found
        if any(key in self.values for key in keys):
            return None
        return next((self.defaults[key] for key in keys if key in self.defaults), None)

    def size(self, *keys: str, default: int | None = None) -> int:
        """A positive integer; without a value, ``default``.

        Raises:
            BadConfig: it is missing, no integer or not positive.
        """
        found = self.count(*keys, default=default)
        if found < 1:
            raise self.bad(self._spelling(keys), found, "a positive integer")
        return found

    def count(self, *keys: str, default: int | None = None) -> int:
        """An integer that is not negative; without a value, ``default``."""
        found = self.value(*keys)
        if found is None:
            if default is None:
                raise self.bad(keys[0], MISSING, "an integer")
            return default
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < _MAX_SIZE:
            raise self.bad(self._spelling(keys), found, "an integer of at least 0")
        return found

    def optional_size(self, *keys: str) -> int | None:
        """A positive integer, or ``None`` where the key is absent, null or 0."""
        return None if self.value(*keys) is None else (self.count(*keys) or None)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """A boolean."""
        found = self.value(*keys)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.bad(self._spelling(keys), found, "true or false")
        return found

    def number(self, *keys: str, default: float | None = None) -> float:
        """A finite number."""
        found = self.value(*keys)
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float):
            shown = MISSING if found is None else found
            raise self.bad(self._spelling(keys), shown, "a number")
        number = float(found)
        if number != number or abs(number) == float("inf"):
            raise self.bad(self._spelling(keys), found, "a finite number")
        return number

    def text(self, *keys: str) -> str | None:
        """A string, or ``None``."""
        found = self.value(*keys)
        if found is not None and not isinstance(found, str):
            raise self.bad(self._spelling(keys), found, "a string")
        return found

    def items(self, *keys: str) -> Sequence[Any] | None:
        """A list, or ``None``."""
        found = self.value(*keys)
        if found is not None and not isinstance(found, list | tuple):
            raise self.bad(self._spelling(keys), found, "a list")
        return found

    def integers(self, key: str) -> list[int] | None:
        """A list of integers that are not negative, or ``None``."""
        found = self.items(key)
        if found is None:
            return None
        for item in found:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < _MAX_SIZE:
                raise self.bad(key, found, "a list of integers")
        return list(found)

    def is_auto(self, key: str) -> bool:
        """Whether a size is left to the class: absent, null or ``auto``."""
        found = self.value(key)
        return found is None or found == "auto"

    def object(self, *keys: str) -> Mapping[str, Any] | None:
        """An object, or ``None``."""
        found = self.value(*keys)
        if found is not None and not isinstance(found, Mapping):
            raise self.bad(self._spelling(keys), found, "an object")
        return found

    def nested(self, key: str, defaults: Mapping[str, Any] = _EMPTY) -> Fields:
        """The object under ``key``; absent or null reads as an empty one."""
        values = self.values.get(key)
        if values is not None and not isinstance(values, Mapping):
            raise self.bad(key, values, "an object")
        path = f"{self.path}{key}."
        return Fields(values or _EMPTY, file=self.file, defaults=defaults, path=path)

    def num_layers(self, *other_names: str) -> int:
        """The layer count, within reason."""
        return self.layer_count("num_hidden_layers", *other_names)

    def layer_count(self, *keys: str) -> int:
        """The layer count under these keys only, within reason."""
        found = self.size(*keys)
        if found > _MAX_LAYERS:
            raise self.bad(self._spelling(keys), found, f"at most {_MAX_LAYERS} layers")
        return found

    def _spelling(self, keys: tuple[str, ...]) -> str:
        return next((key for key in keys if self.values.get(key) is not None), keys[0])
