"""Make a catalogue entry from a public config.json.

``python -m pytest_llmserve.models.catalogue_entry CONFIG --id ORG/NAME --source TEXT``
writes ``data/<org>--<name>.json``. Weights and caches are not stored: they follow from the shape.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pytest_llmserve.models.catalogue import DATA, file_name
from pytest_llmserve.models.catalogue_file import dump_shape
from pytest_llmserve.models.config_reader import read_shape
from pytest_llmserve.models.lookup import read_json


def entry_of(config: Path, *, model_id: str, source: str) -> dict[str, Any]:
    """The catalogue entry of one config.json, with hf_quant_config.json where it lies beside."""
    beside = config.with_name("hf_quant_config.json")
    shape = read_shape(
        read_json(config),
        source=str(config),
        hf_quant_config=read_json(beside) if beside.is_file() else None,
    )
    return {"id": model_id, "source": source, **dump_shape(shape)}


def to_text(entry: dict[str, Any]) -> str:
    """JSON with a key a line at the top and one line for each object below."""
    lines = []
    for key, value in entry.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n  ".join(json.dumps(item) for item in value)
            lines.append(f" {json.dumps(key)}: [\n  {items}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write one entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--id", required=True)
    parser.add_argument("--source", required=True)
    options = parser.parse_args()
    entry = entry_of(options.config, model_id=options.id, source=options.source)
    (DATA / file_name(options.id)).write_text(to_text(entry), encoding="utf-8")


if __name__ == "__main__":
    main()
