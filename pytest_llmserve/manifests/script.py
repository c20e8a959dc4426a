"""Shell scripts and one-line commands: ``vllm serve``, ``docker run``, batch jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import ContainerReading, read_script
from pytest_llmserve.manifests.found import Container, Found, launch_of
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.servers import launch_line
from pytest_llmserve.manifests.shell_state import State
from pytest_llmserve.manifests.text import SourceText, is_unknown
from pytest_llmserve.verdict import Location, ProblemKind

if TYPE_CHECKING:
    from pytest_llmserve.manifests.gathering import Gathering

_SBATCH: Final = re.compile(r"^#SBATCH\s+--?([A-Za-z-]+)(?:[= ]\s*(\S+))?", re.MULTILINE)
_GRES: Final = re.compile(r"(?:gres/)?gpu(?::([A-Za-z][\w.-]*))?(?:[:=](\d+))?(?:\(.*\))?")


def read_script_file(text: str, gathering: Gathering) -> None:
    """Launches of one script, added to ``gathering``."""
    source = SourceText.of_lines(text, gathering.file)
    container = Container(
        image=None,
        entrypoint=None,
        arguments=[],
        environment={},
        location=Location(gathering.file, 1),
        beside=gathering.beside,
    )
    reading = ContainerReading()
    read_script(source, State(zero=gathering.path.stem), container, reading)
    gathering.problems.extend(reading.problems)
    batch, nodes = _batch_claim(text, gathering.file)
    for found in reading.found:
        is_docker = found.gpu is not None
        gathering.launches.append(
            launch_of(
                found,
                name=gathering.names.unique(_name(found, gathering)),
                form="docker run" if is_docker else "slurm" if batch.resource else "shell",
                gpu=GpuClaim() if is_docker else batch,
                notes=(*gathering.notes, *nodes),
            )
        )
    if not reading.found:
        gathering.ignored.append(reading.ignored or "no server in this script")
        line = launch_line(text)
        if line is not None and not reading.problems:
            message = (
                "this line looks like a launch and could not be followed to one"
                " (inside another program's text?)"
            )
            gathering.problem(ProblemKind.UNKNOWN, message, line)


def _name(found: Found, gathering: Gathering) -> str:
    if found.name and not is_unknown(found.name):
        return found.name
    fields = found.fields
    for index, item in enumerate(fields):
        flag, equals, value = item.text.replace("_", "-").partition("=")
        if flag == "--served-model-name":
            value = item.text.partition("=")[2] if equals else ""
            if not equals and index + 1 < len(fields):
                value = fields[index + 1].text
            if value and not is_unknown(value):
                return value
    return gathering.path.stem or gathering.path.name


def _batch_claim(text: str, file: str) -> tuple[GpuClaim, tuple[str, ...]]:
    """``#SBATCH --gres=gpu:h100:8``, ``--gpus-per-node``, ``--nodes``."""
    nodes = 1
    count: int | None = None
    label: tuple[GpuLabel, ...] = ()
    place: Location | None = None
    for match in _SBATCH.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        name, value = match[1], match[2] or ""
        if name in ("nodes", "N") and value.isdecimal():
            nodes = int(value)
        elif name in ("gres", "gpus-per-node", "gpus-per-task", "gpus", "G"):
            prefix = "" if name == "gres" else "gpu:" if not value.startswith("gpu") else ""
            gres = _GRES.fullmatch((prefix + value).split(",")[0])
            place = Location(file, line)
            if gres is not None:
                count = int(gres[2]) if gres[2] else None
                label = (GpuLabel(f"sbatch --{name}", (gres[1],), place),) if gres[1] else ()
    if place is None:
        return GpuClaim(), ()
    note = (f"#SBATCH asks for {nodes} nodes",) if nodes > 1 else ()
    claim = GpuClaim(
        count_per_pod=count,
        count_source="#SBATCH",
        count_location=place,
        pods_per_instance=nodes,
        resource="slurm gpu",
        labels=label,
    )
    return claim, note
