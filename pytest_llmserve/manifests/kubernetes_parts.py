"""Parts of a Kubernetes container: command and args, environment, image, mounted files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.text import unknown
from pytest_llmserve.manifests.variables import (
    expand_kubelet,
    mark_placeholders,
    mark_templates,
)
from pytest_llmserve.manifests.words import Field
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_llmserve.manifests.gathering import Gathering
    from pytest_llmserve.manifests.text import SourceText
    from pytest_llmserve.manifests.yaml_nodes import Node

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh"})


@dataclass(slots=True)
class Objects:
    """All objects of one file, and what is gathered from them."""

    gathering: Gathering
    config_maps: dict[str, Mapping] = field(default_factory=dict)
    named: dict[tuple[str, str], Mapping] = field(default_factory=dict)
    """Every object by kind and name: forms join what stands in one file."""

    def learn(self, root: Mapping) -> None:
        """Remember an object: pods take environment and files from ConfigMaps of the same file."""
        name = root.text("metadata", "name")
        kind = root.text("kind")
        if not name or not kind:
            return
        self.named.setdefault((kind, name), root)
        data = root.mapping("data")
        if kind == "ConfigMap" and data is not None:
            self.config_maps[name] = data

    def find(self, kinds: tuple[str, ...], name: str) -> Mapping | None:
        """An object of this file, or of a file in the same folder that names it."""
        for kind in kinds:
            if (kind, name) in self.named:
                return self.named[kind, name]
        from pytest_llmserve.manifests.neighbours import object_beside

        return object_beside(self.gathering, kinds, name)


def image_field(node: Node | None) -> Field | None:
    """The image; a placeholder (``IMAGE_NAME``, ``${IMAGE}``) is an unknown value."""
    if not isinstance(node, Scalar):
        return None
    source = mark_placeholders(node.source())
    text = source.text
    if text.isupper() and text.replace("_", "").isalnum():  # image names are lower case
        source = source.replaced([(0, len(text), unknown(text))])
    return Field(source)


def container_words(
    node: Mapping, key: str, environment: dict[str, str], problems: list[Problem]
) -> list[Field] | None:
    """``command`` or ``args`` as fields; None where the key is absent or empty."""
    value = node.get(key)
    if value is None:
        return None
    if isinstance(value, Scalar):
        message = f"{key} is a string; Kubernetes takes a list of strings only"
        problems.append(
            Problem(ProblemKind.REFUSED, message, value.location, key=key, expected=f"{key}: [...]")
        )
        return _split(value, environment)
    if not isinstance(value, Sequence):
        message = f"{key} is a mapping; expected a list of strings"
        problems.append(Problem(ProblemKind.REFUSED, message, value.location, key=key))
        return None
    scalars = [item for item in value.items if isinstance(item, Scalar)]
    is_script = any(_runs_script(item.text) for item in scalars) or _is_shell(node)
    fields = []
    for item in scalars:
        if _is_typed(item):
            problems.append(_not_a_string(item, key))
        source = expand_kubelet(item.source(), environment)
        is_text = is_script and ("\n" in source.text or " " in source.text)
        fields.append(Field((mark_templates if is_text else mark_placeholders)(source)))
    return fields or None


def _runs_script(text: str) -> bool:
    return text.rsplit("/", 1)[-1] in _SHELLS


def _is_shell(node: Mapping) -> bool:
    return any(_runs_script(i.text) for i in node.items("command") if isinstance(i, Scalar))


def _split(value: Scalar, environment: dict[str, str]) -> list[Field]:
    from pytest_llmserve.manifests.command_words import split_command
    from pytest_llmserve.manifests.shell_tokens import ShellError

    source = expand_kubelet(value.source(), environment)
    try:
        return split_command(source)[0]
    except ShellError:
        return [Field(mark_placeholders(source))]


def _is_typed(item: Scalar) -> bool:
    from pytest_llmserve.manifests.vllm_config import python_value

    text = item.text
    is_candidate = item.is_plain and (text[:1].isdigit() or text[:1] in "-.~" or len(text) < 6)
    return is_candidate and not isinstance(python_value(item), str)


def _not_a_string(item: Scalar, key: str) -> Problem:
    message = f"{key} holds {item.text} without quotes: Kubernetes takes strings only"
    return Problem(
        ProblemKind.REFUSED,
        message,
        item.location,
        key=key,
        value=item.text,
        expected=f'"{item.text}"',
    )


def environment(
    node: Mapping, injected: dict[str, str], objects: Objects, problems: list[Problem]
) -> tuple[dict[str, str], dict[str, Location]]:
    """The container's variables, later ones over earlier ones, ``$(VAR)`` expanded."""
    values = dict(injected)
    places: dict[str, Location] = {}
    for source in node.mappings("envFrom"):
        data = objects.config_maps.get(source.text("configMapRef", "name") or "")
        prefix = source.text("prefix") or ""
        for name, item in data.entries.items() if data is not None else ():
            if isinstance(item, Scalar):
                values[prefix + name] = masked(name, item.text)
                places[prefix + name] = item.location
    for entry in node.mappings("env"):
        variable = entry.text("name")
        if variable is None:
            continue
        places[variable] = entry.location
        value = entry.entries.get("value")
        if isinstance(value, Scalar) and _is_typed(value) and not value.is_null:
            problems.append(_not_a_string(value, f"env {variable}"))
        values[variable] = masked(variable, _value(variable, value, entry, values, objects))
    return values, places


def _value(
    name: str, value: Node | None, entry: Mapping, values: dict[str, str], objects: Objects
) -> str:
    if isinstance(value, Scalar):
        if value.is_null:
            return ""
        return mark_templates(expand_kubelet(value.source(), values)).text
    reference = entry.mapping("valueFrom", "configMapKeyRef")
    if reference is not None:
        data = objects.config_maps.get(reference.text("name") or "")
        item = data.get(reference.text("key") or "") if data is not None else None
        if isinstance(item, Scalar):
            return item.text
    return unknown(f"$({name})") if entry.get("valueFrom") is not None else ""


def mounted_files(node: Mapping, pod: Mapping, objects: Objects) -> dict[str, SourceText]:
    """Files of ConfigMaps of the same file, under the paths where the container sees them."""
    files: dict[str, SourceText] = {}
    volumes = {volume.text("name"): volume for volume in pod.mappings("volumes")}
    for mount in node.mappings("volumeMounts"):
        volume = volumes.get(mount.text("name"))
        path = mount.text("mountPath")
        if volume is None or path is None:
            continue
        data = objects.config_maps.get(volume.text("configMap", "name") or "")
        if data is not None:
            renamed = {i.text("key"): i.text("path") for i in volume.mappings("configMap", "items")}
            files.update(_mounted(data, path, mount.text("subPath"), renamed))
    return files


def _mounted(
    data: Mapping, path: str, sub_path: str | None, renamed: dict[str | None, str | None]
) -> Iterable[tuple[str, SourceText]]:
    for key, item in data.entries.items():
        name = renamed.get(key, None if renamed else key)
        if not isinstance(item, Scalar) or name is None:
            continue
        if sub_path is None:
            yield f"{path.rstrip('/')}/{name}", item.source()
        elif sub_path == name:
            yield path, item.source()
