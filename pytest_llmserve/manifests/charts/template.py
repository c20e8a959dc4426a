"""A Helm template by itself: read without running Helm, values looked up where a file has them.

Lines of control (``if``, ``range``, ``define``) are blanked so that lines keep their numbers;
``{{ .Values.a.b }}`` becomes its value where ``values.yaml`` lies beside the template or above it,
and an unknown value elsewhere. What only Helm can decide is named.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.manifests.files import read_text
from pytest_llmserve.manifests.text import unknown
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.gathering import Gathering

_ACTION: Final = re.compile(
    r"\{\{-?\s*((?:`[^`]*`|\"[^\"\n]*\"|[^{}`\"]|\{[^{]|\}(?!\}))*?)\s*-?\}\}"
)
_RAW: Final = re.compile(r"\{\{-?\s*`([^`]*)`\s*-?\}\}")
_CONTROL: Final = re.compile(
    r"(if|else|range|with|end|define|block|include|template|/\*|\$\w+\s*:?=)\b|/\*"
)
_PATH: Final = re.compile(r"\.Values\.([\w.-]+)")
_DEFAULT: Final = re.compile(r"\bdefault\s+(\"[^\"]*\"|'[^']*'|[\w.-]+)")
_SAFE_PIPES: Final = frozenset({"quote", "squote", "toString", "int", "int64", "float64", "trim"})
_MAX_SHOWN: Final = 6


@dataclass(slots=True)
class _State:
    """Open blocks: whether their lines count, and what only Helm can decide."""

    values: dict[str, Any]
    open_: list[tuple[str, bool]] = field(default_factory=list)
    decided_by_helm: list[int] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        """Whether the lines here are kept."""
        return all(live for _, live in self.open_)


def is_template(text: str, *, is_broken: bool) -> bool:
    """Whether a text needs Helm: lines of control, or values that break the YAML."""
    for match in _ACTION.finditer(text):
        is_value = ".Values" in match[1] or ".Release" in match[1]
        if _CONTROL.match(match[1]) or (is_broken and is_value):
            return True
    return False


def rendered_by_reading(text: str, gathering: Gathering) -> str:
    """The template as YAML of the same lines; what stays open is a problem of the file."""
    state = _State(_values(gathering))
    rows = [_row(row, number, state) for number, row in enumerate(text.split("\n"), start=1)]
    if state.decided_by_helm:
        lines = list(dict.fromkeys(state.decided_by_helm))
        shown = ", ".join(map(str, lines[:_MAX_SHOWN])) + (
            ", ..." if len(lines) > _MAX_SHOWN else ""
        )
        message = (
            f"a Helm template, read without Helm: what the lines {shown} put in or leave out is not"
            ' known; give the output of `helm template`, or allow it (render = ["helm"])'
        )
        place = Location(gathering.file, lines[0])
        gathering.problems.append(Problem(ProblemKind.UNRESOLVED, message, place))
    return "\n".join(rows)


def _values(gathering: Gathering) -> dict[str, Any]:
    from pytest_llmserve.manifests.vllm_config import node_value
    from pytest_llmserve.manifests.yaml_nodes import Mapping, documents

    for folder in (gathering.path.parent, gathering.path.parent.parent):
        path = folder / "values.yaml"
        if not path.is_file():
            continue
        text = read_text(path, str(path))
        for document in documents(text, str(path)) if isinstance(text, str) else ():
            if isinstance(document.root, Mapping):
                value = node_value(document.root, "", {})
                return value if isinstance(value, dict) else {}
    return {}


def _row(row: str, number: int, state: _State) -> str:
    if "{{" not in row:
        return row if state.is_live else ""
    row = _RAW.sub(lambda m: _plain(m[1]), row)
    actions = [m[1] for m in _ACTION.finditer(row)]
    rest = _ACTION.sub("", row).strip()
    if not rest and any(_CONTROL.match(action) for action in actions):
        for action in actions:
            _control(action, number, state)
        return ""
    if not state.is_live:
        return ""
    return _ACTION.sub(lambda m: _inline(m[1], number, state), row)


def _control(action: str, number: int, state: _State) -> None:
    word = (re.match(r"\w+|/\*", action) or re.match("", action))[0]  # type: ignore[index]
    if word in ("if", "with"):
        truth = _truth(action.removeprefix(word).strip(), state.values)
        if truth is None:
            state.decided_by_helm.append(number)
        state.open_.append((word, truth is not False))
    elif word in ("range", "define", "block"):
        if word == "range" and state.is_live and not _is_empty(action, state.values):
            state.decided_by_helm.append(number)
        state.open_.append((word, False))
    elif word == "else" and state.open_:
        kind, live = state.open_.pop()
        state.open_.append((kind, not live))
    elif word == "end" and state.open_:
        state.open_.pop()


def _is_empty(action: str, values: dict[str, Any]) -> bool:
    match = _PATH.search(action)
    return match is not None and bool(values) and not _look_up(match[1], values)


def _truth(condition: str, values: dict[str, Any]) -> bool | None:
    """Whether a plain ``.Values.a.b`` (or ``not`` of it) holds; None where only Helm knows."""
    match = re.fullmatch(r"(not\s+)?\.Values\.([\w.-]+)", condition)
    if match is None or not values:
        return None
    is_true = bool(_look_up(match[2], values))
    return not is_true if match[1] else is_true


def _look_up(path: str, values: dict[str, Any]) -> Any:
    node: Any = values
    for step in path.split("."):
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _inline(action: str, number: int, state: _State) -> str:
    """What stands in a value's place."""
    head, *pipes = [part.strip() for part in action.split("|")]
    match = _PATH.fullmatch(head.removeprefix("toYaml ").strip())
    is_block = "toYaml" in action or "include" in action or "nindent" in action
    value = _look_up(match[1], state.values) if match else None
    if value is None and match is not None and not is_block:
        default = next((d for pipe in pipes if (d := _DEFAULT.search(pipe))), None)
        value = default[1].strip("\"'") if default else None
    names = {pipe.split()[0] for pipe in pipes if pipe}
    if value is not None and is_block and match is not None:
        return json.dumps(value)
    if (
        value is not None
        and names <= {*_SAFE_PIPES, "default"}
        and not isinstance(value, dict | list)
    ):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return json.dumps(text) if "quote" in names else text
    if is_block:
        state.decided_by_helm.append(number)
        return ""
    return _plain(action)


def _plain(action: str) -> str:
    """An unknown value that YAML takes anywhere: the action's first path."""
    match = re.search(r"\$?\.[\w.-]+", action)
    return unknown(match[0] if match else re.sub(r"[^\w .-]", "", action).strip() or "template")
