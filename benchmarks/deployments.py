"""Reads every real deployment file of a corpus and compares with its manifest.

    python benchmarks/deployments.py --corpus DIR [--json] [-v]

``DIR`` holds ``MANIFEST.jsonl`` and the files it names. Prints how many files were read, refused
in clear words, or read differently from the manifest; a traceback counts as a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmserve.manifests.reader import read_file

if TYPE_CHECKING:
    from pytest_llmserve.manifests.launch import ConfigEntry, Launch, Reading

READ_FORMS = ("k8s-deployment", "k8s-statefulset", "lws", "compose", "shell", "shell-docker-run")
MODEL_FLAGS = ("--model", "-m", "--model-path", "--model-id")


@dataclass
class Result:
    """One case: what came of it and where it differs."""

    file: str
    form: str
    engine: str
    outcome: str
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    milliseconds: float = 0.0


def model_of(launch: Launch) -> str | None:
    """The model as the command line or its config file names it."""
    words = [word.text for word in launch.argv]
    for index, text in enumerate(words):
        flag, equals, value = text.partition("=")
        if flag in MODEL_FLAGS:
            return value if equals else "".join(words[index + 1 : index + 2])
    for entry in launch.config_entries:
        if entry.key == "model":
            return str(entry.value)
    if words and not words[0].startswith("-"):
        return words[0]
    model_id = launch.env.get("MODEL_ID")
    return model_id.text if model_id else None


def compare(case: dict[str, Any], reading: Reading) -> list[str]:
    """Differences between the manifest's reading and ours, one sentence each."""
    found = list(reading.launches)
    out = []
    if len(found) != case["n_servers"]:
        out.append(f"{len(found)} servers, the manifest says {case['n_servers']}")
    for server, launch in zip(case["servers"], found, strict=False):
        model = model_of(launch)
        if server.get("model") and model != server["model"]:
            out.append(f"{launch.name}: model {model!r}, the manifest says {server['model']!r}")
        ours = {squeezed(word.text) for word in launch.argv}
        if case["form"] == "vllm-config-yaml":
            ours = {flag_of(entry) for entry in launch.config_entries}
        theirs = {squeezed(text) for text in server.get("args", [])}
        extra, missing = sorted(ours - theirs - {"***"}), sorted(theirs - ours)
        missing = missing["***" in ours :]  # one secret is masked
        if extra or missing:
            out.append(f"{launch.name}: only ours {extra}, only the manifest's {missing}")
    counts = [launch.gpu.count for launch in found if launch.is_deployed]
    expected = case.get("gpus_per_instance")
    known = [count for count in counts if count is not None]
    is_complete = counts and len(known) == len(counts)
    if is_complete and expected is not None and sum(known) != expected:
        out.append(f"{counts} GPUs, the manifest says {expected} ({case.get('gpu_how')})")
    return out


def flag_of(entry: ConfigEntry) -> str:
    """A key of a --config file as the manifest writes it."""
    return f"--{entry.key}" if entry.value is True else f"--{entry.key}={entry.value}"


def squeezed(text: str) -> str:
    """Blanks inside JSON do not matter."""
    return "".join(text.split())


def run(case: dict[str, Any], corpus: Path) -> Result:
    """Read one case."""
    result = Result(case["file"], case["form"], case["engine"], "")
    start = time.perf_counter()
    try:
        reading = read_file(corpus / case["file"], display=case["file"])
    except Exception:
        result.outcome = "traceback"
        result.differences = traceback.format_exc().splitlines()[-12:]
        return result
    result.milliseconds = 1e3 * (time.perf_counter() - start)
    result.problems = [f"{p.kind}: {p}" for p in reading.problems]
    for launch in reading.launches:
        result.launches.append(summary(launch))
        result.problems += [f"{p.kind}: {p}" for p in launch.problems]
    if case["form"] in READ_FORMS or case["form"] == "vllm-config-yaml":
        result.differences = compare(case, reading)
    if not reading.launches:
        result.outcome = "refused" if reading.problems else "silent"
    else:
        result.outcome = "different" if result.differences else "read"
    return result


def summary(launch: Launch) -> str:
    """One line about one launch."""
    gpu = launch.gpu
    labels = ", ".join(f"{label.key}={'|'.join(label.alternatives)}" for label in gpu.labels)
    unknown = sorted({name for word in launch.argv for name in word.unresolved})
    return (
        f"{launch.location} {launch.name} [{launch.form}, {launch.runtime}, {launch.entrypoint}]"
        f" gpus={gpu.count} ({gpu.count_source}) {labels} unresolved={unknown}"
        f" argv={[word.text for word in launch.argv]}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with MANIFEST.jsonl")
    parser.add_argument("--json", action="store_true", help="print one JSON object a case")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every reading")
    options = parser.parse_args()
    manifest = (options.corpus / "MANIFEST.jsonl").read_text(encoding="utf-8")
    results = [run(json.loads(row), options.corpus) for row in manifest.splitlines() if row]
    for result in results:
        if options.json:
            print(json.dumps(asdict(result)))
        elif options.verbose or result.outcome in ("different", "traceback", "silent"):
            print(f"{result.outcome:9} {result.form:16} {result.file}")
            details = result.launches + result.problems if options.verbose else []
            for row in (*result.differences, *details):
                print(f"          {row}")
    if not options.json:
        summarise(results)
    return 1 if any(r.outcome in ("traceback", "silent") for r in results) else 0


def summarise(results: list[Result]) -> None:
    """Counts over all cases and over the forms that are meant to be read."""
    groups = {
        "all": results,
        "vLLM in a form that is read": [
            r for r in results if r.engine == "vllm" and r.form in (*READ_FORMS, "vllm-config-yaml")
        ],
        "other engines in a form that is read": [
            r for r in results if r.engine != "vllm" and r.form in READ_FORMS
        ],
    }
    for name, group in groups.items():
        counts = Counter(r.outcome for r in group)
        shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        print(f"{name}: {len(group)} files: {shown}")
    slow = max(results, key=lambda r: r.milliseconds)
    total = sum(r.milliseconds for r in results)
    print(f"{total:.0f} ms in all, slowest {slow.milliseconds:.1f} ms ({slow.file})")


if __name__ == "__main__":
    sys.exit(main())
