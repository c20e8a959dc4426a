"""What comparing a pull request costs: 200 deployments against a base, and twice as many.

CPU time of whole pytest processes. Run: python benchmarks/compare.py [--count 200]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from startup import MANIFEST, PLUGIN, cpu_s


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def repository(folder: Path, count: int) -> Path:
    """A repository of so many deployments, each with a longer context than in its one commit."""
    folder.mkdir()
    git(folder, "init", "--quiet", ".")
    for n in range(count):
        (folder / f"server-{n}.yaml").write_text(MANIFEST.format(n=n, length=8192))
    git(folder, "add", "--all")
    identity = ("-c", "user.name=team", "-c", "user.email=team@example.com")
    git(folder, *identity, "commit", "--quiet", "--message=base")
    for n in range(count):
        (folder / f"server-{n}.yaml").write_text(MANIFEST.format(n=n, length=16384))
    return folder


def main() -> None:
    """Print seconds for the count and for twice the count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for count in (options.count, 2 * options.count):
            folder = repository(Path(scratch) / f"repo-{count}", count)
            arguments = (*PLUGIN, "--llmserve", "--llmserve-compare=HEAD", ".")
            report = ("--llmserve-report=markdown=out.md", "--llmserve-report=json=out.json")
            cpu_s(folder, *arguments)  # fills the bytecode cache
            plain = cpu_s(folder, *arguments)
            print(f"{count} deployments compared: {plain:.2f} s CPU (target for 200: < 5)")
            print(f"    and reported: {cpu_s(folder, *arguments, *report):.2f} s CPU")


if __name__ == "__main__":
    main()
