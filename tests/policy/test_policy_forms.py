"""What the policy says of reading: tools that may run, forms of the team's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmserve.policy_file import PolicyError, read_policy

if TYPE_CHECKING:
    from pathlib import Path

FORM = """\
render = ["helm"]

[[form]]
file = "fleet/*.yaml"
argv = "engine.args"
gpu_count = "machine.gpus"
"""


def written(folder: Path, text: str) -> Path:
    (folder / "llmserve.toml").write_text(text)
    return folder


def test_tools_and_forms_are_read(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, FORM), root=tmp_path)
    assert policy is not None
    assert policy.reading.render == {"helm"}
    form = policy.reading.form_of(tmp_path / "fleet" / "a.yaml")
    assert form is not None
    assert (form.argv, form.gpu_count, form.servers) == ("engine.args", "machine.gpus", "")
    assert policy.reading.form_of(tmp_path / "a.yaml") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('render = ["make"]', "llmserve.toml:1: render.0 = 'make'"),
        ('[[form]]\nfile = "a"', "argv"),
        ('[[form]]\nfile = "a"\nargv = "b"\nimages = "c"', "did you mean 'image'?"),
    ],
)
def test_wrong_keys_are_told(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(written(tmp_path, text), root=tmp_path)
    assert message in str(caught.value)
