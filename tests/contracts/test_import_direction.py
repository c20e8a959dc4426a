"""Which room may import which: the data flows one way (ARCHITECTURE.md)."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pytest_llmserve"

MAY_IMPORT = {
    "units": set(),
    "verdict": {"units"},
    "hardware": {"units"},
    "models": {"units"},
    "engine": {"units", "hardware", "models"},
    "manifests": {"units", "verdict"},
    "runtimes": {"units", "verdict", "hardware", "models", "engine", "manifests"},
    "guard_rules": set(),
    "policy": {"units", "verdict", "guard_rules", "manifests"},
    "subject": {"verdict", "guard_rules", "hardware", "policy", "runtimes", "engine"},
    "invariants": {"units", "verdict", "hardware", "engine", "runtimes", "subject", "policy"},
    "reporting": {"units", "verdict", "runtimes", "invariants", "__init__"},
    "lengths": set(),
    "guard_schema": {"units", "guard_rules", "invariants"},
    "guard": {
        "units", "verdict", "guard_rules", "invariants", "manifests", "policy", "runtimes",
        "servers", "subject",
    },
    "policy_file": {
        "guard_schema", "units", "verdict", "policy", "lengths", "invariants", "manifests",
    },
    "servers": {
        "units", "verdict", "hardware", "models", "manifests", "runtimes", "policy", "policy_file",
        "subject", "invariants",
    },
    "physics": {"units", "policy", "models", "servers"},
    "assertions": {
        "physics", "units", "verdict", "hardware", "models", "manifests", "policy", "subject",
        "invariants", "reporting", "servers",
    },
    "sweeps": {
        "units", "hardware", "models", "engine", "runtimes", "subject", "invariants", "assertions",
    },
    "strategies": {
        "hardware", "models", "policy", "subject", "servers", "assertions",
    },
    "plots": {"units", "engine", "invariants", "subject", "sweeps"},
    "_pytest": {
        "plots", "verdict", "guard", "manifests", "policy", "policy_file", "invariants",
        "reporting", "servers",
    },
    "plugin": {"verdict", "policy", "assertions", "servers", "_pytest"},
    "__init__": {"verdict", "hardware", "models", "servers", "assertions", "sweeps"},
}  # fmt: skip


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_llmserve"):
            parts = (node.module or "").split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {"__init__"}
    return rooms


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_rooms_import_only_what_lies_before_them(path: Path) -> None:
    room = room_of(path)
    extra = imported_rooms(path) - MAY_IMPORT[room] - {room}
    assert not extra, f"{room} may not import {sorted(extra)}"


def test_pytest_is_imported_only_where_pytest_looks() -> None:
    found = {
        room_of(path)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "pytest" in {a.name for a in node.names} | {getattr(node, "module", None)}
    }
    assert found == {"plugin", "_pytest"}
