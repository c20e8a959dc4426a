"""From parsed arguments, a model and a GPU to a vLLM deployment, and to changed copies of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.schemes import scheme_of
from pytest_llmserve.runtimes.deployment import Deployment, Setting
from pytest_llmserve.runtimes.vllm.block_size import effective_kv_cache_dtype
from pytest_llmserve.runtimes.vllm.plan import make_plan
from pytest_llmserve.runtimes.vllm.refusals import refusals
from pytest_llmserve.runtimes.vllm.resolve import resolve_settings
from pytest_llmserve.runtimes.vllm.settings import VllmSettings
from pytest_llmserve.runtimes.vllm.unmodelled import unmodelled
from pytest_llmserve.runtimes.vllm.weights import DTYPE_BITS, rank_of, served_model
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from pytest_llmserve.engine.costs import StepCosts
    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.manifests.launch import Launch
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Plan
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs
    from pytest_llmserve.verdict import Problem

NOWHERE: Final = Location("<python>", 0)
"""Where a server stands that was described in Python."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
    draft: ModelSpec | None = None
    """The model that the speculative settings name for drafting, where its config was found."""

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
            draft=self._draft(settings),
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
            problems=(*self.problems, *self._unmodelled()),
            launch=self.launch,
        )

    def _unmodelled(self) -> tuple[Problem, ...]:
        return unmodelled(
            self.args,
            version=self.version.value,
            model=self.model,
            gpu=self.gpu,
            env=self.env,
            location=self.location or NOWHERE,
        )

    def plan(self, deployment: Deployment) -> Plan:
        """What vLLM would do with the GPU's memory."""
        settings = self._vllm(deployment)
        return make_plan(
            settings,
            version=self.version.value,
            model=self.model,
            gpu=self.gpu,
            draft=self._draft(settings),
        )

    def _draft(self, settings: VllmSettings) -> ModelSpec | None:
        """The draft model: as given, or of the bundled catalogue where the settings name one."""
        if self.draft is not None or settings.draft_model is None:
            return self.draft
        from pytest_llmserve.models.catalogue import find_in_catalogue

        return find_in_catalogue(settings.draft_model)

    def costs(self, deployment: Deployment) -> StepCosts:
        """What one GPU reads and computes, in coefficients of batch and tokens."""
        from pytest_llmserve.engine.costs import step_costs  # only where a floor is asked for

        settings = self._vllm(deployment)
        model = served_model(self._known_model(), settings)
        return step_costs(
            model,
            rank_of(settings, model, 0),
            partial(scheme_of, model.quantization) if model.quantization else None,
            kv_cache_dtype=effective_kv_cache_dtype(settings, model, self.gpu),
            model_dtype_bits=DTYPE_BITS[settings.dtype.value or model.dtype],
        )

    def compute_format(self, deployment: Deployment) -> str:
        """The storage scheme or dtype that decides in which precision the GPU multiplies."""
        settings = self._vllm(deployment)
        model = served_model(self._known_model(), settings)
        if model.quantization is not None:
            return model.quantization.scheme
        return settings.dtype.value or model.dtype

    def tokens_per_step(self, deployment: Deployment) -> int:
        """Most tokens that one decode step can yield: those drafted, and one."""
        return 1 + self._vllm(deployment).num_speculative_tokens.value

    def _vllm(self, deployment: Deployment) -> VllmSettings:
        assert isinstance(deployment.settings, VllmSettings)  # made by settings() above
        return deployment.settings

    def _known_model(self) -> ModelSpec:
        assert self.model is not None, "asked only of servers whose model is known"
        return self.model

    def changed(
        self,
        flags: Mapping[str, object],
        gpu_count: int | None = None,
        gpu: GpuSpec | None = None,
    ) -> VllmInputs:
        """The same server with some flags set and, if given, other GPUs or another number."""
        args = self.args
        for dest, value in flags.items():
            args = args.with_value(dest, value)
        count = self.gpu_count if gpu_count is None else Setting(gpu_count, "what-if")
        return replace(self, args=args, gpu_count=count, gpu=gpu or self.gpu)
