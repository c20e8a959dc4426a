"""Which vLLM an image is, and which versions this package has rules for."""

from __future__ import annotations

import re
from typing import Final

from packaging.version import InvalidVersion, Version

OLDEST_KNOWN: Final = Version("0.8.5")
NEWEST_KNOWN: Final = Version("0.33.0")

# vLLM's own builds: Docker Hub (under any mirror that keeps the path) and its ECR registry.
_OWN_IMAGE: Final = re.compile(
    r"(?:^|/)vllm/vllm-(?:openai|tpu|openai-rocm|openai-cpu)$"
    r"|^public\.ecr\.aws/[a-z0-9]+/vllm(?:-[a-z]+)*(?:-repo)?$"
)
# v0.10.2, 0.9.1, v0.11.0rc1, v0.8.5.post1; then a build suffix: -cu129, -x86_64, -aarch64.
_TAG: Final = re.compile(r"v?(\d+\.\d+\.\d+(?:\.\d+)?(?:rc\d+)?(?:\.post\d+)?)(?:[-+_].*)?")


def version_from_image(image: str) -> Version | None:
    """The vLLM version that an image reference states, ``None`` where it does not.

    Only vLLM's own images count: the tag of anybody else's image is that project's own version.
    ``latest`` and ``nightly`` state nothing; neither does a digest without a tag.
    """
    reference = image.strip().split("@", 1)[0]
    name, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:  # no tag: the colon belongs to a registry's port
        return None
    if not _OWN_IMAGE.search(name):
        return None
    match = _TAG.fullmatch(tag)
    if match is None:
        return None
    try:
        return Version(match[1])
    except InvalidVersion:
        return None


def is_known(version: Version) -> bool:
    """Whether the rules of this version were read; outside, the nearest known ones are applied."""
    return OLDEST_KNOWN.release <= version.release <= NEWEST_KNOWN.release


def at_least(version: Version, since: str) -> bool:
    """Whether ``since`` (``0.28``) is not later; pre- and post-releases count as their release."""
    return version.release >= release(since)


def release(text: str) -> tuple[int, ...]:
    """``0.10.2`` as a tuple that compares by number, without trailing zeros."""
    parts = [int(part) for part in text.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def short(version: Version) -> str:
    """As people write it: ``0.33``, ``0.20.2``."""
    text = version.public
    return text[:-2] if version.release[2:] == (0,) and text.endswith(".0") else text
