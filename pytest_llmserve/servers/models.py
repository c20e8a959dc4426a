"""Which model a launch serves: its shape, looked up once for all servers of a run."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.errors import ModelError, ModelNotFound
from pytest_llmserve.models.lookup import find_model
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.runtimes.vllm.speculative import read_speculative
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_llmserve.manifests.launch import Launch, ModelSource
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.policy import Facts, Policy
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs

_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Folders of downloads: the hub cache's models--org--name, and org--name.
_FOLDER: Final = re.compile(r"(?:models--)?([A-Za-z0-9][\w.]*(?:-[\w.]+)*?)--([A-Za-z0-9][\w.-]*)")
_MAX_STEPS: Final = 4


_SPECULATIVE: Final = frozenset(("speculative_config", "spec_model"))


class ModelShelf:
    """Models by the name deployments use, under one policy."""

    def __init__(self, policy: Policy, *, allow_network: bool = False) -> None:
        self._policy = policy
        self._allow_network = allow_network
        self._found: dict[tuple[str, Path], ModelSpec | ModelError] = {}

    def find(self, ref: str, base_dir: Path) -> ModelSpec:
        """The shape of a model named by hub id or path.

        Raises:
            ModelError: it was not found, or its config is not understood.
        """
        key = (ref, base_dir)
        if key not in self._found:
            try:
                self._found[key] = find_model(
                    self._declared(ref),
                    models_folders=[self._policy.base_dir / m for m in self._policy.models],
                    base_dir=base_dir,
                    allow_network=self._allow_network,
                )
            except ModelError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, ModelError):
            raise found
        return found

    def draft(self, args: ParsedArgs, base_dir: Path) -> ModelSpec | None:
        """The draft model that the speculative settings name; ``None`` where none is or is known.

        A draft that is named and not known leaves the plan untold: it says so itself.
        """
        if not args.stated.keys() & _SPECULATIVE:
            return None
        name = read_speculative(args).model
        if name is None:
            return None
        try:
            return self.find(name, base_dir)
        except ModelError:
            return None

    def of_launch(
        self, args: ParsedArgs, launch: Launch, file: Path, facts: Facts
    ) -> tuple[Setting[str] | None, ModelSpec | None, Problem | None]:
        """The name, the shape if it is known, and otherwise why not.

        A path is traced to what fills it (a download, a mount, a folder's name) where the path
        itself says nothing; the setting's source then says ``derived``.
        """
        if facts.model is not None:
            ref = Setting(facts.model, "policy model")
        elif args.model is not None:
            ref = Setting(str(args.model.value), args.model.source, args.model.location)
        else:
            return None, None, _no_model(launch)
        try:
            return ref, self.find(ref.value, file.parent), None
        except ModelNotFound as error:
            reason: ModelError = error
        except ModelError as error:
            return ref, None, _unknown(ref, launch, str(error))
        for candidate in derived(ref, launch):
            try:
                return candidate, self.find(candidate.value, file.parent), None
            except ModelNotFound:
                continue
            except ModelError as error:
                reason = error
                break
        return ref, None, _unknown(ref, launch, f"{reason}{_hints(ref, args, launch)}")

    def _declared(self, ref: str) -> str:
        """What the policy's ``model_paths`` calls it: the exact key, else the first pattern."""
        paths = self._policy.model_paths
        if ref in paths:
            return paths[ref]
        return next((m for pattern, m in paths.items() if fnmatch(ref, pattern)), ref)


def derived(ref: Setting[str], launch: Launch) -> Iterator[Setting[str]]:
    """Hub ids that a path or address stands for, the surest first."""
    texts, seen = [ref.value], {ref.value}
    for _ in range(_MAX_STEPS):
        for source in launch.model_sources:
            fills = any(_fills(source, text) for text in texts)
            if fills and source.source not in seen:
                seen.add(source.source)
                texts.append(source.source)
                how = f"derived: {source.how}, line {source.location.line}"
                yield Setting(source.source, how, source.location)
    for text in texts:
        for name in _ids_of(text):
            if name not in seen:
                seen.add(name)
                yield Setting(name, f"derived from the path {text}", ref.location)


def _fills(source: ModelSource, path: str) -> bool:
    """Whether a source lies at a path: in the folder itself, or in one of the source's name."""
    folder, last = source.path.rstrip("/"), source.source.rstrip("/").rsplit("/", 1)[-1]
    return bool(folder) and path.rstrip("/") in (folder, f"{folder}/{last}")


def _ids_of(path: str) -> Iterator[str]:
    """``models--org--name``, ``org--name``, then the last two parts of a path."""
    if "/" not in path.strip("/") and "--" not in path:
        return
    parts = [part for part in path.partition("://")[2].split("/") or [] if part]
    parts = parts or [part for part in path.split("/") if part]
    for part in reversed(parts):
        match = _FOLDER.fullmatch(part)
        if match is not None:
            yield f"{match[1]}/{match[2]}"
    tail = "/".join(parts[-2:])
    if len(parts) > 2 and _ID.fullmatch(tail):
        yield tail


def _hints(ref: Setting[str], args: ParsedArgs, launch: Launch) -> str:
    """Names beside the path that look like the model: for people, never used as it."""
    names: dict[str, str] = {}
    for source in launch.model_sources:
        if _fills(source, ref.value):
            names.setdefault(source.source, source.how)
    for dest, flag in (("served_model_name", "--served-model-name"), ("tokenizer", "--tokenizer")):
        stated = args.stated.get(dest)
        value = stated.value if stated is not None else None
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, str) and _ID.fullmatch(item):
                names.setdefault(item, flag)
    names.pop(ref.value, None)
    if not names:
        return ""
    shown = ", ".join(f"{name} ({how})" for name, how in names.items())
    example = next(iter(names))
    return (
        f"\nbeside it stands {shown}; if that is the model, say so in the policy:"
        f' model_paths = {{ "{ref.value}" = "{example}" }}'
    )


def _unknown(ref: Setting[str], launch: Launch, message: str) -> Problem:
    place = ref.location or launch.location
    return Problem(ProblemKind.UNKNOWN, message, place, key="model", value=ref.value)


def _no_model(launch: Launch) -> Problem:
    return Problem(
        ProblemKind.UNKNOWN,
        f"{launch.name}: the command names no model (vllm would fall back to a tiny default)",
        launch.location,
        key="model",
        expected="write the model after 'vllm serve', or declare it in the policy",
    )
