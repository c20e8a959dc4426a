"""What the strategies draw: records that print as a person would write them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_llmserve.hardware.spec import GpuSpec
from pytest_llmserve.models.spec import ModelSpec
from pytest_llmserve.policy import Workload
from pytest_llmserve.servers.server import Server
from pytest_llmserve.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Drawn = TypeVar("_Drawn")


class DrawnModel(ModelSpec):
    """A :class:`ModelSpec` that prints in one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            f"<{self.model_type}: {self.num_layers} layers, hidden {self.hidden_size}, "
            f"{self.num_attention_heads} heads, {self.num_kv_heads} KV heads, "
            f"vocabulary {self.vocab_size}>"
        )


class DrawnGpu(GpuSpec):
    """A :class:`GpuSpec` that prints as its id."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self.id}>"


class DrawnWorkload(Workload):
    """A :class:`Workload` that prints as a person would say it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            f"<{self.concurrency:,} at once of {self.prompt_tokens:,} prompt + "
            f"{self.output_tokens:,} output tokens>"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class DrawnServer(Server):
    """A :class:`Server` that prints as the command that starts it."""

    command: str = ""

    def __repr__(self) -> str:
        return f"<{self.command}>"

    def changed(self, flags: Mapping[str, object]) -> DrawnServer:
        """The same server with other flags, on as many GPUs as it then needs."""
        subjects = []
        for subject in self.subjects:
            once = subject.changed(flags)
            count = once.deployment.settings.world_size
            subjects.append(Subject(subject.changed(flags, count).inputs, subject.facts))
        command = f"{self.command}, changed to {_words(flags)}"
        return replace(self, subjects=tuple(subjects), command=command)


@dataclass(frozen=True)
class Change:
    """A change to a deployment, as a pull request makes it: some flags with new values."""

    flags: Mapping[str, object]

    def __repr__(self) -> str:
        return f"<change: {_words(self.flags)}>"

    def apply(self, server: Server) -> DrawnServer:
        """The server after the change."""
        return as_drawn(server).changed(self.flags)


def as_drawn(server: Server) -> DrawnServer:
    """The server, printing as its command."""
    if isinstance(server, DrawnServer):
        return server
    return as_kind(DrawnServer, server, command=_command(server))


def as_kind(kind: Callable[..., _Drawn], base: Any, **more: Any) -> _Drawn:
    """The same values as another kind of record."""
    return kind(**{field.name: getattr(base, field.name) for field in fields(base)}, **more)


def _command(server: Server) -> str:
    """``vllm serve llama --max-model-len 4096 (1 x h100-sxm-80gb, vllm 0.19.1)``."""
    deployment = server.subjects[0].deployment
    settings, model = deployment.settings, deployment.model
    name = repr(model) if isinstance(model, DrawnModel) else getattr(model, "id", "")
    stated = {
        field.name: setting.value
        for field in fields(settings)
        if getattr(setting := getattr(settings, field.name), "is_stated", False)
    }
    gpu = deployment.gpu.id if deployment.gpu else "an unknown GPU"
    return (
        f"vllm serve {name} {_words(stated)} "
        f"({settings.world_size} x {gpu}, vllm {deployment.version.value})"
    )


def _words(flags: Mapping[str, object]) -> str:
    """``--max-model-len 4096 --no-enforce-eager``."""
    return " ".join(_word(name.replace("_", "-"), value) for name, value in flags.items())


def _word(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"
