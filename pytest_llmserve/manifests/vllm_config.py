"""vLLM's ``--config`` YAML: as a file of its own, and as the file that a command line names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.launch import ConfigEntry
from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.text import SourceText, is_unknown, shown, unknown_names
from pytest_llmserve.manifests.variables import mark_templates
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence, documents
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.yaml_nodes import Node

# Flags of `vllm serve` that other runtimes' config files do not know by this name.
_OWN_KEYS: Final = frozenset(
    {"tensor-parallel-size", "pipeline-parallel-size", "max-model-len", "gpu-memory-utilization"}
    | {"max-num-seqs", "max-num-batched-tokens", "enable-prefix-caching", "enable-chunked-prefill"}
    | {"enforce-eager", "kv-transfer-config", "compilation-config", "limit-mm-per-prompt"}
    | {
        "speculative-config",
        "no-enable-prefix-caching",
        "enable-expert-parallel",
        "async-scheduling",
    }
)
_FOREIGN_KEYS: Final = frozenset(
    {"model-path", "mem-fraction-static", "tp-size", "context-length", "kv-cache-config"}
    | {"cuda-graph-config", "max-batch-size", "moe-config", "services", "kind", "resources"}
    | {"servers", "engines", "containers", "image", "args", "llm-api-args"}
)


def looks_like_config(root: Mapping) -> bool:
    """Whether a top-level mapping is a ``--config`` file: flags as keys, one of them vLLM's."""
    keys = {key.replace("_", "-").partition(".")[0] for key in root.entries}
    return not keys.isdisjoint(_OWN_KEYS) and keys.isdisjoint(_FOREIGN_KEYS)


def config_entries(source: SourceText) -> tuple[tuple[ConfigEntry, ...], tuple[Problem, ...]]:
    """The keys of a ``--config`` file in file order, and what cannot be read of it."""
    lines = _Lines(source)
    found = documents(mark_templates(source).text, source.file)
    if not found:
        return (), ()
    document = found[0]
    if document.error is not None:
        place = lines.at(document.error.line, document.error.column)
        return (), (Problem(ProblemKind.UNREADABLE, str(document.error), place),)
    if not isinstance(document.root, Mapping):
        message = "a --config file must be a mapping of flag names to values"
        return (), (Problem(ProblemKind.REFUSED, message, lines.at(document.line, 1)),)
    return mapping_entries(document.root, lines), ()


def mapping_entries(root: Mapping, lines: _Lines | None = None) -> tuple[ConfigEntry, ...]:
    """The keys of a parsed ``--config`` mapping, each at its own line."""
    entries = []
    for key, node in root.entries.items():
        place = root.keys[key]
        if lines is not None:
            place = lines.at(place.line, place.column)
        names: dict[str, None] = {}
        value = node_value(node, key, names)
        entries.append(ConfigEntry(key, value, place, tuple(names)))
    return tuple(entries)


class _Lines:
    """Places of a text that was itself cut out of a file."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.offsets = [0]
        for row in source.text.split("\n"):
            self.offsets.append(self.offsets[-1] + len(row) + 1)

    def at(self, line: int, column: int | None) -> Location:
        offset = self.offsets[min(line, len(self.offsets)) - 1]
        return self.source.at(offset + (column or 1) - 1)


def node_value(node: Node, key: str, names: dict[str, None]) -> object:
    """A node as plain data; unknown names are added to ``names``, secrets are masked."""
    if isinstance(node, Sequence):
        return [node_value(item, key, names) for item in node.items]
    if isinstance(node, Mapping):
        return {name: node_value(item, name, names) for name, item in node.entries.items()}
    if is_unknown(node.text):
        names.update(dict.fromkeys(unknown_names(node.text)))
        return shown(node.text)
    value = python_value(node)
    return masked(key, value) if isinstance(value, str) else value


def python_value(node: Scalar) -> object:
    """What PyYAML would make of the scalar: ``on`` is True, ``010`` is 8, ``1e3`` is text."""
    if not node.is_plain:
        return node.text
    if node.is_null:
        return None
    import yaml

    try:
        value = yaml.load(node.text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError):
        return node.text
    return value if isinstance(value, bool | int | float) else node.text
