"""What vLLM refuses to start. Words of the server: 0.32 and 0.33, run or read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from serving import GEMMA_2, GROUPS, LLAMA, MAMBA_HYBRID, NVFP4, fp8, model, refused, rules

from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.spec import ContextLimits, IndexerCache

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec

QWEN_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 102400,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
}
QWEN_VL: dict[str, Any] = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 128000,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "torch_dtype": "bfloat16",
    "vision_config": {
        "depth": 4,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 2048,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_chans": 3,
    },
}


def spec(config: dict[str, Any], **changes: Any) -> ModelSpec:
    return read_config({**config, **changes}, model_id="org/other", source="config.json")


def test_a_plain_server_is_not_refused() -> None:
    for version in ("0.8.5", "0.11.0", "0.19.1", "0.33.0"):
        assert refused("-tp 8 --max-model-len 8192", version=version, count=8) == []


def test_refusals_of_the_parser_come_first() -> None:
    found = refused("--swap-space 4 -tp 3")
    assert found[0].rule == "flags"
    assert {refusal.rule for refusal in found[1:]} == {"parallelism"}


class TestContext:
    def test_longer_than_the_model(self) -> None:
        (found,) = refused("--max-model-len 200000")
        assert found.rule == "context"
        assert found.headline == (
            "200,000 tokens asked, the model allows 131,072 (max_position_embeddings)"
        )
        assert found.server_says.startswith("User-specified max_model_len (200000) is greater")
        assert found.expected == "--max-model-len 131072 or less"
        assert str(found.location) == "chat.yaml:3"
        assert found.is_certain

    def test_the_boundary(self) -> None:
        assert rules("--max-model-len 131072") == []
        assert rules("--max-model-len 131073") == ["context"]

    def test_the_environment_allows_more(self) -> None:
        env = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
        assert rules("--max-model-len 200000", env=env) == []
        assert rules("--max-model-len 200000", env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"})

    @pytest.mark.parametrize(("version", "found"), [("0.29.0", []), ("0.30.0", ["context"])])
    def test_a_yarn_server_that_an_upgrade_breaks(self, version: str, found: list[str]) -> None:
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
        of = model(max_position_embeddings=32768, rope_scaling=yarn)
        assert rules("--max-model-len 131072", version=version, of=of) == found

    @pytest.mark.parametrize(
        ("line", "version", "found"),
        [
            ("--max-model-len 0", "0.33.0", ["context"]),
            ("--max-model-len -1", "0.33.0", []),
            ("--max-model-len -1", "0.13.0", ["context"]),
        ],
    )
    def test_no_length_at_all(self, line: str, version: str, found: list[str]) -> None:
        assert rules(line, version=version) == found

    def test_a_model_without_any_length_takes_what_is_asked(self) -> None:
        of = replace(model(), limits=ContextLimits(candidates={}))
        assert rules("--max-model-len 999999", of=of) == []


class TestParallelism:
    def test_attention_heads(self) -> None:
        found = refused("-tp 3")
        assert found[0].headline == (
            "32 attention heads cannot be split over tensor parallel size 3"
        )
        assert found[0].server_says == (
            "Total number of attention heads (32) must be divisible by tensor parallel size (3)."
        )
        assert found[0].expected == "a size that divides 32: 1, 2, 4, 8, 16, 32"
        assert str(found[0].location) == "chat.yaml:3"

    @pytest.mark.parametrize(
        ("tp", "heads", "kv_heads", "is_refused"),
        [
            (8, 32, 8, False),
            (16, 32, 8, False),
            (32, 32, 8, False),
            (4, 24, 6, True),
            (6, 24, 4, True),
            (8, 24, 4, False),
        ],
    )
    def test_kv_heads_divide_or_are_divided(
        self, tp: int, heads: int, kv_heads: int, is_refused: bool
    ) -> None:
        of = model(
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            hidden_size=heads * 128,
            intermediate_size=9216,
            vocab_size=3072,
        )
        assert (rules(f"-tp {tp}", of=of) == ["parallelism"]) is is_refused

    def test_mlp_width(self) -> None:
        assert rules("-tp 8", of=model(intermediate_size=14340)) == ["parallelism"]
        assert rules("-tp 4", of=model(intermediate_size=14340)) == []

    def test_experts_are_cut_by_tensor_and_data_ranks_unless_they_stay_whole(self) -> None:
        narrow = spec(QWEN_MOE, moe_intermediate_size=772)
        assert rules("-tp 8", of=narrow) == ["parallelism"]
        assert rules("-tp 4 -dp 2", of=narrow) == ["parallelism"]
        assert rules("-tp 4", of=narrow) == []
        assert rules("-tp 8 -ep", of=narrow) == []

    def test_vocabulary(self) -> None:
        # 50000 rows padded to 50048 = 64 x 782: TP 32 would cut 1564 rows, TP 128 nothing whole.
        of = model(
            vocab_size=50000,
            num_attention_heads=128,
            num_key_value_heads=128,
            hidden_size=16384,
            intermediate_size=16384,
        )
        assert rules("-tp 128", of=of) == []
        of = model(
            vocab_size=50000,
            num_attention_heads=96,
            num_key_value_heads=96,
            hidden_size=12288,
            intermediate_size=12288,
        )
        assert rules("-tp 3", of=of) == ["parallelism"]

    def test_recurrent_heads(self) -> None:
        assert rules("-tp 4", of=spec(MAMBA_HYBRID, num_attention_heads=8)) == []
        of = spec(MAMBA_HYBRID, mamba_n_heads=12, mamba_d_ssm=1536)
        assert "parallelism" in rules("-tp 8", of=of)
        assert rules("-tp 4", of=of) == []

    def test_the_vision_tower(self) -> None:
        # Qwen2.5-VL has an MLP of 3420: no TP 8 (run on 0.32).
        (found,) = refused("-tp 8", of=spec(QWEN_VL))
        assert found.server_says == "3420 is not divisible by 8"
        assert rules("-tp 4", of=spec(QWEN_VL)) == []
        assert rules("-tp 8 --mm-encoder-tp-mode data", of=spec(QWEN_VL)) == []
        assert rules("-tp 8 --language-model-only", of=spec(QWEN_VL)) == []
        deaf = replace(spec(QWEN_VL), model_type="gemma3")  # splits its tower all the same
        assert rules("-tp 8 --mm-encoder-tp-mode data", of=deaf) == ["parallelism"]
        limits = '--limit-mm-per-prompt \'{"image": 0, "video": 0}\''
        assert rules(f"-tp 8 {limits}", of=spec(QWEN_VL)) == []

    def test_layer_partition(self) -> None:
        assert rules("-pp 2", env={"VLLM_PP_LAYER_PARTITION": "16,16"}) == []
        # the words of vllm/distributed/utils.py in 0.11.0 and 0.33.0
        for text, says in (
            ("16,15", "sum(partitions)=31 does not match num_hidden_layers=32."),
            ("8,8,16", "len(partitions)=3 does not match pp_size=2."),
            ("many", "Invalid partition string: many"),
        ):
            (found,) = refused("-pp 2", env={"VLLM_PP_LAYER_PARTITION": text})
            assert (found.rule, found.server_says) == ("parallelism", says)

    def test_expert_parallelism_on_a_dense_model(self) -> None:
        (found,) = refused("--enable-expert-parallel")
        assert "Number of experts in the model must be greater than 0" in found.server_says
        assert rules("--enable-expert-parallel -tp 2", of=spec(QWEN_MOE)) == []

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("--enable-eplb -tp 2", "enable_expert_parallel must be True to use EPLB."),
            ("--enable-eplb -ep", "EPLB requires tensor, prefill-context, or data parallelism"),
            (
                "--eplb-config.num_redundant_experts 8 -ep -tp 2",
                "num_redundant_experts is set to 8",
            ),
            ("--enable-eplb -ep -tp 2", None),
        ],
    )
    def test_expert_balancing(self, line: str, says: str | None) -> None:
        found = refused(line, of=spec(QWEN_MOE))
        assert [r.server_says.startswith(says or "-") for r in found] == ([True] if says else [])

    @pytest.mark.parametrize(
        ("line", "is_refused"),
        [
            ("-tp 8 -dcp 3", True),
            ("-tp 8 -dcp 2", True),  # TP is not above the 8 KV heads
            ("-tp 16 -dcp 2", False),
            ("-tp 16 -dcp 4", True),  # at most 16 / 8
            ("-tp 2 -pcp 2 -dcp 3", True),
            ("-tp 8", False),
        ],
    )
    def test_decode_context_parallelism(self, line: str, is_refused: bool) -> None:
        assert ("parallelism" in rules(line)) is is_refused

    def test_mla_may_share_its_one_head_by_context(self) -> None:
        assert rules("-tp 8 -dcp 8", of=spec(DEEPSEEK)) == []

    @pytest.mark.parametrize(
        ("line", "is_refused"),
        [
            ("-tp 8 --nnodes 2", False),
            ("-tp 8 --nnodes 3", True),
            ("-tp 8 --nnodes 2 --node-rank 2", True),
            ("-tp 8 --nnodes 2 --distributed-executor-backend ray", True),
        ],
    )
    def test_nodes(self, line: str, is_refused: bool) -> None:
        assert (rules(line) == ["parallelism"]) is is_refused

    def test_sizes_below_one_and_local_ranks(self) -> None:
        assert "parallelism" in rules("-tp 0")
        assert rules("-dp 2 -dpl 4", of=spec(QWEN_MOE)) == ["parallelism"]


class TestGpus:
    def test_more_ranks_than_gpus(self) -> None:
        (found,) = refused("-tp 4 -pp 2", count=4)
        assert found.rule == "gpus"
        assert found.headline == "8 GPUs needed (TP 4 x PP 2), 4 given"
        assert found.server_says == (
            "World size (8) is larger than the number of available GPUs (4)"
        )
        assert str(found.location) == "chat.yaml:3"

    @pytest.mark.parametrize(
        ("line", "count", "is_refused"),
        [
            ("-tp 8", 8, False),
            ("-tp 8", 7, True),
            ("-tp 8", None, False),
            ("", 1, False),
            ("-tp 4 -dp 4", 8, True),
            ("-tp 4 -dp 4 -dpl 2", 8, False),
            ("-tp 8 -dp 16 --data-parallel-rank 3", 8, False),
            ("-tp 16 --nnodes 2", 8, False),
            ("-tp 2 --device-ids 0", 8, True),
        ],
    )
    def test_counts(self, line: str, count: int | None, is_refused: bool) -> None:
        assert ("gpus" in rules(line, count=count)) is is_refused

    def test_the_environment_narrows(self) -> None:
        env = {"CUDA_VISIBLE_DEVICES": "0,1"}
        (found,) = refused("-tp 4", count=8, env=env)
        assert found.headline == "4 GPUs needed (TP 4), 2 given by CUDA_VISIBLE_DEVICES"
        assert rules("-tp 2", count=8, env=env) == []

    def test_ray_may_find_the_missing_ones_elsewhere(self) -> None:
        (found,) = refused("-tp 16 --distributed-executor-backend ray", count=8)
        assert not found.is_certain


class TestDtype:
    def test_bfloat16_below_ampere(self) -> None:
        (found,) = refused("--dtype bfloat16", gpu="t4")
        assert found.headline == "bfloat16 needs compute capability 8.0, the GPU has 7.5"
        assert found.expected == "--dtype half"
        assert rules("", gpu="t4") == []
        assert rules("--dtype bfloat16", gpu="a10") == []

    def test_float16_where_it_is_unstable(self) -> None:
        (found,) = refused("--dtype float16", of=spec(GEMMA_2))
        assert found.server_says == "The model type 'gemma2' does not support float16."
        assert rules("--dtype float16", of=spec(GEMMA_2), version="0.9.0") == []
        assert rules("--dtype bfloat16", of=spec(GEMMA_2)) == []
        assert rules("--dtype float16") == []

    def test_a_full_width_cache_has_the_models_dtype(self) -> None:
        assert rules("--kv-cache-dtype float16") == ["dtype"]
        assert rules("--kv-cache-dtype bfloat16") == []

    @pytest.mark.parametrize(
        ("gpu", "is_refused"),
        [("v100-sxm2-32gb", True), ("t4", True), ("a100-sxm-80gb", False), ("l4", False)],
    )
    def test_fp8_caches_by_gpu(self, gpu: str, is_refused: bool) -> None:
        assert ("dtype" in rules("--kv-cache-dtype fp8", gpu=gpu)) is is_refused

    def test_mla_has_no_fp8_cache_on_ampere(self) -> None:
        assert rules("--kv-cache-dtype fp8", gpu="a100-sxm-80gb", of=spec(DEEPSEEK)) == ["dtype"]
        assert rules("--kv-cache-dtype fp8", gpu="l4", of=spec(DEEPSEEK)) == []

    def test_the_cache_a_checkpoint_asks_for_counts_too(self) -> None:
        asks = {**NVFP4, "kv_cache_quant_algo": "FP8"}
        of = spec(DEEPSEEK, quantization_config=asks)
        assert "dtype" in rules("", gpu="a100-sxm-80gb", of=of)

    def test_e5m2_with_an_fp8_checkpoint(self) -> None:
        of = model(quantization_config=fp8())
        assert rules("--kv-cache-dtype fp8_e5m2", of=of) == ["dtype"]
        assert rules("--kv-cache-dtype fp8_e5m2") == []

    def test_sparse_attention_needs_hopper_or_blackwell_and_its_block(self) -> None:
        plain = spec(DEEPSEEK)
        indexed = tuple(
            replace(
                group,
                layer=replace(
                    group.layer, caches=(*group.layer.caches, IndexerCache(index_head_dim=128))
                ),
            )
            for group in plain.layer_groups
        )
        of = replace(plain, layer_groups=indexed)
        assert rules("", gpu="a100-sxm-80gb", of=of) == ["dtype"]
        assert rules("", gpu="l4", of=of) == ["dtype"]
        assert rules("", gpu="h100-sxm-80gb", of=of) == []
        assert rules("--block-size 128", gpu="h100-sxm-80gb", of=of) == ["dtype"]
        assert rules("--block-size 64", gpu="h100-sxm-80gb", of=of) == []

    def test_nvfp4_cache(self) -> None:
        assert rules("--kv-cache-dtype nvfp4", gpu="h100-sxm-80gb") == ["dtype"]
        assert rules("--kv-cache-dtype nvfp4", gpu="b200-sxm-180gb") == []
        assert rules("--kv-cache-dtype nvfp4", gpu="b200-sxm-180gb", of=spec(DEEPSEEK)) == ["dtype"]


class TestQuantization:
    def test_unknown_names(self) -> None:
        (found,) = refused("--quantization gguf")
        assert found.server_says == "Unknown quantization method: gguf."
        assert not found.is_certain  # a plugin may be in the image
        assert refused("--quantization aqlm")[0].is_certain
        assert rules("--quantization bitsandbytes", version="0.27.1") == []

    def test_a_checkpoint_too_new_for_the_version(self) -> None:
        mxfp4 = {"quant_method": "mxfp4"}
        of = model(quantization_config=mxfp4)
        assert "quantization" in rules("", version="0.10.0", of=of)
        assert rules("", version="0.10.1", of=of) == []

    def test_a_flag_that_contradicts_the_checkpoint(self) -> None:
        of = model(quantization_config={"quant_method": "awq", **GROUPS}, torch_dtype="float16")
        (found,) = refused("--quantization fp8", of=of)
        assert "does not match the quantization method" in found.server_says
        assert rules("--quantization awq", of=of) == []
        assert rules("--quantization awq_marlin", of=of) == []

    def test_some_checkpoints_overrule_any_flag(self) -> None:
        # club-3090 ran --quantization auto_round on an auto-round checkpoint with 0.27.1.
        of = model(quantization_config={"quant_method": "auto-round", **GROUPS})
        assert rules("--quantization auto_round", version="0.27.1", of=of) == []
        of = model(quantization_config=NVFP4)
        assert rules("--quantization fp8", gpu="b200-sxm-180gb", of=of) == []

    def test_a_flag_that_needs_a_checkpoint(self) -> None:
        (found,) = refused("--quantization awq")
        assert found.server_says == "Cannot find the config file for awq"
        assert rules("--quantization fp8") == []

    def test_deprecated_methods_need_a_word(self) -> None:
        of = model(quantization_config={"quant_method": "fbgemm_fp8"})
        (found,) = refused(of=of)
        assert found.expected == "--allow-deprecated-quantization"
        assert rules("--allow-deprecated-quantization", of=of) == []
        assert rules("", version="0.13.0", of=of) == []

    @pytest.mark.parametrize(
        ("config", "gpu", "version", "is_refused"),
        [
            (fp8(), "v100-sxm2-32gb", "0.33.0", True),
            (fp8(), "t4", "0.33.0", False),
            (fp8(), "t4", "0.13.0", True),
            (NVFP4, "v100-sxm2-32gb", "0.33.0", True),
            ({**NVFP4, "quant_algo": "FP8"}, "a100-sxm-80gb", "0.26.0", True),
            ({**NVFP4, "quant_algo": "FP8"}, "a100-sxm-80gb", "0.27.0", False),
            ({"quant_method": "gptq", **GROUPS}, "v100-sxm2-32gb", "0.33.0", False),
            (fp8(), "mi300x", "0.33.0", False),
        ],
    )
    def test_minimum_gpu(
        self, config: dict[str, Any], gpu: str, version: str, is_refused: bool
    ) -> None:
        of = model(quantization_config=config)
        assert (rules(gpu=gpu, version=version, of=of) == ["quantization"]) is is_refused

    def test_words_of_the_gpu_refusal(self) -> None:
        (found,) = refused(gpu="v100-sxm2-32gb", of=model(quantization_config=fp8()))
        assert found.headline == "fp8 needs compute capability 7.5, the GPU has 7.0"
        assert found.server_says == (
            "The quantization method fp8 is not supported for the current GPU. "
            "Minimum capability: 75."
        )

    def test_activation_dtypes(self) -> None:
        of = model(quantization_config={"quant_method": "mxfp4"})
        (found,) = refused("--dtype float16", of=of)
        assert found.server_says == "torch.float16 is not supported for quantization method mxfp4."
        assert rules("--dtype bfloat16", of=of) == []

    def test_fp8_blocks_under_tensor_parallelism(self) -> None:
        blocks = fp8(weight_block_size=[128, 128])
        of = model(quantization_config=blocks, intermediate_size=14336)  # 14336 / 16 = 7 x 128
        assert rules("-tp 16", of=of) == []
        of = model(quantization_config=blocks, intermediate_size=13824)  # / 8 = 13.5 x 128
        (found,) = refused("-tp 8", of=of)
        assert found.server_says == (
            "Weight input_size_per_partition = 1728 is not divisible by weight quantization "
            "block_k = 128"
        )
        ignored = {**blocks, "modules_to_not_convert": ["re:.*down_proj"]}
        assert rules("-tp 8", of=model(quantization_config=ignored, intermediate_size=13824)) == []

    @pytest.mark.parametrize(
        ("tp", "version", "is_refused"),
        [(4, "0.28.0", True), (4, "0.29.0", False), (2, "0.28.0", False)],
    )
    def test_fp8_experts_are_refined_since_0_29(
        self, tp: int, version: str, is_refused: bool
    ) -> None:
        # 768 / 4 = 192 = 1.5 x 128: blocks of 64 since 0.29
        of = spec(QWEN_MOE, quantization_config=fp8(weight_block_size=[128, 128]))
        assert (rules(f"-tp {tp}", version=version, of=of) == ["quantization"]) is is_refused
        assert rules(f"-tp {tp} --enable-expert-parallel", version=version, of=of) == []

    def test_groups_under_tensor_parallelism(self) -> None:
        config = {"quant_method": "gptq", **GROUPS}
        of = model(quantization_config=config, intermediate_size=13824)
        (found,) = refused("-tp 8", of=of)
        assert found.server_says.startswith("The input size is not aligned")
        assert rules("-tp 4", of=of) == []


class TestScheduler:
    @pytest.mark.parametrize(
        ("line", "version", "is_refused"),
        [
            ("--no-enable-chunked-prefill --max-num-batched-tokens 2048", "0.33.0", True),
            ("--no-enable-chunked-prefill --max-num-batched-tokens 131072", "0.33.0", False),
            ("--no-enable-chunked-prefill --max-num-batched-tokens 2048", "0.11.0", False),
            ("--max-num-batched-tokens 128 --max-num-seqs 256", "0.33.0", True),
            ("--max-num-batched-tokens 256 --max-num-seqs 256", "0.33.0", False),
            ("--max-num-batched-tokens 128", "0.33.0", False),
            ("--max-num-seqs 8 --max-num-active-seqs 9", "0.33.0", True),
            ("--max-num-seqs 8 --max-num-active-seqs 8", "0.33.0", False),
            ("--max-model-len 64 --long-prefill-token-threshold 65", "0.33.0", True),
            ("--max-model-len 64 --long-prefill-token-threshold 64", "0.33.0", False),
            ("--max-num-partial-prefills 2", "0.26.0", True),
            ("--max-num-partial-prefills 1", "0.26.0", False),
            ("--max-num-partial-prefills 2", "0.10.2", False),
            ("--async-scheduling -pp 2", "0.14.1", True),
            ("--async-scheduling -pp 2", "0.33.0", False),
        ],
    )
    def test_contradictions(self, line: str, version: str, is_refused: bool) -> None:
        assert (rules(line, version=version) == ["scheduler"]) is is_refused

    def test_words(self) -> None:
        (found,) = refused("--max-num-batched-tokens 128 --max-num-seqs 256")
        assert found.headline == "128 tokens a step are fewer than 256 sequences"
        assert found.server_says == (
            "max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (256)."
        )

    def test_an_image_that_does_not_fit_a_step(self) -> None:
        of = replace(model(), architecture="Gemma4ForConditionalGeneration")
        (found,) = refused("--max-num-batched-tokens 2048", of=of)
        assert found.server_says.startswith("Chunked MM input disabled")
        assert not found.is_certain
        assert rules("--max-num-batched-tokens 2496", of=of) == []
        assert rules("--max-num-batched-tokens 2048 --language-model-only", of=of) == []

    def test_nothing_at_all(self) -> None:
        assert "scheduler" in rules("--max-num-seqs 0")


class TestOther:
    @pytest.mark.parametrize(
        ("line", "version", "is_refused"),
        [
            ("--gpu-memory-utilization 1.2", "0.33.0", True),
            ("--gpu-memory-utilization 1", "0.33.0", False),
            ("--gpu-memory-utilization 0", "0.33.0", True),
            ("--block-size 8", "0.33.0", True),
            ("--block-size 32", "0.33.0", False),
            ("--mamba-block-size 64 --no-enable-prefix-caching", "0.33.0", True),
            ("--mamba-block-size 64", "0.33.0", False),
            ("--enable-lora --max-lora-rank 48", "0.11.0", True),
            ("--enable-lora --max-lora-rank 64", "0.11.0", False),
            ("--max-lora-rank 48", "0.11.0", False),
            ("--enable-lora --max-loras 0", "0.33.0", True),
            ("--enable-lora --max-loras 4 --max-cpu-loras 2", "0.33.0", True),
            ("--enable-lora --max-loras 4 --max-cpu-loras 4", "0.33.0", False),
            ("--spec-method ngram --spec-tokens 0", "0.33.0", True),
            ("--spec-method ngram --spec-tokens 3", "0.33.0", False),
            ("--spec-method ngram", "0.33.0", True),
            ("--spec-method mtp", "0.33.0", False),
            (
                '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 3, '
                '"prompt_lookup_min": 4, "prompt_lookup_max": 3}\'',
                "0.33.0",
                True,
            ),
            ("--speculative-config.tensor_parallel_size 2", "0.33.0", True),
            ("-tp 4 --speculative-config.draft_tensor_parallel_size 2", "0.33.0", True),
            ("-tp 4 --speculative-config.draft_tensor_parallel_size 4", "0.33.0", False),
            ("--kv-transfer-config.kv_connector NixlConnector", "0.33.0", True),
            (
                '--kv-transfer-config \'{"kv_connector": "N", "kv_role": "kv_both"}\'',
                "0.33.0",
                False,
            ),
        ],
    )
    def test_ranges_and_combinations(self, line: str, version: str, is_refused: bool) -> None:
        assert (rules(line, version=version) == ["other"]) is is_refused

    def test_a_class_that_is_gone(self) -> None:  # run on 0.32
        of = replace(model(), architecture="MptForCausalLM")
        (found,) = refused(version="0.32.0", of=of)
        assert found.server_says == "Model architecture MptForCausalLM was supported in vLLM until"
        assert found.is_certain
        assert refused(version="0.28.0", of=of) == []

    def test_a_class_that_is_too_new(self) -> None:
        new = spec({**LLAMA, "architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss"})
        (found,) = refused(version="0.10.1", of=new)
        assert found.headline == ("vllm 0.10.1 does not have SeedOssForCausalLM yet: new in 0.10.2")
        assert not found.is_certain
        assert refused(version="0.10.2", of=new) == []


def test_headlines_fit_a_summary_line() -> None:
    lines = [
        "-tp 3 --max-model-len 999999999 --kv-cache-dtype float16 --quantization awq",
        "--max-num-batched-tokens 1 --max-num-seqs 1000000 --block-size 7",
        "--swap-space 4 --no-such-flag --speculative-model x --enforce-eager=maybe",
    ]
    for line in lines:
        for refusal in refused(line, count=1):
            assert len(refusal.headline) <= 100
            assert refusal.server_says
            assert refusal.location is not None


def test_unknowns_refuse_nothing() -> None:
    line = "--kv-cache-dtype fp8 --dtype bfloat16"
    assert refused(line, gpu=None, count=None) == []


@pytest.mark.parametrize(
    ("version", "gpu", "env", "expected"),
    [
        # vllm-project/vllm#26431: 0.11.0 on an RTX 3090.
        ("0.11.0", "rtx-3090", {}, ["dtype"]),
        ("0.11.0", "rtx-3090", {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, []),
        ("0.11.0", "rtx-4090", {}, []),
        ("0.16.0", "rtx-3090", {}, []),
    ],
)
def test_fp8_cache_of_0_11_on_ampere(
    version: str, gpu: str, env: dict[str, str], expected: list[str]
) -> None:
    found = refused("--kv-cache-dtype fp8_e5m2", version=version, gpu=gpu, env=env)
    assert [refusal.rule for refusal in found] == expected
    assert not any(refusal.is_certain for refusal in found)
