"""Short ways to a command line, a model and a GPU for the tests of settings and refusals."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.manifests.launch import Word
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.runtimes.vllm.args import ParsedArgs, parse_args
from pytest_llmserve.runtimes.vllm.refusals import refusals
from pytest_llmserve.runtimes.vllm.resolve import resolve_settings
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.deployment import Refusal
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings

NEWEST = "0.33.0"
# The public config.json of meta-llama/Llama-3.1-8B: what decides shape and limits.
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


GEMMA_2: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_hidden_layers": 42,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
}
MAMBA_HYBRID: dict[str, Any] = {
    "architectures": ["FalconH1ForCausalLM"],
    "model_type": "falcon_h1",
    "hidden_size": 2048,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 32768,
    "max_position_embeddings": 16384,
    "mamba_d_ssm": 3072,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_n_heads": 24,
    "mamba_d_head": 128,
    "mamba_n_groups": 1,
    "torch_dtype": "bfloat16",
}


def fp8(**extra: Any) -> dict[str, Any]:
    return {"quant_method": "fp8", "activation_scheme": "dynamic", **extra}


GROUPS = {"bits": 4, "group_size": 128, "sym": True, "desc_act": False}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}


def model(**changes: Any) -> ModelSpec:
    """Llama-3.1-8B with some keys changed."""
    return read_config({**LLAMA, **changes}, model_id="org/model", source="config.json")


def words(line: str, *, first_line: int = 1) -> list[Word]:
    """Each word of a shell line on a line of its own."""
    return [
        Word(text, Location("chat.yaml", first_line + n))
        for n, text in enumerate(shlex.split(line))
    ]


def parse(line: str, version: str = NEWEST, **given: Any) -> ParsedArgs:
    return parse_args(words(line), Version(version), **given)


def values(args: ParsedArgs) -> dict[str, object]:
    return {dest: stated.value for dest, stated in args.stated.items()}


def settle(
    line: str = "",
    *,
    version: str = NEWEST,
    gpu: str | None = "h100-sxm-80gb",
    of: ModelSpec | None = None,
    env: dict[str, str] | None = None,
) -> VllmSettings:
    """The settings of ``vllm serve M <line>``."""
    return resolve_settings(
        parse(f"M {line}", version),
        version=Version(version),
        model=model() if of is None else of,
        gpu=load_gpu(gpu) if gpu else None,
        env=env or {},
    )


def refused(
    line: str = "",
    *,
    version: str = NEWEST,
    gpu: str | None = "h100-sxm-80gb",
    of: ModelSpec | None = None,
    count: int | None = None,
    env: dict[str, str] | None = None,
    draft: ModelSpec | None = None,
) -> list[Refusal]:
    """What stops ``vllm serve M <line>``."""
    spec = model() if of is None else of
    args = parse(f"M {line}", version)
    found = refusals(
        settle(line, version=version, gpu=gpu, of=spec, env=env),
        args,
        version=Version(version),
        model=spec,
        gpu=load_gpu(gpu) if gpu else None,
        gpu_count=count,
        env=env or {},
        draft=draft,
    )
    return list(found)


def rules(line: str = "", **given: Any) -> list[str]:
    return [refusal.rule for refusal in refused(line, **given)]
