"""Weights as servers log them ("Model loading took"), from the bundled shapes of their models.

A log counts whole allocator blocks: up to 0.5 % more than the sum of the tensors, or 0.1 GiB.
"""

from __future__ import annotations

import pytest
from packaging.version import Version
from planning import gpu, settings

from pytest_llmserve.models.catalogue import find_in_catalogue
from pytest_llmserve.runtimes.vllm.weights import weight_bytes
from pytest_llmserve.units import GIB


@pytest.mark.parametrize(
    ("name", "version", "tp", "logged_gib"),
    [
        # llm-d campaign of April 2026, 0.19.0 on H100.
        ("codellama/CodeLlama-7b-hf", "0.19.0", 1, 12.56),
        ("google/gemma-3-27b-it", "0.19.0", 1, 51.45),
        ("ibm-granite/granite-3.1-2b-instruct", "0.19.0", 1, 4.74),
        ("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 1, 14.99),
        ("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 2, 7.51),
        ("microsoft/phi-4", "0.19.0", 1, 27.39),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "0.19.0", 1, 44.76),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "0.19.0", 2, 33.88),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "0.19.0", 1, 8.49),
        ("RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic", "0.19.0", 1, 8.14),
        ("Qwen/Qwen2.5-7B-Instruct", "0.19.0", 1, 14.25),
        # The llm-d planner page.
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "0.11.0", 1, 67.72),
        ("Qwen/Qwen3-0.6B", "0.11.0", 1, 1.12),
        ("Qwen/Qwen3-32B", "0.11.0", 1, 61.03),
        # vllm-project/vllm#25970, #17469; public logs of single cards.
        ("Qwen/Qwen2.5-Omni-7B", "0.10.2", 1, 16.74),
        ("Qwen/Qwen3-30B-A3B", "0.8.5", 4, 14.25),
        ("Qwen/Qwen3-8B-FP8", "0.10.2", 1, 8.80),
        ("Qwen/Qwen3-8B", "0.23.0", 1, 15.27),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "0.8.5", 1, 5.18),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.11.0", 2, 74.28),
    ],
)
def test_weights_are_those_of_the_log(name: str, version: str, tp: int, logged_gib: float) -> None:
    spec = find_in_catalogue(name)
    assert spec is not None
    stated = settings(tensor_parallel_size=tp, dtype=spec.dtype)
    loaded = weight_bytes(stated, spec, gpu(), version=Version(version)).total / GIB
    assert loaded <= logged_gib + 0.01
    assert loaded >= logged_gib - max(0.1, 0.005 * logged_gib)
