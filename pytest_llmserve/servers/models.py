"""Which model a launch serves: its shape, looked up once for all servers of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.models.errors import ModelError
from pytest_llmserve.models.lookup import find_model
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmserve.manifests.launch import Launch
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.policy import Facts, Policy
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs


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
                    ref,
                    models_folders=[self._policy.base_dir / m for m in self._policy.models],
                    base_dir=base_dir,
                    aliases=self._policy.model_paths,
                    allow_network=self._allow_network,
                )
            except ModelError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, ModelError):
            raise found
        return found

    def of_launch(
        self, args: ParsedArgs, launch: Launch, file: Path, facts: Facts
    ) -> tuple[Setting[str] | None, ModelSpec | None, Problem | None]:
        """The name, the shape if it is known, and otherwise why not."""
        if facts.model is not None:
            ref = Setting(facts.model, "policy model")
        elif args.model is not None:
            ref = Setting(str(args.model.value), args.model.source, args.model.location)
        else:
            return None, None, _no_model(launch)
        try:
            return ref, self.find(ref.value, file.parent), None
        except ModelError as error:
            problem = Problem(
                ProblemKind.UNKNOWN,
                str(error),
                ref.location or launch.location,
                key="model",
                value=ref.value,
            )
            return ref, None, problem


def _no_model(launch: Launch) -> Problem:
    return Problem(
        ProblemKind.UNKNOWN,
        f"{launch.name}: the command names no model (vllm would fall back to a tiny default)",
        launch.location,
        key="model",
        expected="write the model after 'vllm serve', or declare it in the policy",
    )
