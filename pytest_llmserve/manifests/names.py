"""Names of servers: unique in their file."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Names:
    """Hands out names; a name asked for again gets ``-2``, ``-3``..."""

    _taken: set[str] = field(default_factory=set)

    def unique(self, name: str) -> str:
        """``name``, or the first free ``name-N``."""
        candidate, number = name, 1
        while candidate in self._taken:
            number += 1
            candidate = f"{name}-{number}"
        self._taken.add(candidate)
        return candidate
