"""Installed and unused, the plugin loads nothing heavy, even at the very end of the session."""

import subprocess
import sys
from pathlib import Path

HEAVY = ("pydantic", "numpy", "yaml", "hypothesis", "tomllib", "packaging.version")
LOOK = """
import sys

def pytest_unconfigure(config):
    ours = {m for m in sys.modules if m.startswith("pytest_llmserve")}
    heavy = {m for m in HEAVY if m in sys.modules}
    print("\\nLOADED", sorted(ours - {"pytest_llmserve", "pytest_llmserve.plugin"} | heavy))
"""


def loaded_at_the_end(folder: Path, *arguments: str) -> str:
    (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    # pytest itself imports tomllib and packaging when it reads an ini file: none here.
    names = [m for m in HEAVY if m not in ("tomllib", "packaging.version")]
    (folder / "conftest.py").write_text(LOOK.replace("HEAVY", repr(names)))
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:hypothesispytest", *arguments]
    command += ["-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
    return next(line for line in ran.stdout.splitlines() if line.startswith("LOADED"))


def test_unused_it_loads_only_the_plugin_module(tmp_path: Path) -> None:
    assert loaded_at_the_end(tmp_path) == "LOADED []"


def test_used_it_loads_rooms(tmp_path: Path) -> None:
    """The test above can fail: the same look sees what is loaded once the plugin is used."""
    (tmp_path / "serve.sh").write_text("vllm serve facebook/opt-125m\n")
    (tmp_path / "llmserve.toml").write_text('gpu = "t4"\nallow_cannot_tell = ["resolved"]\n')
    look = loaded_at_the_end(tmp_path, "--llmserve", "test_nothing.py")
    assert "pytest_llmserve._pytest.session" in look


def test_importing_the_package_loads_none_of_its_rooms() -> None:
    code = (
        "import sys, pytest_llmserve; "
        "print([m for m in sys.modules if m.startswith('pytest_llmserve.')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
