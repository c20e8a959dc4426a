"""The door of the room: one file in, one ``Reading`` out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.files import read_text
from pytest_llmserve.manifests.gathering import Gathering
from pytest_llmserve.manifests.launch import NO_SERVER, Reading
from pytest_llmserve.manifests.options import NO_OPTIONS, ReadOptions
from pytest_llmserve.verdict import Location, Problem, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.options import OwnForm
    from pytest_llmserve.manifests.yaml_nodes import Document, Mapping, Sequence

_CONFLICT: Final = re.compile(r"^(<{7}|>{7}|\|{7}) ", re.MULTILINE)
_SHELL_SUFFIXES: Final = (".sh", ".bash", ".zsh", ".ksh", ".sbatch", ".slurm", ".command")
_YAML_SUFFIXES: Final = (".yaml", ".yml", ".json", ".tpl", ".template", ".j2")
_SHEBANG: Final = re.compile(r"#!.*\b(?:ba|z|da|k|a)?sh\b")
_GPU_COMMENT: Final = re.compile(
    r"#.*?\b((?:\d+ ?x ?)?(?:NVIDIA |AMD )?(?:[HAB]\d{2,3}0|GB\d00|GH200|L4|L40S?|T4|A10G?|V100"
    r"|MI\d{3}X?|RTX ?(?:PRO ?)?\d{4}))\b"
)
_MAX_NOTES: Final = 3
# Kinds that hold no pod of their own and yet may carry a server in a form of somebody else's.
_CARRIERS: Final = frozenset({"Service", "ConfigMap"})


def read_file(
    path: Path,
    *,
    display: str | None = None,
    options: ReadOptions = NO_OPTIONS,
) -> Reading:
    """All servers that one deployment file starts.

    Args:
        path: the file; others that it names are looked for beside it.
        display: the path as the user named it, used in locations; default: ``str(path)``.
        options: what the policy allows to be run, and forms of the team's own.

    Returns:
        Launches, problems or both; never neither. Bad input is a problem, not an exception.
    """
    shown = str(path) if display is None else display
    text = read_text(Path(path), shown)
    if isinstance(text, Problem):
        return Reading(file=shown, problems=(text,))
    gathering = Gathering(Path(path), shown, notes=_gpu_notes(text), options=options)
    form = options.form_of(Path(path))
    try:
        _read(text, gathering, form)
    except RecursionError:
        message = "nested too deeply to be read"
        gathering.problem(ProblemKind.UNREADABLE, message)
    if not gathering.launches and not gathering.problems:
        is_empty = not any(row.strip(" -") for row in text.split("\n") if row.lstrip()[:1] != "#")
        nothing = "an empty file" if is_empty else "nothing in it starts one"
        seen = "; ".join(gathering.ignored[:4]) or nothing
        place = Location(shown, 1)
        message = f"no server here: {seen}"
        gathering.problems.append(Problem(ProblemKind.UNKNOWN, message, place, key=NO_SERVER))
    return Reading(
        file=shown,
        launches=tuple(gathering.launches),
        problems=tuple(gathering.problems),
        ignored=tuple(gathering.ignored),
    )


def _read(text: str, gathering: Gathering, form: OwnForm | None) -> None:
    match = _CONFLICT.search(text)
    if match is not None:
        line = text.count("\n", 0, match.start()) + 1
        count = len(_CONFLICT.findall(text))
        message = f"unresolved merge conflict ({match[1]}, {count} markers): resolve it first"
        gathering.problem(ProblemKind.UNREADABLE, message, line)
        return
    name = gathering.path.name
    if name.lower().endswith(_YAML_SUFFIXES):
        _read_yaml(text, gathering, form)
        return
    from pytest_llmserve.manifests.dispatch import call_text, text_reader
    from pytest_llmserve.manifests.forms import named_form

    reader = text_reader(name)
    foreign = named_form(name)
    if reader is not None:
        from pytest_llmserve.manifests.kubernetes_parts import Objects

        call_text(reader, text, Objects(gathering))
    elif foreign is not None:
        gathering.problem(ProblemKind.UNKNOWN, foreign)
    elif _is_script(name, text):
        _read_script(text, gathering)
    else:
        _read_yaml(text, gathering, form)


def read_rendered(text: str, gathering: Gathering, by: str, place: Location) -> None:
    """What a tool made of the file: every server of it is named at ``place``."""
    count = len(gathering.launches)
    _read_yaml(text, gathering, None)
    if len(gathering.launches) == count and not gathering.problems:
        message = f"no server in the output of {by}"
        gathering.problem(ProblemKind.UNKNOWN, message, place)


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


def _read_yaml(text: str, gathering: Gathering, form: OwnForm | None) -> None:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.yaml_nodes import Mapping, Sequence, documents

    found = documents(text, gathering.file)
    if "{{" in text and form is None:
        is_broken = any(document.error is not None for document in found)
        found = _without_actions(text, gathering, is_broken=is_broken) or found
    objects = Objects(gathering)
    roots: list[Mapping] = []
    for document in found:
        if document.error is not None:
            _broken(document, gathering)
        elif isinstance(document.root, Mapping):
            roots.extend(_flattened(document.root))
        elif isinstance(document.root, Sequence) and _has_forms(document.root):
            roots.extend(item for item in document.root.items if isinstance(item, Mapping))
        else:
            _no_mapping(document, gathering)
    for root in roots:
        objects.learn(root)
    for root in roots:
        if form is not None:
            from pytest_llmserve.manifests.own_form import read_own

            read_own(form, root, objects)
        else:
            _read_root(root, objects)


def _without_actions(text: str, gathering: Gathering, *, is_broken: bool) -> list[Document] | None:
    """The documents of a Helm template; None for text that YAML reads by itself."""
    from pytest_llmserve.manifests.charts.template import is_template, rendered_by_reading
    from pytest_llmserve.manifests.yaml_nodes import documents

    if not is_template(text, is_broken=is_broken or gathering.path.parent.name == "templates"):
        return None
    return documents(rendered_by_reading(text, gathering), gathering.file)


def _has_forms(root: Sequence) -> bool:
    """Whether a list holds objects or servers that some reader knows."""
    from pytest_llmserve.manifests.dispatch import key_reader
    from pytest_llmserve.manifests.yaml_nodes import Mapping

    items = [item for item in root.items if isinstance(item, Mapping)]
    return any(item.text("kind") or key_reader(item) for item in items)


def _flattened(root: Mapping) -> list[Mapping]:
    """The object, or those of a ``List`` or an OpenShift ``Template``."""
    if root.text("kind") == "Template" and root.items("objects"):
        return list(root.mappings("objects"))
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
        _read_mapping(root, objects)


def _read_mapping(root: Mapping, objects: Objects) -> None:
    from pytest_llmserve.manifests.dispatch import read_mapping
    from pytest_llmserve.manifests.forms import mapping_form, template_sentence

    if read_mapping(root, objects):
        return
    name = objects.gathering.path.name
    if name.lower().startswith("kustomization"):
        from pytest_llmserve.manifests.charts.kustomize import read_kustomization

        read_kustomization(root, objects)
        return
    message = template_sentence("\n".join(root.entries)) or mapping_form(root)
    objects.gathering.problem(ProblemKind.UNKNOWN, message, root.location)


def _read_object(root: Mapping, objects: Objects) -> None:
    from pytest_llmserve.manifests.kubernetes import WORKLOADS, read_workload

    kind = root.text("kind") or ""
    if kind in WORKLOADS:
        read_workload(root, objects)
        return
    from pytest_llmserve.manifests.forms import HARMLESS_KINDS, kind_form, runs_servers

    gathering = objects.gathering
    if kind in _CARRIERS or kind not in HARMLESS_KINDS:
        from pytest_llmserve.manifests.dispatch import call, kind_reader

        reader = kind_reader(root)
        if reader is not None:
            call(reader, root, objects)
            return
    if kind in HARMLESS_KINDS:
        gathering.ignored.append(f"{kind} (line {root.line})")
        return
    count = len(gathering.launches) + len(gathering.problems)
    from pytest_llmserve.manifests.pod_templates import read_pods

    read_pods(root, objects)
    if count == len(gathering.launches) + len(gathering.problems) and runs_servers(root):
        gathering.problem(ProblemKind.UNKNOWN, kind_form(kind), root.location)


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
