"""From a launch, or from the arguments of a Python test, to a server that can be judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from pytest_llmserve.hardware.names import resolve_gpu
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.runtimes.vllm.args import parse_args, stated_from_kwargs
from pytest_llmserve.runtimes.vllm.deploy import VllmInputs
from pytest_llmserve.runtimes.vllm.flags import flag_table
from pytest_llmserve.runtimes.vllm.versions import NEWEST_KNOWN, version_from_image
from pytest_llmserve.servers.gpus import every_gpu, gpu_choices, gpu_count
from pytest_llmserve.servers.models import ModelShelf
from pytest_llmserve.servers.operators import completed
from pytest_llmserve.servers.server import Server
from pytest_llmserve.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.manifests.launch import Launch, Word
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.policy import Facts, Policy


class Assembler:
    """Servers under one policy; models and parts are looked up once."""

    def __init__(self, policy: Policy, *, allow_network: bool = False) -> None:
        self.policy = policy
        self._shelf = ModelShelf(policy, allow_network=allow_network)
        self._parts: Mapping[str, GpuSpec] | None = None

    def from_launch(self, launch: Launch, file: Path) -> Server:
        """The server that a file starts."""
        if launch.runtime != "vllm":
            return Server(
                name=launch.name,
                location=launch.location,
                policy=self.policy,
                launch=launch,
                not_planned=f"run by {launch.runtime}; only vllm is planned so far",
            )
        facts = self.policy.facts_for(file, launch.name)
        return Server(
            name=launch.name,
            location=launch.location,
            policy=self.policy,
            subjects=tuple(Subject(i, facts) for i in self._inputs(launch, file, facts)),
            launch=launch,
        )

    def from_arguments(
        self,
        *,
        model: str | ModelSpec | None,
        gpu: str | GpuSpec | None,
        gpu_count: int | None = None,
        version: str | None = None,
        name: str = "",
        env: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        facts: Facts | None = None,
    ) -> Server:
        """The server that these arguments describe; what is not given comes from the policy.

        Raises:
            ModelError, GpuNameError, TypeError: a model, a GPU or a flag is not known.
        """
        declared = self.policy.facts_for(None, name)
        facts = facts.over(declared) if facts else declared
        model, gpu = model or facts.model, gpu or facts.gpu
        if model is None or gpu is None:
            missing = "model" if model is None else "gpu"
            raise TypeError(f"{missing}= is not given, and the policy declares none")
        stated = Version(version.removeprefix("v")) if version else facts.vllm_version
        spec = self._shelf.find(model, Path()) if isinstance(model, str) else model
        inputs = VllmInputs(
            name=name or spec.id,
            location=None,
            launch=None,
            args=stated_from_kwargs(stated or NEWEST_KNOWN, **(flags or {})),
            version=Setting(stated or NEWEST_KNOWN, "argument" if stated else "newest known"),
            is_version_assumed=stated is None,
            model_ref=Setting(spec.id, "argument"),
            model=spec,
            gpu=resolve_gpu(gpu, user=self.parts()) if isinstance(gpu, str) else gpu,
            gpu_source="argument",
            gpu_location=None,
            gpu_count=None,
            env=env or {},
        )
        count = gpu_count or facts.gpu_count or inputs.settings().world_size
        draft = self._shelf.draft(inputs.args, Path())
        inputs = replace(inputs, gpu_count=Setting(count, "argument"), draft=draft)
        subject = Subject(inputs, facts)
        return Server(name=inputs.name, location=None, policy=self.policy, subjects=(subject,))

    def parts(self) -> Mapping[str, GpuSpec]:
        """The parts that the policy's ``gpus`` folder declares."""
        if self._parts is None:
            self._parts = {}
            if self.policy.gpus is not None:
                from pytest_llmserve.hardware.catalogue import load_user_gpus

                self._parts = load_user_gpus(self.policy.base_dir / self.policy.gpus)
        return self._parts

    def _inputs(self, launch: Launch, file: Path, facts: Facts) -> Iterator[VllmInputs]:
        version, is_assumed = _version(launch, facts)
        args = parse_args(
            _argv(launch, version.value),
            version.value,
            config_entries=launch.config_entries,
            entrypoint=_PARSERS.get(launch.entrypoint, launch.entrypoint),
        )
        count = gpu_count(launch, facts)
        args = completed(args, launch, count)
        model_ref, model, model_problem = self._shelf.of_launch(args, launch, file, facts)
        draft = self._shelf.draft(args, file.parent)
        env = {key: word.text for key, word in launch.env.items() if not word.unresolved}
        for choice in gpu_choices(launch, facts, self.policy, self.parts()):
            problems = (*launch.problems, *args.problems, model_problem, choice.problem)
            inputs = VllmInputs(
                name=launch.name,
                location=launch.location,
                launch=launch,
                args=args,
                version=version,
                is_version_assumed=is_assumed,
                model_ref=model_ref,
                model=model,
                draft=draft,
                gpu=choice.spec,
                gpu_source=choice.source,
                gpu_location=choice.location,
                gpu_count=count,
                env=env,
                problems=tuple(p for p in problems if p is not None),
            )
            every = every_gpu(launch) if inputs.gpu_count is None else None
            if every is not None and inputs.settings().world_size == every.value:
                inputs = replace(inputs, gpu_count=every)
            yield inputs


# Programs around vLLM that read its flags with the API server's own parser.
_PARSERS = {"dynamo.vllm": "vllm.entrypoints.openai.api_server"}


def _argv(launch: Launch, version: Version) -> tuple[Word, ...]:
    """The arguments; of typed fields, a negative that this version lacks is its default."""
    if not launch.is_typed:
        return launch.argv
    options = flag_table(version).options
    return tuple(
        word
        for word in launch.argv
        if not word.text.startswith("--no-") or word.text.replace("_", "-") in options
    )


def _version(launch: Launch, facts: Facts) -> tuple[Setting[Version], bool]:
    """The version: from vLLM's own image tag, else declared, else the newest known (assumed)."""
    image = launch.image
    if image is not None and (tagged := version_from_image(image.text)) is not None:
        return Setting(tagged, f"image tag, line {image.location.line}", image.location), False
    if facts.vllm_version is not None:
        return Setting(facts.vllm_version, "policy vllm_version"), False
    return Setting(NEWEST_KNOWN, "newest known"), True
