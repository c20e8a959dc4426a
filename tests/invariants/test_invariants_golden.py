"""Whole messages, byte for byte. To accept new ones: LLMSERVE_UPDATE_GOLDEN=1 pytest THIS_FILE."""

import os
from pathlib import Path
from typing import Any

import pytest
from judging import LLAMA_70B, subject

from pytest_llmserve.invariants import invariant
from pytest_llmserve.policy import Facts, Policy, Slo, Workload, parse_budget
from pytest_llmserve.reporting.text import explain
from pytest_llmserve.servers.assemble import Assembler

GOLDEN = Path(__file__).parent / "golden"
LOAD = Workload(concurrency=64, prompt_tokens=4000, output_tokens=96)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "weights-too-large": ("weights-fit", {"model": LLAMA_70B, "tensor_parallel_size": 1}),
    "pool-too-large": ("weights-fit", {"kv_cache_memory_bytes": "70G"}),
    "context-too-long": (
        "kv-cache-fits",
        {"model": LLAMA_70B, "tensor_parallel_size": 2, "gpu_memory_utilization": 0.95},
    ),
    "nothing-left": ("kv-cache-fits", {"gpu": "l4", "gpu_memory_utilization": 0.6}),
    "null-block": (
        "kv-cache-fits",
        {"kv_cache_memory_bytes": "16G", "max_model_len": 131072, "version": "0.32.0"},
    ),
    "too-many-requests": (
        "concurrency-fits",
        {"gpu": "l4", "max_model_len": 8192, "facts": Facts(workload=LOAD)},
    ),
    "over-budget": ("vram-within-budget", {"facts": Facts(vram_budget=parse_budget("40GiB"))}),
    "heads-do-not-divide": ("parallelism-valid", {"tensor_parallel_size": 3}),
    "idle-gpus": ("gpus-match-parallelism", {"gpu_count": 4}),
    "beyond-the-model": ("context-within-model", {"max_model_len": 200000}),
    "removed-flag": ("flags-known-to-version", {"swap_space": 4}),
    "decode-at-a-huge-batch": (
        "decode-memory-bound",
        {
            "facts": Facts(
                workload=Workload(concurrency=512, prompt_tokens=1, output_tokens=1),
            )
        },
    ),
    "ttft-out-of-reach": (
        "ttft-reachable",
        {"model": LLAMA_70B, "facts": Facts(workload=LOAD, slo=Slo(ttft_s=0.05))},
    ),
    "tpot-out-of-reach": (
        "tpot-reachable",
        {"model": LLAMA_70B, "facts": Facts(workload=LOAD, slo=Slo(tpot_s=0.01))},
    ),
}


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("LLMSERVE_UPDATE_GOLDEN"):
        path.write_text(text + "\n", encoding="ascii")
    assert text + "\n" == path.read_text(encoding="ascii")


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    about, given = CASES[name]
    server = subject(**given)
    compare(name, explain(invariant(about).judge(server), server.deployment))


FILES = {
    "gpu-not-stated": (
        "gpu-known",
        "serve.sh",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192\n",
    ),
    "variable-not-known": (
        "resolved",
        "serve.sh",
        'vllm serve meta-llama/Llama-3.1-8B-Instruct \\\n  --max-model-len "$CONTEXT"\n',
    ),
    "model-not-known": ("model-known", "serve.sh", "vllm serve acme/secret-7b\n"),
}


@pytest.mark.parametrize("name", FILES)
def test_message_about_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_llmserve.manifests.reader import read_file

    monkeypatch.setenv("HF_HOME", "/nowhere")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    about, file, text = FILES[name]
    (tmp_path / file).write_text(text)
    (launch,) = read_file(tmp_path / file, display=file).launches
    server = Assembler(Policy(base_dir=tmp_path)).from_launch(launch, tmp_path / file)
    verdict, worst = server.worst(invariant(about))
    message = explain(verdict, worst.deployment).replace(str(tmp_path), "/repo")
    compare(name, message)


def test_no_golden_file_is_left_over() -> None:
    assert {p.stem for p in GOLDEN.iterdir()} == {*CASES, *FILES}
