"""Which program a command line starts: command first, image second, names of containers never."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

API_SERVER: Final = "vllm.entrypoints.openai.api_server"
VLLM_SERVE: Final = "vllm serve"


@dataclass(frozen=True, slots=True)
class Start:
    """Where in a command line the interesting program stands.

    ``index`` is the first word after the program (its arguments); ``begin`` the program itself.
    """

    kind: Literal["server", "router", "shell", "docker"]
    runtime: str
    entrypoint: str
    begin: int
    index: int


# Programs that start what follows them. Options of theirs may take values, so what follows is
# searched for a program that we know.
_WRAPPERS: Final = frozenset(
    {"exec", "nohup", "env", "time", "command", "builtin", "sudo"}
    | {"doas", "setsid", "stdbuf", "nice", "ionice", "chrt", "taskset"}
    | {"timeout", "numactl", "srun", "mpirun", "mpiexec", "torchrun", "tini"}
    | {"dumb-init", "catatonit", "gosu", "su-exec", "uv", "uvx", "poetry"}
    | {"conda", "mamba", "micromamba", "pixi", "pdm", "nsys", "ncu"}
    | {
        "opentelemetry-instrument",
        "ddtrace-run",
        "xvfb-run",
        "apptainer",
        "singularity",
        "enroot",
        "prlimit",
    }
    | {"systemd-run", "unbuffer", "script", "chroot", "setpriv"}
)
SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_CONTAINER_TOOLS: Final = frozenset({"docker", "podman", "nerdctl"})
_PYTHON: Final = re.compile(r"python(?:3(?:\.\d+)?)?|pypy3?")
_PYTHON_VALUE_OPTIONS: Final = frozenset({"-X", "-W"})

_MODULES: Final = (
    (re.compile(r"vllm\.entrypoints\.(?:openai\.)?api_server"), "vllm", ""),
    (re.compile(r"vllm\.entrypoints\.cli\.main"), "vllm", "serve"),
    (re.compile(r"sglang\.launch_server|sglang\.srt\.server"), "sglang", ""),
    (re.compile(r"dynamo\.vllm"), "vllm", ""),
    (re.compile(r"dynamo\.sglang"), "sglang", ""),
    (re.compile(r"dynamo\.trtllm"), "tensorrt_llm", ""),
    (re.compile(r"llama_cpp\.server"), "llama-cpp-python", ""),
    (re.compile(r"lmdeploy"), "lmdeploy", "serve"),
    (re.compile(r"lightllm\.server\.api_server"), "lightllm", ""),
    (re.compile(r"tensorrt_llm\.commands\.serve"), "tensorrt_llm", ""),
)
_ROUTER_MODULES: Final = re.compile(
    r"sglang_router\.\w+|sglang\.srt\.disaggregation\.(?:mini_lb|launch_lb)|dynamo\.(?:frontend|router)"
    r"|vllm_router\.\w+|vllm\.entrypoints\.(?:openai\.)?proxy\w*"
)
_PROGRAMS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "vllm": ("vllm", frozenset({"serve"})),
    "sglang": ("sglang", frozenset({"serve"})),
    "trtllm-serve": ("tensorrt_llm", frozenset()),
    "text-generation-launcher": ("tgi", frozenset()),
    "llama-server": ("llamacpp", frozenset()),
    "ollama": ("ollama", frozenset({"serve", "run"})),
    "lmdeploy": ("lmdeploy", frozenset({"serve"})),
    "tritonserver": ("triton", frozenset()),
    "mlc_llm": ("mlc_llm", frozenset({"serve"})),
    "aphrodite": ("aphrodite", frozenset({"run"})),
    "ramalama": ("ramalama", frozenset({"serve"})),
    "tabbyapi": ("tabbyapi", frozenset()),
}
_ROUTERS: Final = frozenset({"vllm-router", "sglang-router", "llm-d-routing-sidecar", "pd-sidecar"})
_SCRIPTS: Final = re.compile(r"(?:.*/)?vllm/entrypoints/openai/api_server\.py")


def find_start(words: Sequence[str]) -> Start | None:
    """The server, router, shell or ``docker run`` that a command line starts, wrappers skipped."""
    if not words:
        return None
    start = _start_at(words, 0)
    if start is not None or _basename(words[0]) not in _WRAPPERS:
        return start
    for index in range(1, len(words)):
        start = _start_at(words, index)
        if start is not None:
            return start
    return None


def _basename(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def _start_at(words: Sequence[str], begin: int) -> Start | None:
    name = _basename(words[begin])
    if name in _PROGRAMS:
        return _program(words, begin, name)
    if _PYTHON.fullmatch(name):
        return _python(words, begin)
    if name in SHELLS:
        return Start("shell", "", name, begin, begin + 1)
    if name in _CONTAINER_TOOLS:
        return _container_run(words, begin, name)
    if name in _ROUTERS:
        return Start("router", name, name, begin, begin + 1)
    if _SCRIPTS.fullmatch(words[begin]):
        return Start("server", "vllm", API_SERVER, begin, begin + 1)
    return None


def _program(words: Sequence[str], begin: int, name: str) -> Start | None:
    runtime, subcommands = _PROGRAMS[name]
    index = begin + 1
    if subcommands:
        if index >= len(words) or words[index] not in subcommands:
            return None
        return Start("server", runtime, f"{name} {words[index]}", begin, index + 1)
    if name == "trtllm-serve" and index < len(words) and words[index] == "serve":
        index += 1
    return Start("server", runtime, name, begin, index)


def _python(words: Sequence[str], begin: int) -> Start | None:
    index = begin + 1
    while index < len(words) and words[index].startswith("-"):
        option = words[index]
        if option.startswith("-m"):
            module = option[2:] or (words[index + 1] if index + 1 < len(words) else "")
            return _module(words, begin, module, index + (1 if option[2:] else 2))
        index += 2 if option in _PYTHON_VALUE_OPTIONS else 1
    if index >= len(words):
        return None
    if _SCRIPTS.fullmatch(words[index]):
        return Start("server", "vllm", API_SERVER, begin, index + 1)
    # python /usr/bin/vllm serve ...
    return _program(words, index, name) if (name := _basename(words[index])) in _PROGRAMS else None


def _module(words: Sequence[str], begin: int, module: str, index: int) -> Start | None:
    if _ROUTER_MODULES.fullmatch(module):
        return Start("router", module, module, begin, index)
    for pattern, runtime, subcommand in _MODULES:
        if pattern.fullmatch(module):
            entrypoint = module
            if subcommand:
                if index >= len(words) or words[index] != subcommand:
                    return None
                index += 1
                entrypoint = VLLM_SERVE if runtime == "vllm" else f"{module} {subcommand}"
            return Start("server", runtime, entrypoint, begin, index)
    return None


def _container_run(words: Sequence[str], begin: int, name: str) -> Start | None:
    for index in range(begin + 1, min(begin + 12, len(words))):
        if words[index] in ("run", "create"):
            return Start("docker", "", f"{name} {words[index]}", begin, index + 1)
        if words[index] in ("compose", "build", "exec", "pull", "service"):
            return None
    return None


# Images whose own entrypoint is a server. The first match counts.
_NOT_SERVERS: Final = re.compile(
    r"router|gateway|sidecar|proxy|/runtime\b|benchmark|/lmcache-server|exporter|controller"
    r"|operator|downloader|fetcher|dashboard|webui"
)
_IMAGES: Final = (
    (re.compile(r"vllm-(?:tpu|hpu|cpu-env)"), None, ""),
    (re.compile(r"vllm-openai"), "vllm", ""),
    (re.compile(r"text-generation-inference"), "tgi", "text-generation-launcher"),
    (
        re.compile(r"llama\.cpp:server|ik-llama-cpp|llama-cpp.*server|llama-server"),
        "llamacpp",
        "llama-server",
    ),
    (re.compile(r"ollama"), "ollama", "ollama serve"),
    (re.compile(r"/nim/"), "nim", "nim"),
    (re.compile(r"/sglang|/sgl-|tritonserver|tensorrt-?llm"), None, ""),
)
_OFFICIAL: Final = re.compile(r"(?:^|docker\.io/)vllm/vllm-openai(?:-\w+)?(?:[:@]|$)")
_IMAGE_TAG: Final = re.compile(r":v?(\d+)\.(\d+)(?:\.(\d+))?")
# The official image starts the API module up to 0.11.0 and `vllm serve` later (its Dockerfile;
# the exact release is inferred from image inspections quoted in public issues).
_SERVE_SINCE: Final = (0, 11, 1)


@dataclass(frozen=True, slots=True)
class ImageStart:
    """What an image starts by itself; ``runtime`` None: nothing that serves a model."""

    runtime: str | None
    entrypoint: str
    is_guess: bool = False


def image_start(image: str, arguments: Sequence[str]) -> ImageStart | None:
    """The server that an image's own entrypoint is.

    Returns:
        None where the image is not known and its arguments do not look like a server's;
        ``is_guess`` where only the arguments or the image's name speak for vLLM.
    """
    if _NOT_SERVERS.search(image):
        return None
    for pattern, runtime, entrypoint in _IMAGES:
        if pattern.search(image):
            return ImageStart(runtime, entrypoint or vllm_entrypoint(image))
    runtime = looks_like_engine(arguments)
    if runtime is None:
        return None
    entrypoint = vllm_entrypoint(image) if runtime == "vllm" else _GUESSED[runtime]
    return ImageStart(runtime, entrypoint, is_guess=True)


def is_official(image: str) -> bool:
    """Whether the image is the vLLM project's own, whose entrypoint is known."""
    return _OFFICIAL.search(image) is not None


def vllm_entrypoint(image: str) -> str:
    """What a vllm-openai image of this tag starts; untagged and unreadable ones count as new."""
    match = _IMAGE_TAG.search(image)
    if match is None or "lmcache" in image:
        return VLLM_SERVE
    version = (int(match[1]), int(match[2]), int(match[3] or 0))
    return VLLM_SERVE if version >= _SERVE_SINCE else API_SERVER


_VLLM_FLAGS: Final = frozenset(
    {"gpu-memory-utilization", "max-model-len", "max-num-seqs", "tensor-parallel-size"}
    | {"kv-cache-dtype", "max-num-batched-tokens", "enforce-eager", "served-model-name"}
    | {"enable-prefix-caching", "pipeline-parallel-size", "data-parallel-size"}
)


_TGI_FLAGS: Final = frozenset(
    {"num-shard", "max-total-tokens", "max-input-length", "max-input-tokens"}
    | {"max-batch-prefill-tokens", "max-batch-total-tokens", "sharded", "cuda-memory-fraction"}
)
_SGLANG_FLAGS: Final = frozenset(
    {"mem-fraction-static", "tp-size", "enable-dp-attention", "disable-radix-cache"}
    | {"chunked-prefill-size", "dist-init-addr", "max-running-requests", "cuda-graph-max-bs"}
)
_GUESSED: Final = {"tgi": "text-generation-launcher", "sglang": "sglang.launch_server"}


def looks_like_engine(arguments: Sequence[str]) -> str | None:
    """The runtime whose own flags are among the arguments, where only one knows them."""
    flags = {
        text[2:].partition("=")[0].partition(" ")[0].replace("_", "-")
        for text in arguments
        if text.startswith("--")
    }
    for runtime, known in (
        ("vllm", _VLLM_FLAGS),
        ("sglang", _SGLANG_FLAGS),
        ("tgi", _TGI_FLAGS),
    ):
        if not known.isdisjoint(flags):
            return runtime
    return None


_ENGINE_WORDS: Final = re.compile(
    r"vllm|sglang|text-generation|tensorrt-?llm|trtllm|llama-server|llama\.cpp|ollama",
    re.IGNORECASE,
)
_LAUNCH: Final = re.compile(
    r"\bvllm serve\b|vllm\.entrypoints\.|sglang\.launch_server|\bsglang serve\b|\btrtllm-serve\b"
    r"|text-generation-launcher|\bllama-server\b|vllm/vllm-openai"
)


def names_engine(text: str) -> bool:
    """Whether any serving engine is named in ``text``."""
    return _ENGINE_WORDS.search(text) is not None


def launch_line(text: str) -> int | None:
    """The first line (1-based) that looks like a launch and is no comment."""
    for number, row in enumerate(text.split("\n"), start=1):
        stripped = row.strip()
        if stripped and not stripped.startswith("#") and _LAUNCH.search(stripped):
            return number
    return None
