"""From what people and clouds call a device to the device.

A name resolves only if it can mean one thing. Exact ids, driver names and labels come first, then
names that a cloud or an operator gives a meaning (``key`` says who wrote it), then the words of a
name: its family, form and size. Whole words only. What differs in memory, bandwidth or peaks is
refused with the list.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.hardware.errors import AmbiguousGpu, UnknownGpu
from pytest_llmserve.hardware.index import fold, load_index
from pytest_llmserve.hardware.instances import InstanceGpu, instance_gpu
from pytest_llmserve.hardware.mig import mig_profile_name, resolve_mig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_llmserve.hardware.spec import GpuSpec

__all__ = ["InstanceGpu", "instance_gpu", "resolve_gpu", "resolve_mig"]

# Who gives a key's values their meaning.
_NAMESPACES: Final = {
    "cloud.google.com/gke-accelerator": "gke",
    "cloud.google.com/gke-tpu-accelerator": "gke",
    "karpenter.k8s.aws/instance-gpu-name": "karpenter",
    "gpu.nvidia.com/class": "coreweave",
    "gpu.nvidia.com/model": "coreweave",
    "amd.com/gpu.device-id": "amd_device_id",
    "beta.amd.com/gpu.device-id": "amd_device_id",
}
# Its values come from the driver, so a cloud's spelling of the same letters means nothing there.
_PRODUCT_KEY: Final = "nvidia.com/gpu.product"
_INSTANCE_KEYS: Final = frozenset({"instancetype", "machinetype", "vmsize"})
_NO_USER: Final[Mapping[str, GpuSpec]] = MappingProxyType({})
# A cloud's memory figure over the marketed one: 22888 MiB of a 24 GB L4, 81920 of an 80 GB H100.
_LOWEST_SIZE, _HIGHEST_SIZE = Fraction(90, 100), Fraction(103, 100)
_OTHER_ACCELERATORS: Final = (
    r"\b(?:tpu|gaudi[0-9]?|hpu|neuron|inferentia[0-9]?|trainium[0-9]?|ascend[0-9a-z]*|npu|xpu)\b"
)
_MODEL: Final = r"(?![0-9]+(?:g|gb|gib)$|sxm[0-9]$)[a-z0-9]*[0-9][a-z0-9]*"


def resolve_gpu(
    name: str,
    *,
    key: str | None = None,
    user: Mapping[str, GpuSpec] = _NO_USER,
    memory_mib: int | None = None,
) -> GpuSpec:
    """The device that a name means.

    Args:
        name: an id, a driver's name, a label's value, an instance type or a short form.
        key: the label or field it stands in (``nvidia.com/gpu.product``,
            ``node.kubernetes.io/instance-type``…); ``None`` for a name in a team's own policy.
        user: the team's own parts by name (``load_user_gpus``); they come before shipped ones.
        memory_mib: the memory per device stated beside the name (``karpenter.k8s.aws/
            instance-gpu-memory``, ``nvidia.com/gpu.memory``), which may settle what a name leaves
            open.

    Raises:
        AmbiguousGpu: the name may mean devices that differ; the message lists them.
        UnknownGpu: no device is known by the name, or the name stands for a part of a device
            whose size is not known.
    """
    return _Asked(name, key, user, memory_mib).resolve()


class _Asked:
    """One question: the name and all that was said beside it."""

    def __init__(
        self, name: str, key: str | None, user: Mapping[str, GpuSpec], memory_mib: int | None
    ) -> None:
        self.name = name
        self.key = key or None
        self.field = (key or "").strip().lower()
        self.user = user
        self.memory_mib = memory_mib
        self.index = load_index()

    def resolve(self) -> GpuSpec:
        folded = fold(self.name)
        own = self._own(folded)
        if own is not None:
            return own
        if _is_instance_key(self.field):
            return self._of_instance(instance_gpu(self.name))
        named = self._in_namespace(folded)
        if named:
            return self._choose(named)
        if mig_profile_name(self.name) is not None:
            return resolve_mig(self.name, None)
        return self._product(folded)

    def _own(self, folded: str) -> GpuSpec | None:
        if self.name in self.user:
            return self.user[self.name]
        return next((gpu for called, gpu in self.user.items() if fold(called) == folded), None)

    def _in_namespace(self, folded: str) -> tuple[str, ...]:
        space = _NAMESPACES.get(self.field)
        if space is not None:
            return self.index.namespaces[space].get(folded, ())
        # Label values are case-sensitive: this spelling is GKE's, NVIDIA-H100-80GB is not.
        if self.field != _PRODUCT_KEY and self.name.strip() == folded:
            return self.index.namespaces["gke"].get(folded, ())
        return ()

    def _product(self, folded: str) -> GpuSpec:
        plain = folded.removesuffix("-shared")
        device, is_mig, profile = plain.partition("-mig-")
        if not is_mig:
            gpu = self._whole_device(plain)
        elif profile == "invalid":
            raise self._unknown("the node's MIG slices differ, so the label names no device")
        else:
            gpu = self._slice(profile, self._whole_device(device))
        if plain == folded:
            return gpu
        return replace(gpu, source=f"{gpu.source}, shared in time with other pods")

    def _slice(self, profile: str, parent: GpuSpec) -> GpuSpec:
        try:
            return resolve_mig(profile, parent)
        except UnknownGpu as error:
            raise self._unknown(str(error)) from None

    def _whole_device(self, folded: str) -> GpuSpec:
        own = self._own(folded)
        if own is not None:
            return own
        exact = self.index.names.get(folded)
        if exact is not None:
            return load_gpu(exact)
        several = self.index.ambiguous.get(folded)
        if several is not None:
            return self._choose(several, is_listed=True)
        alike = self.index.parts_like(folded)
        if alike:
            return self._choose(alike)
        if self.field != _PRODUCT_KEY:
            instance = instance_gpu(self.name)
            if instance is not None:
                return self._of_instance(instance)
        raise self._unknown_name(folded)

    def _choose(self, candidates: Sequence[str], *, is_listed: bool = False) -> GpuSpec:
        fitting = [part for part in candidates if self._has_size(part)]
        if self.memory_mib is not None and len(fitting) == 1:
            return load_gpu(fitting[0])
        candidates = fitting or candidates
        if not is_listed and len({self.index.parts[part] for part in candidates}) == 1:
            return load_gpu(max(candidates, key=lambda part: ("-sxm" in part, part)))
        listed = _one_of([f"{part} ({self.index.parts[part]})" for part in candidates])
        if len(candidates) > 1:
            message = f"{self.name!r} could be {listed}: write the id of the one that is meant"
        else:
            message = (
                f"{self.name!r} could be {listed} or another card of that name, which the "
                "catalogue lacks: write the id if that is the one, or describe the other"
            )
        raise AmbiguousGpu(message, name=self.name, key=self.key, candidates=tuple(candidates))

    def _has_size(self, part: str) -> bool:
        if self.memory_mib is None:
            return True
        share = Fraction(self.memory_mib, 1024 * self.index.parts[part].memory_gb)
        return _LOWEST_SIZE <= share <= _HIGHEST_SIZE

    def _of_instance(self, instance: InstanceGpu | None) -> GpuSpec:
        if instance is None:
            raise self._unknown("this instance type is not in the table")
        if not instance.is_modelled:
            accelerator = instance.gpu_id.removeprefix("other:")
            raise self._unknown(f"its accelerator {accelerator} is not modelled")
        if instance.count is None or isinstance(instance.count, Fraction):
            share = "a share" if instance.count is None else str(instance.count)
            raise self._unknown(
                f"it has {share} of one {instance.gpu_id}, whose memory is not known"
            )
        return load_gpu(instance.gpu_id)

    def _unknown_name(self, folded: str) -> UnknownGpu:
        own = {gpu.id for gpu in self.user.values()}
        near = _suggestions(folded, (*sorted(own), *self.index.parts))
        if near:
            return self._unknown(f"no known device is called so; near: {', '.join(near)}", near)
        if re.search(_OTHER_ACCELERATORS, folded):
            return self._unknown("this accelerator is not modelled")
        return self._unknown("no known device is called so; describe it in a file of your own")

    def _unknown(self, reason: str, near: tuple[str, ...] = ()) -> UnknownGpu:
        message = f"{self.name!r}: {reason}"
        return UnknownGpu(message, name=self.name, key=self.key, suggestions=near)


def _is_instance_key(field: str) -> bool:
    """Whether ``node.kubernetes.io/instance-type``, ``instanceType``, ``vm_size`` or such."""
    last = field.rpartition("/")[2].rpartition(".")[2]
    return last.replace("-", "").replace("_", "") in _INSTANCE_KEYS


def _one_of(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _suggestions(folded: str, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Ids that have a model number of the name, else ids with a number spelt nearly like one."""
    asked = _model_words(folded)
    exact = tuple(part for part in ids if asked & _model_words(part))
    if exact or not asked:
        return exact[:4]
    from difflib import get_close_matches

    known = sorted({word for part in ids for word in _model_words(part)})
    near = {word for mine in asked for word in get_close_matches(mine, known, n=2, cutoff=0.8)}
    return tuple(part for part in ids if near & _model_words(part))[:4]


def _model_words(folded: str) -> set[str]:
    """The words with a digit that are no size and no form: ``h100`` of ``h100-sxm5-80gb``."""
    return {word for word in folded[:80].split("-") if re.fullmatch(_MODEL, word)}
