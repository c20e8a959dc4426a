"""Settings after defaults. Figures: what vLLM itself answered when its own code was asked
(0.14.1 to 0.32.0, stand-in GPUs), and the release wheels for the steps between versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version
from serving import GEMMA_2, GROUPS, MAMBA_HYBRID, NEWEST, NVFP4, fp8, model, parse, settle

from pytest_llmserve.hardware.catalogue import load_gpu
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.runtimes.vllm.args import stated_from_kwargs
from pytest_llmserve.runtimes.vllm.quant_methods import (
    activation_dtypes,
    are_compatible,
    is_deprecated,
    is_known,
    min_capability,
)
from pytest_llmserve.runtimes.vllm.resolve import resolve_settings
from pytest_llmserve.runtimes.vllm.unmodelled import unmodelled
from pytest_llmserve.verdict import Location

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec


def other(config: dict[str, Any], **changes: Any) -> ModelSpec:
    return read_config({**config, **changes}, model_id="org/other", source="config.json")


@pytest.mark.parametrize(
    ("gpu", "version", "tokens", "seqs"),
    [
        ("h100-sxm-80gb", "0.32.0", 8192, 1024),
        ("h200-sxm-141gb", "0.32.0", 8192, 1024),
        ("b200-sxm-180gb", "0.32.0", 16384, 1024),
        ("b200-sxm-180gb", "0.27.1", 8192, 1024),
        ("a100-sxm-80gb", "0.32.0", 2048, 256),
        ("a100-sxm-80gb", "0.9.0", 2048, 256),
        ("a100-sxm-80gb", "0.8.5", 8192, 1024),
        ("a100-sxm-40gb", "0.8.5", 2048, 256),
        ("t4", "0.32.0", 2048, 256),
        ("l4", "0.32.0", 2048, 256),
        ("l40s", "0.32.0", 2048, 256),
        ("gb10", "0.33.0", 2048, 256),
        ("gb10", "0.32.0", 8192, 1024),
    ],
)
def test_scheduler_defaults_by_device_and_version(
    gpu: str, version: str, tokens: int, seqs: int
) -> None:
    settings = settle(gpu=gpu, version=version)
    assert settings.max_num_batched_tokens.value == tokens
    assert settings.max_num_seqs.value == seqs


def test_a_default_says_where_it_comes_from() -> None:
    settings = settle("--max-num-seqs 64")
    assert settings.max_num_batched_tokens.source == "vllm 0.33 default for >= 70 GiB"
    assert settings.max_num_seqs.source == "line 3"
    assert settings.max_num_seqs.is_stated
    assert not settings.gpu_memory_utilization.is_stated
    assert settings.gpu_memory_utilization.source == "vllm 0.33 default"
    assert settings.max_model_len.source == "config.json"


@pytest.mark.parametrize(
    ("line", "version", "tokens", "seqs"),
    [
        ("--max-model-len 4", "0.32.0", 4096, 1024),  # seqs x length caps the tokens
        ("--max-model-len 4", "0.11.0", 8192, 1024),  # before 0.11.1 it did not
        ("--max-num-batched-tokens 512", "0.32.0", 512, 512),
        ("--max-num-batched-tokens 512", "0.10.0", 512, 1024),
        ("--max-num-seqs 2048", "0.32.0", 8192, 2048),
        ("--performance-mode throughput", "0.32.0", 16384, 2048),
        ("--no-enable-chunked-prefill", "0.32.0", 131072, 1024),
        ("--no-enable-chunked-prefill", "0.11.0", 8192, 1024),  # V1 forced it on
        ("-ep -dp 2 --all2all-backend deepep_low_latency", "0.32.0", 256, 256),
    ],
)
def test_what_moves_the_scheduler_defaults(line: str, version: str, tokens: int, seqs: int) -> None:
    settings = settle(line, version=version)
    assert settings.max_num_batched_tokens.value == tokens
    assert settings.max_num_seqs.value == seqs


@pytest.mark.parametrize(
    ("version", "utilization", "prefix", "async_scheduling"),
    [
        ("0.8.5", 0.9, True, False),
        ("0.13.0", 0.9, True, False),
        ("0.14.0", 0.9, True, True),
        ("0.19.1", 0.9, True, True),
        ("0.20.0", 0.92, True, True),
        ("0.33.0", 0.92, True, True),
    ],
)
def test_plain_defaults_by_version(
    version: str, utilization: float, prefix: bool, async_scheduling: bool
) -> None:
    settings = settle(version=version)
    assert settings.gpu_memory_utilization.value == utilization
    assert settings.enable_prefix_caching.value is prefix
    assert settings.async_scheduling.value is async_scheduling
    assert settings.block_size.value is None
    assert settings.max_lora_rank.value == 16
    assert settings.has_cuda_graphs


@pytest.mark.parametrize(("version", "is_on"), [("0.27.1", False), ("0.28.0", True)])
def test_hybrid_models_cache_prefixes_since_0_28(version: str, is_on: bool) -> None:
    assert settle(version=version, of=other(MAMBA_HYBRID)).enable_prefix_caching.value is is_on
    line = "--enable-prefix-caching"
    assert settle(line, version=version, of=other(MAMBA_HYBRID)).enable_prefix_caching.value


@pytest.mark.parametrize(
    ("line", "has_graphs"),
    [
        ("--enforce-eager", False),
        ("-O0", False),
        ("-O2", True),
        ("-cc.cudagraph_mode NONE", False),
        ("-cc.cudagraph_mode PIECEWISE", True),
    ],
)
def test_what_turns_graphs_off(line: str, has_graphs: bool) -> None:
    assert settle(line).has_cuda_graphs is has_graphs


@pytest.mark.parametrize(
    ("line", "version", "is_on"),
    [
        ("--no-async-scheduling", NEWEST, False),
        ("--runner pooling", NEWEST, False),
        ("-pp 2", NEWEST, True),
        ("-pp 2", "0.14.1", False),
        ("--async-scheduling", "0.10.0", True),
        (
            '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\'',
            "0.19.1",
            False,
        ),
        (
            '--speculative-config \'{"method": "eagle3", "num_speculative_tokens": 3}\'',
            "0.19.1",
            True,
        ),
    ],
)
def test_what_decides_async_scheduling(line: str, version: str, is_on: bool) -> None:
    assert settle(line, version=version).async_scheduling.value is is_on


class TestLength:
    def test_the_smallest_length_key_counts(self) -> None:
        assert settle().max_model_len.value == 131072
        assert settle(of=model(seq_length=4096)).max_model_len.value == 4096

    def test_model_max_length_overrides_all(self) -> None:
        spec = model(max_position_embeddings=8192, model_max_length=131072, rope_scaling=None)
        assert settle(of=spec).max_model_len.value == 131072

    @pytest.mark.parametrize(("version", "length"), [("0.29.0", 131072), ("0.30.0", 32768)])
    def test_yarn_no_longer_multiplies_since_0_30(self, version: str, length: int) -> None:
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
        spec = model(max_position_embeddings=32768, rope_scaling=yarn)
        assert settle(version=version, of=spec).max_model_len.value == length
        line = '--hf-overrides \'{"rope_scaling": ' + (
            '{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}\''
        )
        plain = model(max_position_embeddings=32768, rope_scaling=None)
        assert settle(line, version=version, of=plain).max_model_len.value == length

    @pytest.mark.parametrize(
        ("kind", "length"),
        [("linear", 16384), ("dynamic", 16384), ("llama3", 4096), ("deepseek_yarn", 4096)],
    )
    def test_other_rope_types(self, kind: str, length: int) -> None:
        spec = model(max_position_embeddings=4096, rope_scaling={"type": kind, "factor": 4.0})
        assert settle(of=spec).max_model_len.value == length

    def test_longrope_serves_its_original_length_unless_asked(self) -> None:
        # Phi-3-mini-128k-instruct on 0.32: 4096 by default, 131072 accepted.
        factors = {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}
        spec = model(original_max_position_embeddings=4096, rope_scaling=factors)
        settings = settle(of=spec)
        assert settings.max_model_len.value == 4096
        assert settings.derived_max_model_len == 131072

    def test_a_window_ends_the_context_where_sliding_is_disabled(self) -> None:
        settings = settle("--disable-sliding-window", of=other(GEMMA_2))
        assert settings.max_model_len.value == 4096
        assert settle(of=other(GEMMA_2)).max_model_len.value == 8192

    def test_auto_starts_from_the_derived_length(self) -> None:
        for word in ("auto", "-1"):
            settings = settle(f"--max-model-len {word}", version="0.14.0")
            assert settings.is_auto_max_model_len
            assert settings.max_model_len.value == 131072
            assert settings.max_model_len.location is not None
        assert not settle("--max-model-len 8k").is_auto_max_model_len

    def test_rope_scaling_of_old_versions(self) -> None:
        line = '--rope-scaling \'{"rope_type": "linear", "factor": 2.0}\''
        plain = model(max_position_embeddings=4096, rope_scaling=None)
        assert settle(line, version="0.10.2", of=plain).max_model_len.value == 8192

    def test_overridden_positions(self) -> None:
        line = "--hf-overrides.max_position_embeddings 65536"
        assert settle(line, of=model(rope_scaling=None)).max_model_len.value == 65536

    def test_without_a_model_only_a_stated_length_is_known(self) -> None:
        for line, value in (("", None), ("--max-model-len 4096", 4096)):
            settings = resolve_settings(
                parse(f"M {line}"), version=Version(NEWEST), model=None, gpu=None, env={}
            )
            assert settings.max_model_len.value == value
            assert settings.derived_max_model_len is None
            assert settings.dtype.value is None


class TestDtype:
    @pytest.mark.parametrize(
        ("stored", "gpu", "version", "dtype"),
        [
            ("bfloat16", "h100-sxm-80gb", NEWEST, "bfloat16"),
            ("float16", "h100-sxm-80gb", NEWEST, "float16"),
            ("float32", "h100-sxm-80gb", NEWEST, "bfloat16"),
            ("float32", "h100-sxm-80gb", "0.9.0", "float16"),
            ("bfloat16", "t4", NEWEST, "float16"),
            ("float32", "t4", NEWEST, "float16"),
            ("bfloat16", "mi300x", NEWEST, "bfloat16"),
        ],
    )
    def test_auto(self, stored: str, gpu: str, version: str, dtype: str) -> None:
        assert settle(gpu=gpu, version=version, of=model(torch_dtype=stored)).dtype.value == dtype

    def test_gemma_2_on_a_t4_doubles(self) -> None:  # run on 0.32: float32
        assert settle(gpu="t4", of=other(GEMMA_2)).dtype.value == "float32"
        assert settle(gpu="l4", of=other(GEMMA_2)).dtype.value == "bfloat16"

    def test_stated_words_are_spelled_out(self) -> None:
        assert settle("--dtype half").dtype.value == "float16"
        assert settle("--dtype float").dtype.value == "float32"
        assert settle("--dtype auto").dtype.value == "bfloat16"

    def test_an_unknown_gpu_leaves_bfloat16_open(self) -> None:
        assert settle(gpu=None).dtype.value is None
        assert settle(gpu=None, of=model(torch_dtype="float16")).dtype.value == "float16"


class TestQuantization:
    @pytest.mark.parametrize(
        ("config", "version", "gpu", "name"),
        [
            (fp8(), NEWEST, "h100-sxm-80gb", "fp8"),
            ({"quant_method": "awq", **GROUPS}, "0.23.0", "h100-sxm-80gb", "awq_marlin"),
            ({"quant_method": "awq", **GROUPS}, "0.13.0", "t4", "awq"),
            ({"quant_method": "awq", **GROUPS}, "0.14.0", "t4", "awq_marlin"),
            ({"quant_method": "awq", **GROUPS}, "0.24.0", "t4", "auto_awq"),
            ({"quant_method": "gptq", **GROUPS}, "0.21.0", "a100-sxm-80gb", "gptq_marlin"),
            ({"quant_method": "gptq", **GROUPS}, "0.22.0", "a100-sxm-80gb", "auto_gptq"),
            (NVFP4, NEWEST, "b200-sxm-180gb", "modelopt_fp4"),
            ({**NVFP4, "quant_algo": "FP8"}, NEWEST, "b200-sxm-180gb", "modelopt"),
        ],
    )
    def test_a_version_has_its_own_name_for_a_checkpoint(
        self, config: dict[str, Any], version: str, gpu: str, name: str
    ) -> None:
        spec = model(quantization_config=config)
        settings = settle(version=version, gpu=gpu, of=spec)
        assert settings.quantization.value == name
        assert settings.quantization.source == "config.json"

    def test_a_flag_quantises_while_loading(self) -> None:
        assert settle("--quantization fp8").quantization.value == "fp8"
        assert settle().quantization.value is None

    def test_a_flag_on_a_checkpoint_of_its_family_takes_the_merged_method(self) -> None:
        of = model(quantization_config={"quant_method": "awq", **GROUPS})
        assert settle("--quantization awq", of=of).quantization.value == "auto_awq"
        assert settle("-q awq", version="0.23.0", of=of).quantization.value == "awq"

    @pytest.mark.parametrize(
        ("config", "version", "kind"),
        [
            ({**NVFP4, "kv_cache_quant_algo": "FP8"}, NEWEST, "fp8_e4m3"),
            ({**NVFP4, "kv_cache_quant_algo": "FP8"}, "0.13.0", "auto"),
            ({**NVFP4, "kv_cache_quant_algo": None}, NEWEST, "auto"),
            (NVFP4, NEWEST, "auto"),
            (fp8(kv_cache_scheme={"num_bits": 8, "type": "float"}), NEWEST, "auto"),
        ],
    )
    def test_the_cache_that_a_checkpoint_asks_for(
        self, config: dict[str, Any], version: str, kind: str
    ) -> None:
        spec = model(quantization_config=config)
        assert settle(version=version, of=spec).kv_cache_dtype.value == kind
        line = "--kv-cache-dtype fp8_e5m2"
        assert settle(line, version=version, of=spec).kv_cache_dtype.value == "fp8_e5m2"

    @pytest.mark.parametrize(
        ("name", "version", "known"),
        [
            ("gguf", "0.23.0", True),
            ("gguf", "0.24.0", False),
            ("bitsandbytes", "0.27.1", True),
            ("bitsandbytes", "0.28.0", False),
            ("mxfp4", "0.10.0", False),
            ("mxfp4", "0.10.1", True),
            ("aqlm", "0.10.0", True),
            ("aqlm", "0.10.1", False),
            ("ptpc_fp8", "0.19.0", False),
            ("nonsense", NEWEST, False),
        ],
    )
    def test_methods_come_and_go(self, name: str, version: str, known: bool) -> None:
        assert is_known(name, Version(version)) is known

    @pytest.mark.parametrize(
        ("name", "version", "capability"),
        [
            ("fp8", "0.13.0", 80),
            ("fp8", "0.14.0", 75),
            ("awq", "0.8.5", 75),
            ("gptq", "0.8.5", 60),
            ("modelopt", "0.26.0", 89),
            ("modelopt", "0.27.0", 80),
            ("modelopt_fp4", "0.13.0", 80),
            ("modelopt_fp4", "0.14.0", 75),
            ("gpt_oss_mxfp4", NEWEST, 80),
            ("ptpc_fp8", "0.18.0", None),
        ],
    )
    def test_minimum_capability(self, name: str, version: str, capability: int | None) -> None:
        assert min_capability(name, Version(version)) == capability

    def test_activations_deprecations_and_families(self) -> None:
        assert activation_dtypes("awq", Version("0.23.0")) == ("float16",)
        assert activation_dtypes("awq", Version("0.24.0")) == ("float16", "bfloat16")
        assert activation_dtypes("mxfp4", Version("0.19.1")) == ("bfloat16",)
        assert is_deprecated("fbgemm_fp8", Version("0.14.0"))
        assert not is_deprecated("fbgemm_fp8", Version("0.13.0"))
        assert not is_deprecated("experts_int8", Version("0.20.0"))
        assert are_compatible("awq", "auto_awq")
        assert not are_compatible("fp8", "compressed-tensors")


def test_all_limits_at_zero_leave_the_tower_out() -> None:
    spec = model()
    line = '--limit-mm-per-prompt \'{"image": 0, "video": 0, "audio": 0}\''
    assert settle(line, of=spec).language_model_only.value
    line = '--limit-mm-per-prompt \'{"image": 0, "video": 0}\''
    assert not settle(line, of=spec).language_model_only.value
    assert settle("--language-model-only", of=spec).language_model_only.value


def test_speculation_is_read_from_json_and_from_short_flags() -> None:
    line = '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 2}\''
    settings = settle(line)
    assert settings.speculative_method.value == "mtp"
    assert settings.num_speculative_tokens.value == 2
    settings = settle("--spec-method ngram --spec-tokens 5")
    assert settings.speculative_method.value == "ngram"
    assert settings.num_speculative_tokens.value == 5
    assert settle().num_speculative_tokens.value == 0


def test_the_backend_came_from_the_environment_before_it_had_a_flag() -> None:
    env = {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}
    assert settle(version="0.12.0", env=env).attention_backend.value == "FLASHINFER"
    assert settle(version=NEWEST, env=env).attention_backend.value is None
    assert settle("--attention-backend TRITON_ATTN").attention_backend.value == "TRITON_ATTN"


def test_python_arguments_resolve_like_flags() -> None:
    args = stated_from_kwargs(Version(NEWEST), max_model_len="8k", tensor_parallel_size=4)
    settings = resolve_settings(
        args, version=Version(NEWEST), model=model(), gpu=load_gpu("h100-sxm-80gb"), env={}
    )
    assert settings.max_model_len.value == 8000
    assert settings.max_model_len.source == "argument"
    assert settings.max_model_len.is_stated
    assert settings.world_size == 4


def test_a_changed_copy_goes_through_the_same_path() -> None:
    args = parse("M --max-model-len 4").with_value("max_model_len", 8192)
    settings = resolve_settings(
        args, version=Version(NEWEST), model=model(), gpu=load_gpu("h100-sxm-80gb"), env={}
    )
    assert settings.max_num_batched_tokens.value == 8192
    assert settings.max_model_len.source == "fix"


class TestUnmodelled:
    def find(self, line: str = "", version: str = NEWEST, gpu: str = "h100-sxm-80gb") -> list[str]:
        problems = unmodelled(
            parse(f"M {line}", version),
            version=Version(version),
            model=model(),
            gpu=load_gpu(gpu),
            env={},
            location=Location("chat.yaml", 1),
        )
        return [problem.message for problem in problems]

    def test_the_old_engine(self) -> None:
        assert "compute capability 7.5" in self.find(version="0.10.2", gpu="t4")[0]
        assert self.find(version="0.11.0", gpu="t4") == []
        assert self.find("--kv-cache-dtype fp8", version="0.10.2") == []
        assert len(self.find("--kv-cache-dtype fp8", version="0.10.2", gpu="l4")) == 1


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("--enable-eplb --eplb-config '{\"num_redundant_experts\":32}'", "0.33.0", 32),
        ("--enable-eplb --num-redundant-experts 16", "0.11.0", 16),
        ("--enable-eplb", "0.33.0", 0),
        ("--eplb-config '{\"num_redundant_experts\":32}'", "0.33.0", 0),
    ],
)
def test_redundant_experts(line: str, version: str, expected: int) -> None:
    assert settle(line, version=version).num_redundant_experts == expected
