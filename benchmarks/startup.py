"""What the plugin costs: unused, at the first deployment, at each further one, at 1,000 servers.

CPU time of whole pytest processes (user + system, children counted), the minimum of interleaved
runs, so that a busy machine shows less. Bytecode is cached, as on any machine that runs pytest a
second time, and no other plugin is loaded. Run: python benchmarks/startup.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

PLUGIN = ("-p", "pytest_llmserve.plugin")
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat-{n}
spec:
  template:
    spec:
      nodeSelector:
        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.19.1
          args:
            - --model=meta-llama/Llama-3.1-8B-Instruct
            - --max-model-len={length}
            - --max-num-seqs=64
          resources:
            limits:
              nvidia.com/gpu: "1"
"""


def cpu_s(folder: Path, *arguments: str) -> float:
    """CPU seconds of one pytest run in a folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder.parent / "bytecode")
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{ran.stdout}{ran.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def servers(folder: Path, count: int) -> Path:
    """A folder whose one file starts so many different servers."""
    folder.mkdir()
    documents = (MANIFEST.format(n=n, length=8192 + 16 * n) for n in range(count))
    (folder / "servers.yaml").write_text("---\n".join(documents))
    return folder


def measure(rounds: int, scratch: Path) -> dict[str, float]:
    """Every figure, in CPU milliseconds."""
    empty = scratch / "empty"
    empty.mkdir()
    (empty / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    one, more = servers(scratch / "one", 1), servers(scratch / "more", 51)
    runs: dict[str, tuple[Path, tuple[str, ...]]] = {
        "bare": (empty, ()),
        "unused": (empty, PLUGIN),
        "one": (one, (*PLUGIN, "--llmserve", "servers.yaml")),
        "more": (more, (*PLUGIN, "--llmserve", "servers.yaml")),
    }
    for folder, arguments in runs.values():
        cpu_s(folder, *arguments)  # fills the bytecode cache
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, (folder, arguments) in runs.items():
            best[name] = min(best[name], cpu_s(folder, *arguments))
    thousand = cpu_s(servers(scratch / "thousand", 1000), *PLUGIN, "--llmserve", "servers.yaml")
    return {
        "bare_pytest_ms": 1000 * best["bare"],
        "added_unused_ms": 1000 * (best["unused"] - best["bare"]),
        "first_deployment_ms": 1000 * (best["one"] - best["bare"]),
        "each_further_ms": 1000 * (best["more"] - best["one"]) / 50,
        "thousand_servers_s": thousand,
    }


def main() -> None:
    """Print the figures, beside their targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(options.rounds, Path(scratch))
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    targets = {
        "added_unused_ms": "< 5",
        "first_deployment_ms": "<= 150",
        "each_further_ms": "<= 5",
        "thousand_servers_s": "< 10",
    }
    for name, value in figures.items():
        print(f"{name:<22}{value:>10.1f}   {targets.get(name, '')}")


if __name__ == "__main__":
    main()
