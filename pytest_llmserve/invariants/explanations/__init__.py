"""What each invariant means, as text beside the code: ``--llmserve-explain`` and the docs pages.

``python -m pytest_llmserve.invariants.explanations docs/invariants`` writes the pages anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pytest_llmserve.invariants.names import NAMES

FOLDER: Final = Path(__file__).parent
ACCEPTING: Final = "accepting.md"
"""Ends the texts of what is judged server by server, with ``{id}`` and ``{name}`` filled in."""
_OF_FILES: Final = ("LLM001", "LLM4", "LLM5")
"""About files and the policy: their own texts say how they are accepted."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One invariant in words: ``statement`` is what must hold, ``markdown`` all of the text."""

    id: str
    name: str
    statement: str
    markdown: str


@cache
def explanation(id_: str) -> Explanation:
    """The text of one invariant.

    Raises:
        KeyError: there is no invariant of this id.
    """
    name = NAMES[id_]
    own = (FOLDER / f"{id_}.md").read_text(encoding="utf-8")
    shared = ""
    if not id_.startswith(_OF_FILES):
        shared = (FOLDER / ACCEPTING).read_text(encoding="utf-8")
    title, _, rest = own.partition("\n\n")
    if title != f"# {id_} {name}":
        raise ValueError(f"{id_}.md: expected the title '# {id_} {name}', got {title!r}")
    statement = " ".join(rest.partition("\n\n")[0].split())
    text = f"{own}{shared.replace('{id}', id_).replace('{name}', name)}"
    return Explanation(id_, name, statement, text)


def write_pages(folder: Path) -> None:
    """A page an invariant, and an index of them."""
    folder.mkdir(parents=True, exist_ok=True)
    index = ["# Invariants", ""]
    for id_, name in NAMES.items():
        text = explanation(id_)
        (folder / f"{id_}-{name}.md").write_text(text.markdown, encoding="utf-8")
        index.append(f"- [{id_} {name}]({id_}-{name}.md): {text.statement}")
    (folder / "README.md").write_text("\n".join(index) + "\n", encoding="utf-8")
