"""Fits vLLM's measured terms to start-up logs.

``python benchmarks/calibrate_vllm.py --corpus DIR`` prints, for each report, what it implies for
the constants of ``runtimes/vllm/measured.py``, and the quantiles of each group. Nothing is
written: a person looks and changes the table.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from observed_cases import cases
from vllm_corpus import Corpus

from pytest_llmserve.runtimes.vllm import measured
from pytest_llmserve.units import GIB, MIB

if TYPE_CHECKING:
    from observed_cases import Case

    from pytest_llmserve.models.spec import ModelSpec

ERAS = ("0", "0.17", "0.20", "0.24")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    found = cases(Corpus(parser.parse_args().corpus), Counter())
    groups: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for case in found:
        for name, value in implied(case):
            groups[f"{name}, from {era(case)}"].append((value, case.where))
    for name, values in sorted(groups.items()):
        numbers = sorted(value for value, _ in values)
        print(
            f"{name}: {len(numbers)} reports, {numbers[0]:.2f} to {numbers[-1]:.2f}, "
            f"median {median(numbers):.2f}"
        )
        for value, where in values:
            print(f"    {value:8.2f}  {where}")


def era(case: Case) -> str:
    """The newest first version of a table that is not newer than the report's."""
    return [e for e in ERAS if tuple(map(int, e.split("."))) <= case.version.release][-1]


def implied(case: Case) -> list[tuple[str, float]]:
    """Each constant as this report alone would have it."""
    settings, model, observed = case.settings, case.model, case.observed
    out: list[tuple[str, float]] = []
    peak = observed.get("peak_activation_gib")
    if peak is not None and settings.pipeline_parallel_size.value == 1:
        tokens = settings.max_num_batched_tokens.value
        rows = min(settings.max_num_seqs.value, tokens)
        beside = tokens * model.hidden_size * measured._BESIDE_SAMPLER_BYTES
        kind = kind_of(model)
        out.append((f"sampler bytes, {kind}", (peak * GIB - beside) / (rows * model.vocab_size)))
    outside = observed.get("non_torch_gib")
    if outside is not None:
        place = "TP > 1" if settings.tensor_parallel_size.value > 1 else "one GPU"
        out.append((f"non-torch GiB, {place}", outside))
    graphs = observed.get("cuda_graph_gib")
    if graphs is not None and graphs > 0 and settings.has_cuda_graphs:
        out.append((f"graphs MiB a layer, {kind_of(model)}", graphs * GIB / MIB / model.num_layers))
    return out


def kind_of(model: ModelSpec) -> str:
    moe = any(group.layer.experts is not None for group in model.layer_groups)
    return ("MoE" if moe else "dense") + (", multimodal" if model.is_multimodal else "")


if __name__ == "__main__":
    main()
