"""MIG slices as devices of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.hardware.errors import AmbiguousGpu, UnknownGpu
from pytest_llmserve.hardware.index import load_index

if TYPE_CHECKING:
    from fractions import Fraction

    from pytest_llmserve.hardware.spec import GpuSpec, MigProfile

# Media and graphics variants (+me, .me.all, -me, +gfx) have the memory of the plain profile.
_RESOURCE: Final = re.compile(
    r"(?:nvidia\.com/)?(?:mig-)?([1-7]g\.[0-9]+gb)(?:[.+-](?:me|gfx|all|none))*", re.IGNORECASE
)


def mig_profile_name(resource: str) -> str | None:
    """``1g.10gb`` in ``nvidia.com/mig-1g.10gb.me``, ``mig-1g.10gb`` and such, else ``None``."""
    match = _RESOURCE.fullmatch(resource.strip())
    return None if match is None else match[1].lower()


def resolve_mig(resource: str, parent: GpuSpec | None) -> GpuSpec:
    """The slice of a MIG resource as a device.

    Memory is the slice's own reading or estimate. Bandwidth follows the share of the memory and
    peaks the share of the multiprocessors (both inferred, as the slice's ``source`` says). Slices
    have no link to each other: tensor parallelism across them is no configuration that runs.

    Args:
        resource: ``nvidia.com/mig-1g.10gb``, or the profile's name alone.
        parent: the device it is cut from, where known.

    Raises:
        AmbiguousGpu: no parent is given and devices that differ have a profile of this name.
        UnknownGpu: this is no profile, or the device (any device) has none of this name.
    """
    name = mig_profile_name(resource)
    if name is None:
        expected = "expected a profile such as '1g.10gb' or 'nvidia.com/mig-1g.10gb'"
        raise UnknownGpu(f"{resource!r} is no MIG profile; {expected}", name=resource)
    if parent is not None:
        return _slice(parent, _profile_of(parent, name, resource))
    candidates = load_index().mig.get(name, ())
    if not candidates:
        raise UnknownGpu(f"no known device has a MIG profile {name!r}", name=resource)
    slices = [_slice(gpu, _profile_of(gpu, name, resource)) for gpu in map(load_gpu, candidates)]
    if any(_figures(other) != _figures(slices[0]) for other in slices[1:]):
        listed = ", ".join(candidates)
        message = f"{name!r} is a MIG profile of {listed}: say which device it is cut from"
        raise AmbiguousGpu(message, name=resource, candidates=candidates)
    return max(slices, key=lambda gpu: "-sxm" in gpu.id)


def _profile_of(parent: GpuSpec, name: str, resource: str) -> MigProfile:
    for profile in parent.mig_profiles:
        if profile.name == name:
            return profile
    if parent.mig_profile is not None:
        reason = f"{parent.id} is a MIG slice itself"
    elif parent.mig_profiles:
        reason = f"{parent.id} has {', '.join(p.name for p in parent.mig_profiles)}"
    else:
        reason = f"no MIG profile of {parent.id} is known"
    raise UnknownGpu(f"{name!r} is no MIG profile of it: {reason}", name=resource)


def _slice(parent: GpuSpec, profile: MigProfile) -> GpuSpec:
    share = profile.memory_fraction
    peaks = {
        dtype: int(value * profile.compute_fraction)
        for dtype, value in parent.dense_flops_per_s.items()
    }
    marketed_gb = int(profile.name.partition(".")[2].removesuffix("gb"))
    return replace(
        parent,
        id=f"{parent.id}-mig-{profile.name}",
        name=f"{parent.name} MIG {profile.name}",
        memory_total_bytes=profile.memory_total_bytes,
        memory_marketed_bytes=marketed_gb * 10**9,
        hbm_bytes_per_s=_share(parent.hbm_bytes_per_s, share),
        hbm_safe_bytes_per_s=_share(parent.hbm_safe_bytes_per_s, share),
        dense_flops_per_s=MappingProxyType(peaks),
        link_bytes_per_s=None,
        price=None,  # lists price whole parts
        mig_profile=profile.name,
        mig_profiles=(),
        source=(
            f"{parent.source}, MIG {profile.name}"
            f" (bandwidth x {share} and peaks x {profile.compute_fraction} inferred)"
        ),
    )


def _share(value: int | None, share: Fraction) -> int | None:
    return None if value is None else int(value * share)


def _figures(gpu: GpuSpec) -> tuple[object, ...]:
    return (
        gpu.memory_total_bytes,
        gpu.hbm_bytes_per_s,
        gpu.hbm_safe_bytes_per_s,
        dict(gpu.dense_flops_per_s),
        gpu.compute_capability,
    )
