"""Reads every real deployment file of a corpus and holds each server against its manifest.

    python benchmarks/readers.py --corpus DIR [--json] [-v] [--no-speed]

``DIR`` holds ``MANIFEST.jsonl`` and the files it names. A server record is *exact* if runtime,
model, every argument, GPU kind and GPU count are those of the manifest. What differs is shown; a
server that the manifest does not know is *invented*; a file that yields neither server nor problem
is *silent*. Line numbers are checked against the files themselves.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reader_records import gpu_differences, matched, record_differences

from pytest_llmserve.manifests.reader import read_file
from pytest_llmserve.policy import Facts
from pytest_llmserve.servers.gpus import gpu_count

if TYPE_CHECKING:
    from pytest_llmserve.manifests.launch import Launch, Reading

# Records of the public half where the manifest is wrong, or says less than the file: why.
MANIFEST_IS_WRONG: dict[str, str] = {
    "lws/examples__sglang__lws.yaml": "worker pods join the leader's server: one server, not two",
    "llmaz/examples__multi-nodes__service.yaml": "worker pods join the leader's server",
    "deepseek-r1-gpu-naive.yaml": "worker pods of one server are listed as a second server",
    "pd-gpu-p-deepep-ht-d-pplx.yaml": "worker pods of one server are listed as a third server",
    "storage__hf__hf_isvc.yaml": "its own engine field says hf-transformers: --backend=huggingface",
    "llmisvc__e2e-gpt-oss__inference_default.yaml": "the baseRef lies beside it and holds the args",
    "pipeline-parallel-example-multiple-modelspec.yaml": "2 + 1 GPUs are 3, as its own note adds",
    "assets__values-16-disagg-prefill.yaml": "the chart adds a transfer config where LMCache is on",
    "examples__values-dra.yaml": "the chart passes tensor: 2 on and claims as many devices",
    "noonghunna__club-3090/dual__fp8__mtp.yml": "leaves out the SAMPLER_ARGS that both ways append",
    "dual__unsloth-q8-kxl__offload.yml": "the second launch is reached with SPEC=off only",
    "aggregated-slurm-benchmark-config.yaml": "leaves out keys of server (backend, ...)",
    "Modelfile.qwen3-coder": "leaves out PARAMETER temperature",
    "tgi__tgi-7b-token__patch.yaml": "GPU and label of the base, which is not in this file",
}


@dataclass
class Case:
    """One file: its records and what came of each."""

    file: str
    form: str
    records: int
    exact: int = 0
    set_aside: int = 0
    invented: int = 0
    outcome: str = ""
    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    lines_right: int = 0
    lines_wrong: list[str] = field(default_factory=list)
    aside_reason: str = ""


def check_lines(launch: Launch, rows: list[str], case: Case) -> None:
    """Whether every argument stands in the line that it says it does."""
    for word in launch.argv:
        row = rows[word.location.line - 1] if word.location.line <= len(rows) else ""
        if word.location.file != case.file or stands_in(word.text, row):
            case.lines_right += 1
        elif word.unresolved:
            case.lines_right += bool(row.strip())
        else:
            case.lines_wrong.append(
                f"{word.location}: {word.text!r} is not in {row.strip()[:60]!r}"
            )


def stands_in(text: str, row: str) -> bool:
    squeezed = re.sub(r"[\W_]+", "", row).lower()
    name, _, value = text.partition("=")
    last = text.rsplit("/", 1)[-1]
    steps = [step for step in re.split(r"[-_]", name) if len(step) > 3]
    for part in (text, name, value, name.removeprefix("--no-"), last, *steps):
        plain = re.sub(r"[\W_]+", "", part).lower()
        if plain and (plain in squeezed or plain[:24] in squeezed):
            return True
    return "$" in row or "{{" in row or not re.sub(r"[\W_]+", "", text)


def run(expected: dict[str, Any], corpus: Path) -> Case:
    """Read one file and compare."""
    case = Case(expected["file"], expected["form"], expected["n_servers"])
    path = corpus / expected["file"]
    try:
        reading = read_file(path, display=expected["file"])
    except Exception:
        case.outcome = "traceback"
        case.differences = traceback.format_exc().splitlines()[-8:]
        return case
    launches = list(reading.launches)
    case.problems = [f"{p.kind}: {p}" for p in reading.problems]
    rows = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for launch in launches:
        case.launches.append(summary(launch))
        case.problems += [f"{p.kind}: {p}" for p in launch.problems]
        check_lines(launch, rows, case)
    score(case, expected, reading)
    if not launches and not reading.problems:
        case.outcome = "silent"
    return case


def score(case: Case, expected: dict[str, Any], reading: Reading) -> None:
    """Count exact records, those set aside and those invented; name the rest."""
    aside = next((why for end, why in MANIFEST_IS_WRONG.items() if case.file.endswith(end)), None)
    gpu = gpu_differences(expected, list(reading.launches)) if reading.launches else []
    wrong: list[str] = []
    for launch, server in matched(expected, reading):
        found = ["not read"] if launch is None else record_differences(launch, server)
        if launch is not None:
            found += gpu
        if not found:
            case.exact += 1
        else:
            wrong += [f"{server.get('role')}: {item}" for item in found]
    case.invented = max(len(reading.launches) - len(expected["servers"]), 0)
    case.differences = wrong
    missing = len(expected["servers"]) - case.exact
    if aside is not None and (missing or case.invented):
        case.set_aside, case.aside_reason, case.invented = missing, aside, 0
    is_named = any(
        p.split(":")[0] in ("unresolved", "unknown", "unreadable", "refused") for p in case.problems
    )
    if not missing:
        case.outcome = "exact"
    elif case.set_aside:
        case.outcome = "set aside"
    else:
        case.outcome = "named" if is_named else "different"


def summary(launch: Launch) -> str:
    """One line about one launch."""
    labels = ", ".join(f"{x.key}={'|'.join(x.alternatives)}" for x in launch.gpu.labels)
    unknown = sorted({name for word in launch.argv for name in word.unresolved})
    count = gpu_count(launch, Facts())
    return (
        f"{launch.location} {launch.name} [{launch.form}, {launch.runtime}, {launch.entrypoint}]"
        f" gpus={count and count.value} ({launch.gpu.count_source}) {labels} unresolved={unknown}"
        f" replicas={launch.replicas} deployed={launch.is_deployed}"
        f" sources={[(s.path, s.source) for s in launch.model_sources]}"
        f" argv={[word.text for word in launch.argv]}"
        f" config={[(e.key, e.value) for e in launch.config_entries]}"
    )


MANIFEST_DOCUMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat-{n}}}
spec:
  replicas: 2
  template:
    spec:
      nodeSelector: {{nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.19.1
          args: ["--model", "Qwen/Qwen3-32B", "--max-model-len=32768", "-tp", "2"]
          env: [{{name: HF_HOME, value: /data}}]
          resources: {{limits: {{nvidia.com/gpu: "2"}}}}
"""


def speed(files: int = 1000, documents: int = 8) -> tuple[float, float, int]:
    """Seconds of CPU and peak MiB for reading many manifests, and the servers found."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number in range(files):
            path = Path(folder) / f"m{number}.yaml"
            rows = [MANIFEST_DOCUMENT.format(n=f"{number}-{d}") for d in range(documents)]
            path.write_text("---\n".join(rows), encoding="utf-8")
            paths.append(path)
        start = time.process_time()
        found = sum(len(read_file(path).launches) for path in paths)
        seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds, peak, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--corpus", type=Path, required=True, help="the corpus, or its folder with MANIFEST.jsonl"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a file")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every reading")
    parser.add_argument("--no-speed", action="store_true", help="do not time 1,000 manifests")
    options = parser.parse_args()
    inner = options.corpus / "deployments"
    folder = inner if inner.is_dir() else options.corpus
    if not (folder / "MANIFEST.jsonl").is_file():
        parser.error(f"{folder}: no MANIFEST.jsonl there")
    manifest = (folder / "MANIFEST.jsonl").read_text(encoding="utf-8")
    cases = [run(json.loads(row), folder) for row in manifest.splitlines() if row]
    for case in cases:
        if options.json:
            print(json.dumps(asdict(case)))
        elif options.verbose or case.outcome != "exact" or case.invented or case.lines_wrong:
            print(f"{case.outcome:9} {case.form:20} {case.file}")
            details = case.launches + case.problems if options.verbose else case.problems[:2]
            for row in (*case.differences, case.aside_reason, *case.lines_wrong[:3], *details):
                if row:
                    print(f"          {row}")
    if not options.json:
        summarise(cases, with_speed=not options.no_speed)
    bad = ("traceback", "silent")
    return 1 if any(c.outcome in bad or c.invented for c in cases) else 0


def summarise(cases: list[Case], *, with_speed: bool) -> None:
    """The table of targets."""
    expected = sum(c.records for c in cases)
    aside = sum(c.set_aside for c in cases)
    exact = sum(c.exact for c in cases)
    counted = expected - aside
    outcomes = Counter(c.outcome for c in cases)
    lines = sum(c.lines_right for c in cases)
    wrong = sum(len(c.lines_wrong) for c in cases)
    different = [c for c in cases if c.outcome == "different"]
    print(f"files: {len(cases)}: " + ", ".join(f"{n} {o}" for o, n in outcomes.most_common()))
    print(f"server records: {expected}, of which {aside} set aside (the manifest is wrong)")
    print(
        f"read exactly: {exact} of {counted} = {100 * exact / max(counted, 1):.1f} % (target 97 %)"
    )
    print(f"invented servers: {sum(c.invented for c in cases)} (target 0)")
    print(f"tracebacks: {outcomes['traceback']}, silent files: {outcomes['silent']} (target 0)")
    print(f"shortfalls without a word: {len(different)} files (target 0)")
    print(f"arguments whose line is right: {lines} of {lines + wrong}")
    if with_speed:
        seconds, peak, found = speed()
        print(
            f"1,000 manifests x 8 documents: {seconds:.2f} s CPU, {found} servers,"
            f" peak {peak:.0f} MiB (targets 10 s, 300 MB)"
        )


if __name__ == "__main__":
    sys.exit(main())
