"""Hypothesis strategies (extra ``hypothesis``): models, GPUs, deployments, workloads, changes.

What they draw prints as a person would write it, and shrinks to the smallest of its kind: fewer
layers, shorter contexts, one GPU, no flag that is not needed for the failure.
"""

from __future__ import annotations

from pytest_llmserve.strategies.drawn import (
    Change,
    DrawnGpu,
    DrawnModel,
    DrawnServer,
    DrawnWorkload,
)
from pytest_llmserve.strategies.models import FAMILIES, MOE_FAMILIES, gpus, model_specs
from pytest_llmserve.strategies.servers import changes, deployments, workloads

__all__ = [
    "FAMILIES",
    "MOE_FAMILIES",
    "Change",
    "DrawnGpu",
    "DrawnModel",
    "DrawnServer",
    "DrawnWorkload",
    "changes",
    "deployments",
    "gpus",
    "model_specs",
    "workloads",
]
