"""Pod templates that refer to another one and patch it: containers merge by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.yaml_nodes import Mapping, Sequence

if TYPE_CHECKING:
    from pytest_llmserve.manifests.yaml_nodes import Node

# Lists of objects that Kubernetes merges by this key; every other list is replaced whole.
_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}


def merged(base: Mapping, patch: Mapping) -> Mapping:
    """``base`` with ``patch`` laid over it (a strategic merge); each part keeps its lines."""
    result = Mapping(patch.file, patch.line, patch.column)
    result.entries, result.keys = dict(base.entries), dict(base.keys)
    for key, value in patch.entries.items():
        result.entries[key] = _over(base.entries.get(key), value, key)
        result.keys[key] = patch.keys.get(key, value.location)
    return result


def _over(base: Node | None, patch: Node, key: str) -> Node:
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        return merged(base, patch)
    name = _KEYS.get(key)
    if name is None or not isinstance(base, Sequence) or not isinstance(patch, Sequence):
        return patch
    result = Sequence(patch.file, patch.line, patch.column)
    patches = {i.text(name): i for i in patch.items if isinstance(i, Mapping)}
    for item in base.items:
        own = patches.pop(item.text(name), None) if isinstance(item, Mapping) else None
        is_pair = own is not None and isinstance(item, Mapping)
        result.items.append(merged(item, own) if is_pair else item)  # type: ignore[arg-type]
    result.items.extend(patches.values())
    return result
