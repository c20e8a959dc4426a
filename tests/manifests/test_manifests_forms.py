"""The examples of docs/forms.md: each is read, and what is read is what the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_llmserve.manifests.reader import read_file
from pytest_llmserve.policy import Facts
from pytest_llmserve.servers.gpus import gpu_count

if TYPE_CHECKING:
    from pytest_llmserve.manifests.launch import Launch

PAGE = (Path(__file__).parents[2] / "docs" / "forms.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(
    r"^## (?P<title>.+?)\n.*?^`(?P<name>[\w.-]+)`:\n\n```\w+\n(?P<text>.*?)```\n\n"
    r"```text\n(?P<reads>.*?)```\n",
    re.MULTILINE | re.DOTALL,
)
EXAMPLES = [match.groupdict() for match in EXAMPLE.finditer(PAGE)]


def shown(launch: Launch) -> str:
    """A launch as the page writes it."""
    count = gpu_count(launch, Facts())
    kinds = dict.fromkeys(kind for label in launch.gpu.labels for kind in label.alternatives)
    words = [json.dumps(w.text) if " " in w.text else w.text for w in launch.argv]
    line = f"{launch.name}: {' '.join([launch.entrypoint, *words])}"
    entries = ", ".join(f"{entry.key}: {entry.value}" for entry in launch.config_entries)
    line += f" + {entries}" if entries else ""
    return f"{line} | {count.value if count else '?'} x {' or '.join(kinds) or '?'}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["title"])
def test_the_page_shows_what_is_read(tmp_path: Path, example: dict[str, str]) -> None:
    path = tmp_path / example["name"]
    path.write_text(example["text"], encoding="utf-8")
    reading = read_file(path, display=example["name"])
    assert "\n".join(map(shown, reading.launches)) + "\n" == example["reads"]


def test_every_form_of_the_table_has_an_example() -> None:
    rows = re.findall(r"^\| \[(.+?)\]\(#", PAGE, re.MULTILINE)
    titles = {example["title"] for example in EXAMPLES} | {"A form of your own"}
    assert set(rows) == titles
    assert len(rows) > 30


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["title"])
def test_every_argument_knows_its_line(tmp_path: Path, example: dict[str, str]) -> None:
    path = tmp_path / example["name"]
    path.write_text(example["text"], encoding="utf-8")
    rows = example["text"].split("\n")
    for launch in read_file(path, display=example["name"]).launches:
        for word in launch.argv:
            row = rows[word.location.line - 1]
            assert word.location.file == example["name"]
            assert row.strip(), word
            is_written = word.text in example["text"] and "$" not in row
            if is_written and not word.unresolved and len(word.text) > 3:
                assert word.text in row, word
