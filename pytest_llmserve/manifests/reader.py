"""The door of the room: one file in, one ``Reading`` out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.files import read_text
from pytest_llmserve.manifests.gathering import Gathering
from pytest_llmserve.manifests.launch import Reading
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Document, Mapping

_CONFLICT: Final = re.compile(r"^(<{7}|>{7}|\|{7}) ", re.MULTILINE)
_SHELL_SUFFIXES: Final = (".sh", ".bash", ".zsh", ".ksh", ".sbatch", ".slurm", ".command")
_YAML_SUFFIXES: Final = (".yaml", ".yml", ".json", ".tpl", ".template", ".j2")
_SHEBANG: Final = re.compile(r"#!.*\b(?:ba|z|da|k|a)?sh\b")
_GPU_COMMENT: Final = re.compile(
    r"#.*?\b((?:\d+ ?x ?)?(?:NVIDIA |AMD )?(?:[HAB]\d{2,3}0|GB\d00|GH200|L4|L40S?|T4|A10G?|V100"
    r"|MI\d{3}X?|RTX ?(?:PRO ?)?\d{4}))\b"
)
_MAX_NOTES: Final = 3


def read_file(path: Path, *, display: str | None = None) -> Reading:
    """All servers that one deployment file starts.

    Args:
        path: the file; others that it names are looked for beside it.
        display: the path as the user named it, used in locations; default: ``str(path)``.

    Returns:
        Launches, problems or both; never neither. Bad input is a problem, not an exception.
    """
    shown = str(path) if display is None else display
    text = read_text(Path(path), shown)
    if isinstance(text, Problem):
        return Reading(file=shown, problems=(text,))
    gathering = Gathering(Path(path), shown, notes=_gpu_notes(text))
    try:
        _read(text, gathering)
    except RecursionError:
        message = "nested too deeply to be read"
        gathering.problem(ProblemKind.UNREADABLE, message)
    if not gathering.launches and not gathering.problems:
        seen = "; ".join(gathering.ignored[:4]) or "an empty file"
        gathering.problem(ProblemKind.UNKNOWN, f"no server here: {seen}")
    return Reading(
        file=shown,
        launches=tuple(gathering.launches),
        problems=tuple(gathering.problems),
        ignored=tuple(gathering.ignored),
    )


def _read(text: str, gathering: Gathering) -> None:
    match = _CONFLICT.search(text)
    if match is not None:
        line = text.count("\n", 0, match.start()) + 1
        count = len(_CONFLICT.findall(text))
        message = f"unresolved merge conflict ({match[1]}, {count} markers): resolve it first"
        gathering.problem(ProblemKind.UNREADABLE, message, line)
        return
    from pytest_llmserve.manifests.forms import named_form

    name = gathering.path.name
    foreign = named_form(name, text)
    if foreign is not None:
        gathering.problem(ProblemKind.UNKNOWN, foreign)
    elif _is_script(name, text):
        _read_script(text, gathering)
    else:
        _read_yaml(text, gathering)


def _is_script(name: str, text: str) -> bool:
    lower = name.lower()
    if lower.endswith(_SHELL_SUFFIXES) or _SHEBANG.match(text):
        return True
    if lower.endswith(_YAML_SUFFIXES):
        return False
    from pytest_llmserve.manifests.servers import launch_line

    looks_like_yaml = re.search(r"(?m)^(?:apiVersion|kind|services|image):", text) is not None
    return launch_line(text) is not None and not looks_like_yaml


def _read_script(text: str, gathering: Gathering) -> None:
    from pytest_llmserve.manifests.script import read_script_file

    read_script_file(text, gathering)


def _read_yaml(text: str, gathering: Gathering) -> None:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Mapping, documents

    found = documents(text, gathering.file)
    objects = Objects(gathering)
    roots: list[Mapping] = []
    for document in found:
        if document.error is not None:
            _broken(document, gathering)
        elif isinstance(document.root, Mapping):
            roots.extend(_flattened(document.root))
        else:
            _no_mapping(document, gathering)
    for root in roots:
        objects.learn(root)
    for root in roots:
        _read_root(root, objects)


def _flattened(root: Mapping) -> list[Mapping]:
    """The object, or those of a ``List``."""
    if (root.text("kind") or "").endswith("List") and root.items("items"):
        return list(root.mappings("items"))
    return [root]


def _no_mapping(document: Document, gathering: Gathering) -> None:
    from pytest_llmserve.manifests.forms import template_sentence
    from pytest_llmserve.manifests.yaml_nodes import Scalar

    root = document.root
    what = "text" if isinstance(root, Scalar) else "a list"
    message = template_sentence(document.text) or (
        f"not a form that is known: the document is {what}; expected Kubernetes, compose,"
        " a vLLM --config file, or a shell script"
    )
    gathering.problem(ProblemKind.UNKNOWN, message, document.line)


def _broken(document: Document, gathering: Gathering) -> None:
    """One document that cannot be read: a template, a harmless object, or an error."""
    from pytest_llmserve.manifests.forms import HARMLESS_KINDS, template_sentence
    from pytest_llmserve.verdict import Location

    error = document.error
    if error is None:
        return
    place = Location(gathering.file, error.line, error.column)
    template = template_sentence(document.text)
    kind = document.kind_hint
    if template is not None:
        gathering.problem(ProblemKind.UNKNOWN, template, place)
    elif kind in HARMLESS_KINDS:
        message = f"{error} (in a {kind}, which holds no server: passed over)"
        gathering.problem(ProblemKind.WARNING, message, place)
    else:
        gathering.problem(ProblemKind.UNREADABLE, str(error), place)


def _read_root(root: Mapping, objects: Objects) -> None:
    from pytest_llmserve.manifests.forms import mapping_form, template_sentence
    from pytest_llmserve.manifests.vllm_config import looks_like_config

    gathering = objects.gathering
    if root.text("kind") is not None and root.get("apiVersion") is not None:
        _read_object(root, objects)
    elif root.mapping("services") is not None:
        from pytest_llmserve.manifests.compose import read_compose

        read_compose(root, gathering)
    elif looks_like_config(root):
        _read_config(root, gathering)
    else:
        message = template_sentence("\n".join(root.entries)) or mapping_form(
            root, gathering.path.name
        )
        gathering.problem(ProblemKind.UNKNOWN, message, root.location)


def _read_object(root: Mapping, objects: Objects) -> None:
    from pytest_llmserve.manifests.forms import HARMLESS_KINDS, kind_form, runs_servers
    from pytest_llmserve.manifests.kubernetes import WORKLOADS, read_workload

    gathering = objects.gathering
    kind = root.text("kind") or ""
    if kind in WORKLOADS:
        read_workload(root, objects)
    elif kind not in HARMLESS_KINDS and runs_servers(root):
        gathering.problem(ProblemKind.UNKNOWN, kind_form(kind), root.location)
    else:
        gathering.ignored.append(f"{kind} (line {root.line})")


def _read_config(root: Mapping, gathering: Gathering) -> None:
    from pytest_llmserve.manifests.launch import Launch
    from pytest_llmserve.manifests.servers import VLLM_SERVE
    from pytest_llmserve.manifests.vllm_config import mapping_entries

    gathering.launches.append(
        Launch(
            name=gathering.names.unique(gathering.path.stem),
            form="vllm config",
            location=root.location,
            runtime="vllm",
            entrypoint=VLLM_SERVE,
            config_entries=mapping_entries(root),
            notes=gathering.notes,
        )
    )


def _gpu_notes(text: str) -> tuple[str, ...]:
    """Comments that name a GPU: hints for people, never used for a verdict."""
    notes: dict[str, str] = {}
    for number, row in enumerate(text.split("\n"), start=1):
        match = _GPU_COMMENT.search(row) if "#" in row else None
        if match is not None and match[1] not in notes:
            notes[match[1]] = f"a comment in line {number} names {match[1]}"
    return tuple(notes.values())[:_MAX_NOTES]
