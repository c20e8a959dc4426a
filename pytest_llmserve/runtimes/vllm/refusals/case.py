"""What a rule sees, and the short way to write a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_llmserve.runtimes.deployment import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from pytest_llmserve.hardware.spec import GpuSpec
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import RefusalRule
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings
    from pytest_llmserve.verdict import Location

_COLUMNS = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Case:
    """One server as it would start; unknowns are ``None``, and no rule refuses for them."""

    settings: VllmSettings
    args: ParsedArgs
    version: Version
    model: ModelSpec | None
    gpu: GpuSpec | None
    gpu_count: int | None
    env: Mapping[str, str]
    draft: ModelSpec | None = None

    @property
    def tp(self) -> int:
        """Tensor parallel size."""
        return self.settings.tensor_parallel_size.value

    @property
    def capability(self) -> int | None:
        """Compute capability times ten of an NVIDIA GPU, ``None`` for all others."""
        gpu = self.gpu
        return gpu.capability if gpu is not None and gpu.vendor.lower() == "nvidia" else None

    def value(self, dest: str) -> Any:
        """What the command line states for a destination, ``None`` where it says nothing."""
        found = self.args.stated.get(dest)
        return None if found is None else found.value

    def place(self, *dests: str) -> Location | None:
        """Where the first of these that was written stands."""
        for dest in dests:
            found = self.args.stated.get(dest)
            if found is not None and found.location is not None:
                return found.location
        return None

    def refuse(
        self,
        rule: RefusalRule,
        headline: str,
        says: str,
        *,
        expected: str = "",
        at: tuple[str, ...] = (),
        is_certain: bool = True,
    ) -> Refusal:
        """A refusal located at the first of the destinations ``at`` that was written."""
        cut = headline if len(headline) <= _COLUMNS else headline[: _COLUMNS - 3] + "..."
        return Refusal(
            rule=rule,
            headline=cut,
            server_says=says,
            expected=expected,
            location=self.place(*at),
            is_certain=is_certain,
        )


Rule = Callable[[Case], Refusal | Iterable[Refusal] | None]


def divisors(number: int, *, at_most: int) -> str:
    """The sizes that divide evenly, as words: ``1, 2, 4``."""
    return ", ".join(str(n) for n in range(1, at_most + 1) if number % n == 0)
