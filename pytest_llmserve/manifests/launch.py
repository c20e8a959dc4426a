"""``Launch``: one server role as a deployment file starts it, before any runtime's rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.verdict import Location, Problem


NO_SERVER: Final = "server"
"""Key of the one problem of a file that was read and starts no server."""


@dataclass(frozen=True, slots=True)
class Word:
    """One argument after substitution, with the place it was written at.

    ``unresolved`` names the variables or templates that stayed in ``text``: such a word must never
    be used as a value.
    """

    text: str
    location: Location
    unresolved: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of the file named by ``--config``, not yet merged with the command line.

    What a key becomes depends on the runtime's version (vLLM before 0.28 ignores ``false``), so
    the runtime decides.
    """

    key: str
    """As written, ``-`` and ``_`` kept."""
    value: object
    """What PyYAML makes of it: bool, int, float, str, None, list or dict (YAML 1.1)."""
    location: Location
    unresolved: tuple[str, ...] = ()
    """Variables that stayed in the value: it must not be used."""


@dataclass(frozen=True, slots=True)
class GpuLabel:
    """A machine-readable statement of the GPU kind: ``key`` is the label or field it stands in.

    ``alternatives`` are values of which any may be chosen by the scheduler (an affinity list):
    every one of them has to pass.
    """

    key: str
    alternatives: tuple[str, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What fills a path of the container with a model: a download, a mount, a storage address."""

    path: str
    """Where the server sees it."""
    source: str
    """A hub id, or an address (``s3://...``, ``pvc://...``)."""
    how: str
    """``init container download``, ``weights``, ``storageUri``..."""
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClaim:
    """What the file says about GPUs; ``None`` where it does not say.

    ``count_per_pod`` x ``pods_per_instance`` GPUs serve one instance; replicas multiply instances.
    """

    count_per_pod: int | None = None
    count_source: str = ""
    count_location: Location | None = None
    pods_per_instance: int = 1
    is_whole_machine: bool = False
    """All GPUs of the machine that a label names (an instance type) serve."""
    resource: str | None = None
    """``nvidia.com/gpu``, ``nvidia.com/mig-1g.10gb``, ``amd.com/gpu``…"""
    labels: tuple[GpuLabel, ...] = ()

    @property
    def count(self) -> int | None:
        """GPUs of one running instance of the server."""
        return None if self.count_per_pod is None else self.count_per_pod * self.pods_per_instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One server role. ``argv`` is what reaches the runtime's own parser, program name left out."""

    name: str
    """Unique in its file: ``chat-70b``, or ``chat-70b/decode`` where one object has several."""
    form: str
    """``kubernetes Deployment``, ``compose``, ``shell``, ``docker run``, ``vllm config``…"""
    location: Location
    runtime: str
    """``vllm``, ``sglang``, ``tgi``…; only ``vllm`` is planned today."""
    entrypoint: str = ""
    """How it is started: ``vllm serve`` or ``vllm.entrypoints.openai.api_server``."""
    argv: tuple[Word, ...] = ()
    """``--config FILE`` stays in it; what the file says is in ``config_entries``."""
    wrapper_argv: tuple[Word, ...] = ()
    """Flags that a program around the runtime takes for itself (``--dyn-...`` of Dynamo)."""
    is_typed: bool = False
    """``argv`` was made from typed fields (``engine_kwargs``): a ``--no-x`` that the version lacks
    says no more than the default, and is no refusal."""
    config_entries: tuple[ConfigEntry, ...] = ()
    """Entries of the ``--config`` file: weaker than ``argv``, stronger than defaults."""
    image: Word | None = None
    env: Mapping[str, Word] = field(default_factory=dict)
    gpu: GpuClaim = field(default_factory=GpuClaim)
    replicas: int | None = None
    is_deployed: bool = True
    """False for ``replicas: 0`` and for compose profiles that are off by default."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """Hints for people (a comment that names a GPU); never used for a verdict."""
    model_sources: tuple[ModelSource, ...] = ()
    """What fills the paths that the server may load its model from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that one file yields. Never a silent skip: no launch and no problem cannot happen."""

    file: str
    launches: tuple[Launch, ...] = ()
    problems: tuple[Problem, ...] = ()
    ignored: tuple[str, ...] = ()
    """What was looked at and is no server (routers, sidecars), for ``-v``."""

    @property
    def is_bare(self) -> bool:
        """Whether the file was read and starts no server: an error only where it was asked for."""
        return not self.launches and all(p.key == NO_SERVER for p in self.problems)
