"""Small deployment files for tests of the plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  {node}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.19.1
      args:
        - --model=meta-llama/Llama-3.1-8B-Instruct
        - --max-model-len={length}
        - --max-num-seqs=64
      resources:
        limits:
          nvidia.com/gpu: 1
"""
ON_L4 = "nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}"
LENGTH_LINE = 12
"""Where ``--max-model-len`` stands."""


def pod(length: int = 8192, name: str = "chat", node: str = ON_L4) -> str:
    """A pod that serves Llama-3.1-8B, on an L4 unless another node is said."""
    return POD.format(name=name, length=length, node=node)


FITS, TOO_LONG = pod(8192), pod(131072)
SERVICE = "apiVersion: v1\nkind: Service\nmetadata:\n  name: vllm\n"


def write(pytester: pytest.Pytester, **files: str) -> None:
    """Files by name, ``__`` for ``/`` and ``_yaml`` for ``.yaml``."""
    for name, text in files.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        path = pytester.path / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
