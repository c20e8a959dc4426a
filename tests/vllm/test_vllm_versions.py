from __future__ import annotations

import pytest
from packaging.version import Version

from pytest_llmserve.runtimes.vllm.versions import (
    at_least,
    is_known,
    release,
    short,
    version_from_image,
)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.10.2", "0.10.2"),
        ("vllm/vllm-openai:0.9.1", "0.9.1"),
        ("docker.io/vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1"),
        ("vllm/vllm-openai:v0.11.0rc1", "0.11.0rc1"),
        ("vllm/vllm-openai:v0.19.1-x86_64", "0.19.1"),
        ("vllm/vllm-openai:v0.12.0-cu129", "0.12.0"),
        ("vllm/vllm-openai:v0.10.1.1", "0.10.1.1"),
        ("mirror.example.org:5000/vllm/vllm-openai:v0.27.1", "0.27.1"),
        ("vllm/vllm-openai:v0.22.1@sha256:" + "a" * 64, "0.22.1"),
        ("public.ecr.aws/q9t5s3a7/vllm-ci-postmerge-repo:v0.9.2", "0.9.2"),
    ],
)
def test_a_tag_of_vllms_own_image_states_the_version(image: str, version: str) -> None:
    assert version_from_image(image) == Version(version)


@pytest.mark.parametrize(
    "image",
    [
        "vllm/vllm-openai:latest",
        "vllm/vllm-openai:nightly",
        "vllm/vllm-openai",
        "vllm/vllm-openai@sha256:" + "a" * 64,
        "vllm/vllm-openai:nightly-8a4a2efc6fc32cdc30e4e35ba3f8c64dcd0aa1d0",
        "registry:5000/vllm/vllm-openai",
        "lmcache/vllm-openai:v0.3.2",
        "ghcr.io/llm-d/llm-d-cuda:v0.9.0",
        "intel/vllm:0.10.0-xpu",
        "us-docker.pkg.dev/project/repo/vllm:v0.6.4.post1",
        "quay.io/me/my-vllm/vllm-openai:v0.9.1",
        "",
    ],
)
def test_anything_else_states_no_version(image: str) -> None:
    assert version_from_image(image) is None


def test_versions_compare_by_release() -> None:
    assert at_least(Version("0.10.2"), "0.9")
    assert at_least(Version("0.28.0"), "0.28")
    assert at_least(Version("0.28.0rc1"), "0.28")
    assert not at_least(Version("0.10.1"), "0.10.1.1")
    assert release("0.11.0") == (0, 11)


@pytest.mark.parametrize(
    ("version", "known"),
    [("0.8.4", False), ("0.8.5", True), ("0.33.0", True), ("0.33.1", False), ("0.34.0", False)],
)
def test_known_versions_end_at_what_was_read(version: str, known: bool) -> None:
    assert is_known(Version(version)) is known


@pytest.mark.parametrize(
    ("version", "text"), [("0.33.0", "0.33"), ("0.20.2", "0.20.2"), ("0.10.1.1", "0.10.1.1")]
)
def test_short_spelling(version: str, text: str) -> None:
    assert short(Version(version)) == text
