"""Parts of a compose service: environment, GPUs, mounted files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytest_llmserve.manifests.gpu_claims import AMD, NVIDIA, device_count
from pytest_llmserve.manifests.launch import GpuClaim
from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.variables import parse_env_file
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_llmserve.manifests.gathering import Gathering
    from pytest_llmserve.manifests.text import SourceText
    from pytest_llmserve.verdict import Location, Problem


class Reader(Protocol):
    """The part of a compose reader that is needed here."""

    root: Mapping
    gathering: Gathering
    values: dict[str, str]

    def text(self, node: Scalar, problems: list[Problem]) -> str:
        """A scalar's text with its variables replaced."""
        ...

    def number(self, node: Scalar, key: str, problems: list[Problem]) -> int | None:
        """A scalar as a count."""
        ...

    def interpolated(self, node: Scalar, problems: list[Problem]) -> SourceText:
        """A scalar with its variables replaced."""
        ...


def environment(
    service: Mapping, reader: Reader, problems: list[Problem]
) -> tuple[dict[str, str], dict[str, Location]]:
    """The container's variables and their places: ``environment`` over ``env_file``."""
    values: dict[str, str] = {}
    places: dict[str, Location] = {}
    for name in _env_files(service, reader, problems):
        values.update(parse_env_file(reader.gathering.text_beside(name) or ""))
    for name, value, node in _pairs(service, reader, problems):
        places[name] = node.location
        if value is not None:
            values[name] = masked(name, value)
        elif name in reader.values:  # passed through from the caller's environment
            values[name] = reader.values[name]
    return values, places


def _env_files(service: Mapping, reader: Reader, problems: list[Problem]) -> Iterator[str]:
    node = service.get("env_file")
    items = [node] if isinstance(node, Scalar) else service.items("env_file")
    for item in items:
        path = item if isinstance(item, Scalar) else None
        if isinstance(item, Mapping):
            inner = item.get("path")
            path = inner if isinstance(inner, Scalar) else None
        if path is not None:
            yield reader.text(path, problems)


def _pairs(
    service: Mapping, reader: Reader, problems: list[Problem]
) -> Iterator[tuple[str, str | None, Scalar]]:
    node = service.get("environment")
    if isinstance(node, Mapping):
        for name, item in node.entries.items():
            if isinstance(item, Scalar):
                yield name, None if item.is_null else reader.text(item, problems), item
        return
    for item in service.items("environment"):
        if isinstance(item, Scalar):
            name, equals, value = reader.text(item, problems).partition("=")
            yield name, value if equals else None, item


def gpu_claim(service: Mapping, reader: Reader, problems: list[Problem]) -> GpuClaim:
    """GPUs by ``deploy...devices``, ``gpus``, ``runtime: nvidia`` or AMD's device files."""
    for path in (("deploy", "resources", "reservations", "devices"), ("gpus",)):
        node = service.get(*path)
        if isinstance(node, Scalar):
            return _counted(node, "gpus", reader, problems)
        for device in service.mappings(*path):
            if path == ("gpus",) or _is_gpu(device):
                return _device(device, reader, problems)
    for item in service.items("devices"):
        if isinstance(item, Scalar) and item.text.startswith("/dev/kfd"):
            return GpuClaim(
                count_source="devices: /dev/kfd", count_location=item.location, resource=AMD
            )
        if isinstance(item, Scalar) and item.text.startswith("nvidia.com/gpu="):
            return _cdi(service, item)
    if service.text("runtime") == "nvidia":
        return GpuClaim(count_source="runtime: nvidia", resource=NVIDIA)
    return GpuClaim()


def _cdi(service: Mapping, first: Scalar) -> GpuClaim:
    names = [
        item.text.partition("=")[2]
        for item in service.items("devices")
        if isinstance(item, Scalar) and item.text.startswith("nvidia.com/gpu=")
    ]
    count = None if "all" in names else len(names)
    return _claim(count, "devices: nvidia.com/gpu", first, NVIDIA)


def _is_gpu(device: Mapping) -> bool:
    capabilities = [c.text for c in device.items("capabilities") if isinstance(c, Scalar)]
    return "gpu" in capabilities or device.text("driver") in ("nvidia", "amd", "cdi")


def _device(device: Mapping, reader: Reader, problems: list[Problem]) -> GpuClaim:
    resource = AMD if device.text("driver") == "amd" else NVIDIA
    ids = [item for item in device.items("device_ids") if isinstance(item, Scalar)]
    if ids:
        count = device_count(",".join(reader.text(item, problems) for item in ids))
        return _claim(count, "device_ids", ids[0], resource)
    node = device.get("count")
    if isinstance(node, Scalar):
        return _counted(node, "devices count", reader, problems, resource)
    return GpuClaim(
        count_source="devices without a count: all",
        count_location=device.location,
        resource=resource,
    )


def _counted(
    node: Scalar, key: str, reader: Reader, problems: list[Problem], resource: str = NVIDIA
) -> GpuClaim:
    if reader.text(node, problems) in ("all", "-1"):
        return _claim(None, f"{key}: all", node, resource)
    return _claim(reader.number(node, key, problems), key, node, resource)


def _claim(count: int | None, source: str, node: Scalar, resource: str) -> GpuClaim:
    return GpuClaim(
        count_per_pod=count, count_source=source, count_location=node.location, resource=resource
    )


def mounted_files(
    service: Mapping, reader: Reader, problems: list[Problem]
) -> dict[str, SourceText]:
    """``configs:`` with their content in the file, or in a file beside it."""
    files: dict[str, SourceText] = {}
    for item in service.items("configs"):
        name = item.text if isinstance(item, Scalar) else None
        target = f"/{name}"
        if isinstance(item, Mapping):
            name = item.text("source")
            target = item.text("target") or f"/{name}"
        config = reader.root.mapping("configs", name or "")
        content = config.get("content") if config is not None else None
        source = None
        if isinstance(content, Scalar):
            source = reader.interpolated(content, problems)
        elif config is not None and config.text("file"):
            source = reader.gathering.beside(config.text("file") or "")
        if source is not None:
            files[target] = source
    return files


def through_volumes(
    volumes: Sequence[tuple[str, str]], beside: Callable[[str], SourceText | None]
) -> Callable[[str], SourceText | None]:
    """Finds a container's file under the host path that is mounted there, else beside."""

    def find(path: str) -> SourceText | None:
        for host, inside in volumes:
            root = inside.rstrip("/")
            if inside and (path == inside or path.startswith(root + "/")):
                return beside(host.rstrip("/") + path[len(root) :])
        return beside(path)

    return find
