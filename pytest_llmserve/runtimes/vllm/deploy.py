"""From parsed arguments, a model and a GPU to a vLLM deployment, and to changed copies of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_llmserve.runtimes.deployment import Deployment, Setting
from pytest_llmserve.runtimes.vllm.plan import make_plan
from pytest_llmserve.runtimes.vllm.refusals import refusals
from pytest_llmserve.runtimes.vllm.resolve import resolve_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.manifests.launch import Launch
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Plan
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings
    from pytest_llmserve.verdict import Location, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmInputs:
    """Everything that decides a vLLM deployment; changing one and deriving again is a what-if."""

    name: str
    location: Location | None
    launch: Launch | None
    args: ParsedArgs
    version: Setting[Version]
    is_version_assumed: bool
    model_ref: Setting[str] | None
    model: ModelSpec | None
    gpu: GpuSpec | None
    gpu_source: str
    gpu_location: Location | None
    gpu_count: Setting[int] | None
    env: Mapping[str, str]
    problems: tuple[Problem, ...] = ()

    def settings(self) -> VllmSettings:
        """Every setting after this version's defaults."""
        return resolve_settings(
            self.args,
            version=self.version.value,
            model=self.model,
            gpu=self.gpu,
            env=self.env,
        )

    def deployment(self) -> Deployment:
        """The deployment, with every reason for which vLLM would refuse to start it."""
        settings = self.settings()
        refused = refusals(
            settings,
            self.args,
            version=self.version.value,
            model=self.model,
            gpu=self.gpu,
            gpu_count=self.gpu_count.value if self.gpu_count else None,
            env=self.env,
        )
        return Deployment(
            name=self.name,
            location=self.location,
            runtime="vllm",
            version=self.version,
            is_version_assumed=self.is_version_assumed,
            model_ref=self.model_ref,
            model=self.model,
            gpu=self.gpu,
            gpu_source=self.gpu_source,
            gpu_location=self.gpu_location,
            gpu_count=self.gpu_count,
            settings=settings,
            refusals=refused,
            problems=self.problems,
            launch=self.launch,
        )

    def plan(self, deployment: Deployment) -> Plan:
        """What vLLM would do with the GPU's memory."""
        settings = deployment.settings
        return make_plan(
            settings,  # type: ignore[arg-type]  # made by settings() above
            version=self.version.value,
            model=self.model,
            gpu=self.gpu,
        )

    def changed(self, flags: Mapping[str, object], gpu_count: int | None = None) -> VllmInputs:
        """The same server with some flags set and, if given, another number of GPUs."""
        args = self.args
        for dest, value in flags.items():
            args = args.with_value(dest, value)
        count = self.gpu_count if gpu_count is None else Setting(gpu_count, "what-if")
        return replace(self, args=args, gpu_count=count)
