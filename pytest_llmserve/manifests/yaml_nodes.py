"""YAML as nodes that know their line: documents apart, raw scalars, duplicate keys refused.

Built from the event stream and not by ``yaml.load``: argv stays text (``0.90``, ``010``, ``on``
keep their spelling), one broken document does not hide the others, depth and the size of
expanded aliases are bounded, unknown tags do no harm, and an unrendered ``{{ value }}`` becomes
an unknown value in place of an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_llmserve.manifests.text import SourceText, unknown
from pytest_llmserve.manifests.yaml_places import scalar_source
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    import yaml

MAX_DEPTH: Final = 100
MAX_NODES: Final = 200_000  # with aliases written out
_MAX_RETRIES: Final = 50
_BOUNDARY: Final = re.compile(r"^(?:---|\.\.\.)(?=[ \t\n]|\Z)", re.MULTILINE)
_KIND: Final = re.compile(r"^kind:[ \t]*[\"']?([A-Za-z]+)", re.MULTILINE)
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


class YamlError(ValueError):
    """A document that cannot be read; ``line`` is 1-based in the file."""

    def __init__(self, message: str, line: int, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(slots=True, eq=False, repr=False)
class _Base:
    file: str
    line: int
    column: int
    size: int = field(default=1, kw_only=True, repr=False)

    @property
    def location(self) -> Location:
        """Where the node begins."""
        return Location(self.file, self.line, self.column)


@dataclass(slots=True, eq=False, repr=False)
class Scalar(_Base):
    """Raw text: quotes undone, nothing interpreted."""

    text: str
    style: str | None
    tag: str | None
    end_line: int
    lines: list[str] = field(repr=False)

    @property
    def is_plain(self) -> bool:
        """Written without quotes or block style: YAML may see a number, a switch or null."""
        return self.style is None and self.tag is None

    @property
    def is_null(self) -> bool:
        """``null``, ``~`` or nothing at all."""
        return self.is_plain and self.text in _NULLS

    def source(self) -> SourceText:
        """The text with the line of each of its characters."""
        return scalar_source(
            self.text, self.style, self.file, self.lines, self.line, self.column, self.end_line
        )


@dataclass(slots=True, eq=False, repr=False)
class Sequence(_Base):
    """A list."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False, repr=False)
class Mapping(_Base):
    """A mapping with scalar keys; merges (``<<``) are already in ``entries``."""

    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Location] = field(default_factory=dict)
    template: str | None = None
    """``{{ .Values.x }}`` where the whole node is one unrendered template."""

    def get(self, *path: str) -> Node | None:
        """The node at ``path``, or None where a step is missing or null."""
        node: Node | None = self
        for step in path:
            node = node.entries.get(step) if isinstance(node, Mapping) else None
        return None if isinstance(node, Scalar) and node.is_null else node

    def text(self, *path: str) -> str | None:
        """The scalar text at ``path``, or None."""
        node = self.get(*path)
        return node.text if isinstance(node, Scalar) else None

    def mapping(self, *path: str) -> Mapping | None:
        """The mapping at ``path``, or None."""
        node = self.get(*path)
        return node if isinstance(node, Mapping) else None

    def items(self, *path: str) -> list[Node]:
        """The list at ``path``; empty where there is none."""
        node = self.get(*path)
        return node.items if isinstance(node, Sequence) else []

    def mappings(self, *path: str) -> Iterator[Mapping]:
        """The mappings in the list at ``path``."""
        return (item for item in self.items(*path) if isinstance(item, Mapping))


Node: TypeAlias = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file: its root, or why it could not be read."""

    line: int
    text: str
    root: Node | None = None
    error: YamlError | None = None

    @property
    def kind_hint(self) -> str | None:
        """``kind:`` as text search finds it, for broken documents."""
        match = _KIND.search(self.text)
        return match[1] if match else None


def documents(text: str, file: str, *, line: int = 1, indent: int = 0) -> list[Document]:
    """The documents of a file; each is read on its own.

    Args:
        text: the whole stream.
        file: shown in locations.
        line: of the file, at which ``text`` begins.
        indent: columns of the file left of ``text`` (YAML inside a block of another file).
    """
    found: list[Document] = []
    lines = [""] * (line - 1) + [" " * indent + row for row in text.split("\n")]
    for start, chunk in _chunks(text):
        first = line + text.count("\n", 0, start)
        try:
            root = _read(chunk, file, first, lines, indent)
        except YamlError as error:
            found.append(Document(first, chunk, error=error))
        else:
            if root is not None and not (isinstance(root, Scalar) and root.is_null):
                found.append(Document(root.line, chunk, root))
    return found


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    starts = [0, *(match.start() for match in _BOUNDARY.finditer(text) if match.start())]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        chunk = text[start:end]
        if chunk.startswith("..."):
            start, chunk = start + 3, chunk[3:]
        directives = [row for row in chunk.split("\n") if row.strip() and row[0] not in "#%"]
        if directives:
            yield start, chunk


def _read(chunk: str, file: str, first_line: int, lines: list[str], indent: int) -> Node | None:
    import yaml

    for _ in range(_MAX_RETRIES):
        builder = _Builder(file, first_line, lines, indent)
        try:
            for event in yaml.parse(chunk, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                builder.feed(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            row = mark.line if mark else 0
            mended = _without_trailing_blanks(chunk, row)
            if mended is None:
                raise YamlError(_reason(error), first_line + row, _column(mark)) from None
            chunk = mended
        except yaml.YAMLError as error:
            reason = getattr(error, "reason", None) or "unreadable character"
            position = getattr(error, "position", 0) or 0
            row = chunk.count("\n", 0, position) if position <= len(chunk) else 0
            raise YamlError(f"not valid YAML: {reason}", first_line + row) from None
        else:
            return builder.root
    raise YamlError("tabs where YAML takes none", first_line)


def _without_trailing_blanks(chunk: str, row: int) -> str | None:
    """The chunk without blanks at the end of line ``row``: PyYAML refuses tabs that Go takes."""
    rows = chunk.split("\n")
    if row >= len(rows) or not rows[row].endswith("\t"):
        return None
    rows[row] = rows[row].rstrip(" \t")
    return "\n".join(rows)


def _reason(error: yaml.MarkedYAMLError) -> str:
    parts = [str(part) for part in (error.context, error.problem) if part]
    return "not valid YAML: " + ", ".join(parts)


def _column(mark: yaml.Mark | None) -> int | None:
    return None if mark is None else mark.column + 1


class _Builder:
    """Turns events into nodes; ``root`` is the document's root or None."""

    def __init__(self, file: str, first_line: int, lines: list[str], indent: int) -> None:
        self.file = file
        self.first_line = first_line
        self.lines = lines
        self.indent = indent
        self.root: Node | None = None
        self.stack: list[Sequence | Mapping] = []
        self.pending: list[Scalar | None] = []  # the key that waits for its value
        self.merges: list[list[Node]] = []
        self.anchors: dict[str, Node] = {}

    def feed(self, event: Any) -> None:
        """Take the next event; typed loosely because PyYAML's stubs leave its fields out."""
        name = type(event).__name__
        if name == "ScalarEvent":
            self._scalar(event)
        elif name in ("MappingStartEvent", "SequenceStartEvent"):
            self._open(event, is_mapping=name == "MappingStartEvent")
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            self._close()
        elif name == "AliasEvent":
            self._alias(event)

    def _place(self, event: Any) -> tuple[int, int]:
        mark = event.start_mark
        return self.first_line + mark.line, mark.column + 1 + self.indent

    def _scalar(self, event: Any) -> None:
        line, column = self._place(event)
        end_line = self.first_line + event.end_mark.line
        style, tag = event.style or None, event.tag
        text = event.value
        node = Scalar(self.file, line, column, text, style, tag, end_line, self.lines)
        if event.anchor:
            self.anchors[event.anchor] = node
        self._attach(node)

    def _open(self, event: Any, *, is_mapping: bool) -> None:
        line, column = self._place(event)
        if len(self.stack) >= MAX_DEPTH:
            raise YamlError(f"nested deeper than {MAX_DEPTH} levels", line)
        node: Mapping | Sequence = (Mapping if is_mapping else Sequence)(self.file, line, column)
        if event.anchor:
            self.anchors[event.anchor] = node
        self.stack.append(node)
        self.pending.append(None)
        self.merges.append([])

    def _close(self) -> None:
        node = self.stack.pop()
        self.pending.pop()
        merges = self.merges.pop()
        if isinstance(node, Mapping):
            for merged in merges:
                _merge(node, merged)
            if node.template is not None and not node.entries and self.stack:
                self._attach(self._template(node))
                return
        self._attach(node)

    def _template(self, node: Mapping) -> Scalar:
        text = unknown(f"{{{{ {node.template} }}}}")
        return Scalar(self.file, node.line, node.column, text, "'", None, node.line, self.lines)

    def _alias(self, event: Any) -> None:
        line, column = self._place(event)
        node = self.anchors.get(event.anchor)
        if node is None:
            raise YamlError(f"alias *{event.anchor} has no anchor &{event.anchor}", line, column)
        if any(node is parent for parent in self.stack):
            raise YamlError(f"alias *{event.anchor} stands inside its own anchor", line, column)
        self._attach(node, line)

    def _attach(self, node: Node, line: int | None = None) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        parent.size += node.size
        if parent.size > MAX_NODES:
            raise YamlError(f"aliases expand to more than {MAX_NODES:,} values", line or node.line)
        if isinstance(parent, Sequence):
            parent.items.append(node)
            return
        key = self.pending[-1]
        if key is None:
            self.pending[-1] = self._key(parent, node)
        else:
            self.pending[-1] = None
            if key.text == "<<" and key.is_plain:
                self.merges[-1].append(node)
            elif key.tag != "template":
                _insert(parent, key, node)

    def _key(self, parent: Mapping, node: Node) -> Scalar:
        if isinstance(node, Scalar):
            return node
        if isinstance(node, Mapping) and not parent.entries and len(node.entries) == 1:
            name, value = next(iter(node.entries.items()))
            if isinstance(value, Scalar) and value.is_null:
                parent.template = name  # {{ name }}: a template where a value should stand
                return Scalar(
                    self.file, node.line, node.column, name, None, "template", node.line, []
                )
        what = "mapping" if isinstance(node, Mapping) else "list"
        raise YamlError(f"a {what} is used as a key", node.line, node.column)


def _insert(parent: Mapping, key: Scalar, node: Node) -> None:
    name = key.text
    if name in parent.entries:
        first = parent.keys[name].line
        message = f"key {name!r} stands twice in one mapping (first in line {first})"
        raise YamlError(message, key.line, key.column)
    parent.entries[name] = node
    parent.keys[name] = key.location


def _merge(into: Mapping, merged: Node) -> None:
    sources = merged.items if isinstance(merged, Sequence) else [merged]
    for source in sources:
        if not isinstance(source, Mapping):
            raise YamlError("'<<' merges mappings only", merged.line, merged.column)
        for name, value in source.entries.items():
            if name not in into.entries:
                into.entries[name] = value
                into.keys[name] = source.keys[name]
