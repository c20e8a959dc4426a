"""Where a model comes from: addresses, downloads, and what a path says about its hub id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.launch import ModelSource
from pytest_llmserve.manifests.secrets import masked_text

if TYPE_CHECKING:
    from pytest_llmserve.verdict import Location

_SCHEMES: Final = ("hf://", "huggingface://", "hf:")
_ID: Final = r"[\w.-]+/[\w.-]+"
# Tools that fetch a model, and how they name it and its target.
_HUB_TOOL: Final = re.compile(
    rf"(?:hf|huggingface-cli)\s+download\s+(?:--\S+\s+)*[\"']?({_ID})[\"']?"
    r"(?P<rest>[^;&|]*)"
)
_LOCAL_DIR: Final = re.compile(r"--local-dir[= ]\s*[\"']?([^\s\"';]+)")
_SNAPSHOT: Final = re.compile(
    rf"snapshot_download\([^)]*?(?:repo_id\s*=\s*)?[\"']({_ID})[\"'][^)]*?local_dir\s*=\s*"
    r"[\"']([^\"']+)[\"']",
    re.DOTALL,
)
_CLONE: Final = re.compile(
    rf"git\s+clone\s+(?:\S+\s+)*?https://huggingface\.co/({_ID})\s+([^\s;&|]+)"
)
_COPY: Final = re.compile(
    r"(?:aws\s+s3\s+(?:cp|sync)|gsutil(?:\s+-m)?\s+(?:cp|rsync)|gcloud\s+storage\s+(?:cp|rsync)"
    r"|s5cmd\s+(?:cp|sync)|rclone\s+copy)\s+(?:-\S+\s+)*[\"']?((?:s3|gs)://[^\s\"']+)[\"']?\s+"
    r"(?:-\S+\s+)*[\"']?(/[^\s\"';&|]+)"
)
_OLLAMA: Final = re.compile(r"\bollama\s+(?:pull|run)\s+[\"']?([\w./:-]+)")
_AIBRIX: Final = re.compile(
    r"aibrix_download\b.*?--model-uri[= ](\S+).*?--local-dir[= ](\S+)", re.DOTALL
)


def hub_id(text: str) -> str:
    """``org/name`` of ``hf://org/name@revision``; any other text as it stands."""
    for scheme in _SCHEMES:
        if text.startswith(scheme):
            return text.removeprefix(scheme).strip("\"'").partition("@")[0]
    return text


def pulled(script: str, location: Location, who: str) -> tuple[ModelSource, ...]:
    """Models that a script tells an Ollama server to fetch: they have no path, but their name."""
    names = dict.fromkeys(_OLLAMA.findall(script))
    return tuple(ModelSource(name, name, f"{who}: ollama pull", location) for name in names)


def downloaded(script: str, location: Location, who: str) -> tuple[ModelSource, ...]:
    """Models that a script or command fetches, by the folder they land in."""
    found: dict[str, ModelSource] = {}

    def add(path: str, source: str, tool: str) -> None:
        shown = masked_text(source.rstrip("/"))
        path = path.rstrip("/") or "/"
        found.setdefault(path, ModelSource(path, shown, f"{who}: {tool}", location))

    for match in _HUB_TOOL.finditer(script):
        target = _LOCAL_DIR.search(match["rest"])
        if target is not None:
            add(target[1], match[1], "hf download")
    for match in _SNAPSHOT.finditer(script):
        add(match[2], match[1], "snapshot_download")
    for match in _CLONE.finditer(script):
        add(match[2], match[1].removesuffix(".git"), "git clone")
    for match in _COPY.finditer(script):
        add(match[2], match[1], "copy")
    for match in _AIBRIX.finditer(script):
        add(match[2], match[1], "aibrix_download")
    return tuple(found.values())
