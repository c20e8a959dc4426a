"""What a config.json may look like: names, defaults and traps, one test each."""

from typing import Any

import pytest

from pytest_llmserve.models.class_defaults import defaults_of
from pytest_llmserve.models.config_reader import read_config
from pytest_llmserve.models.errors import BadConfig, UnsupportedModel
from pytest_llmserve.models.spec import (
    IndexerCache,
    KvCache,
    LatentCache,
    ModelSpec,
    Shard,
    SharedCache,
    StateCache,
    Weight,
)
from pytest_llmserve.models.totals import kv_elements_per_token, total_parameters

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


def read(config: dict[str, Any]) -> ModelSpec:
    return read_config(config, model_id="org/name", source="org--name/config.json")


def small(architecture: str, model_type: str, **changes: Any) -> ModelSpec:
    return read({"architectures": [architecture], "model_type": model_type, **SMALL, **changes})


def kinds(spec: ModelSpec) -> list[str]:
    """One letter a layer: full, sliding, chunked, reading another's, Latent, sTate or none."""
    letters = []
    for layer in spec.layers():
        letter = "-"
        for cache in layer.caches:
            match cache:
                case KvCache(kind=kind):
                    letter = kind[0]
                case SharedCache():
                    letter = "r"
                case LatentCache():
                    letter = "L"
                case StateCache():
                    letter = "T" if letter == "-" else letter
                case IndexerCache():
                    letter += "i"
        letters.append(letter)
    return letters


def kv(spec: ModelSpec, layer: int = 0) -> KvCache:
    cache = spec.layers()[layer].caches[0]
    assert isinstance(cache, KvCache)
    return cache


def weight(spec: ModelSpec, name: str, layer: int = 0) -> Weight:
    return next(item for item in spec.layers()[layer].weights if item.name == name)


def has(spec: ModelSpec, name: str, layer: int = 0) -> bool:
    return any(item.name == name for item in spec.layers()[layer].weights)


def routes(spec: ModelSpec) -> list[bool]:
    return [layer.experts is not None for layer in spec.layers()]


# --- where things are


def test_a_flat_llama() -> None:
    spec = read(LLAMA_8B)
    # transformers 5.24.0 builds 8,030,261,248 parameters
    assert total_parameters(spec) == 8_030_261_248
    assert kv(spec) == KvCache(
        kind="full", num_heads=32, num_kv_heads=8, head_dim=128, v_head_dim=128
    )
    assert (spec.num_layers, spec.num_attention_heads, spec.num_kv_heads) == (32, 32, 8)
    assert spec.intermediate_sizes == (14336,)
    assert spec.dtype == "bfloat16"
    assert spec.source == "org--name/config.json"


def test_a_nested_text_config_that_relies_on_class_defaults() -> None:
    spec = read(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "num_attention_heads": 16,
                "num_hidden_layers": 27,
                "image_size": 896,
                "patch_size": 14,
                "vision_use_head": False,
            },
        }
    )
    # google/gemma-3-4b-it: heads 8, KV heads 4, head_dim 256, vocabulary 262208 by class
    assert (kv(spec).num_heads, kv(spec).num_kv_heads, kv(spec).head_dim) == (8, 4, 256)
    assert spec.vocab_size == 262208
    assert total_parameters(spec) == 4_300_079_472
    assert spec.is_tied
    assert spec.is_multimodal
    assert spec.vision_num_heads == 16
    assert spec.layers_path == "language_model.model.layers"


def test_a_text_config_three_levels_deep() -> None:
    thinker = {
        "text_config": {"model_type": "qwen2_5_omni_text", **SMALL},
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "depth": 2,
            "num_heads": 2,
            "out_hidden_size": 64,
        },
        "audio_config": {
            "d_model": 32,
            "encoder_ffn_dim": 64,
            "encoder_layers": 2,
            "num_mel_bins": 8,
            "output_dim": 64,
        },
    }
    spec = read(
        {
            "architectures": ["Qwen2_5OmniForConditionalGeneration"],
            "model_type": "qwen2_5_omni",
            "thinker_config": thinker,
        }
    )
    assert spec.hidden_size == 64
    assert weight(spec, "self_attn.q_proj.bias").rows == 64
    assert any(item.name.startswith("audio_tower") for item in spec.vision)


def test_a_wrapper_takes_its_text_reader_from_the_nested_model_type() -> None:
    spec = read(
        {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "text_config": {"model_type": "qwen2", **SMALL},
        }
    )
    assert has(spec, "self_attn.q_proj.bias")


def test_a_nested_model_type_that_is_not_understood_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"text_config\.model_type 'marvel'"):
        read(
            {
                "architectures": ["LlavaForConditionalGeneration"],
                "model_type": "llava",
                "text_config": {"model_type": "marvel", **SMALL},
            }
        )


def test_without_architectures_the_model_type_decides() -> None:
    assert read({"model_type": "llama", **SMALL}).architecture == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["MyOPTForCausalLM"], "model_type": "opt"}, "'MyOPTForCausalLM'"),
        ({"architectures": ["PEagleDraftModel"], "model_type": "llama"}, "PEagle"),
        ({"model_type": "multi_modality"}, "model_type 'multi_modality' is not understood"),
        ({}, "a config without model_type is not understood"),
    ],
)
def test_what_is_not_understood_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        read({**SMALL, **config})


def test_the_architecture_outweighs_the_model_type() -> None:
    # Kimi K2 says model_type kimi_k2 and architectures DeepseekV3ForCausalLM
    spec = read(
        {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "kimi_k2",
            **SMALL,
            "kv_lora_rank": 16,
            "q_lora_rank": 24,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
        }
    )
    assert kinds(spec) == ["L"] * 4
    assert routes(spec) == [False, True, True, True]


def test_internvl_reads_llm_config_and_its_tower() -> None:
    spec = read(
        {
            "architectures": ["InternVLChatModel"],
            "model_type": "internvl_chat",
            "downsample_ratio": 0.5,
            "llm_config": {
                "model_type": "internlm2",
                "hidden_size": 2048,
                "intermediate_size": 8192,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "vocab_size": 92553,
                "bias": False,
                "tie_word_embeddings": False,
            },
            "vision_config": {
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "image_size": [448, 448],
                "patch_size": 14,
                "norm_type": "layer_norm",
                "qkv_bias": True,
                "qk_normalization": False,
            },
        }
    )
    # the safetensors of OpenGVLab/InternVL2-2B hold 2,205,754,368 parameters
    assert total_parameters(spec) == 2_205_754_368


def test_llava_next_ends_rows_with_a_vector() -> None:
    text = {"model_type": "llama", **SMALL}
    counts = [
        total_parameters(read({"architectures": [name], "model_type": kind, "text_config": text}))
        for name, kind in (
            ("LlavaForConditionalGeneration", "llava"),
            ("LlavaNextForConditionalGeneration", "llava_next"),
        )
    ]
    assert counts[1] - counts[0] == 64


def test_parts_that_are_not_modelled_are_named() -> None:
    spec = read({"architectures": ["Phi3VForCausalLM"], "model_type": "phi3_v", **SMALL})
    assert any("vision tower and projector of Phi-3-vision" in item for item in spec.unsupported)


# --- names of the same thing


def test_gpt2_names() -> None:
    spec = read(
        {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "n_inner": None,
            "vocab_size": 50257,
        }
    )
    # openai-community/gpt2, transformers 5.24.0
    assert total_parameters(spec) == 124_439_808
    assert spec.intermediate_sizes == (3072,)
    assert spec.layers_path == "transformer.h"


def test_old_phi_names() -> None:
    spec = read(
        {
            "architectures": ["PhiForCausalLM"],
            "model_type": "phi-msft",
            "n_embd": 2560,
            "n_head": 32,
            "n_head_kv": None,
            "n_inner": None,
            "n_layer": 32,
            "n_positions": 2048,
            "rotary_dim": 32,
            "vocab_size": 51200,
            "tie_word_embeddings": False,
        }
    )
    # microsoft/phi-2, transformers 5.24.0
    assert total_parameters(spec) == 2_779_683_840
    assert spec.limits.candidates == {"n_positions": 2048}
    assert spec.rotary_tables == ()  # vLLM runs it through its Transformers backend


def test_qwen1_writes_twice_the_mlp_width() -> None:
    spec = small("QWenLMHeadModel", "qwen", intermediate_size=256, kv_channels=16)
    assert spec.intermediate_sizes == (128,)


def test_kv_heads_absent_or_null_are_the_query_heads() -> None:
    absent = {key: value for key, value in LLAMA_8B.items() if key != "num_key_value_heads"}
    for config in (absent, {**LLAMA_8B, "num_key_value_heads": None}):
        assert kv(read(config)).num_kv_heads == 32


def test_a_null_is_no_class_default() -> None:
    # the Mixtral class has 8 KV heads for an absent key; null means as many as query heads
    spec = small("MixtralForCausalLM", "mixtral", num_key_value_heads=None, num_local_experts=2)
    assert kv(spec).num_kv_heads == 4


def test_falcon_7b_has_one_kv_head_whatever_num_kv_heads_says() -> None:
    spec = read(
        {
            "architectures": ["FalconForCausalLM"],
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "num_kv_heads": 71,
            "multi_query": True,
            "new_decoder_architecture": False,
            "parallel_attn": True,
            "bias": False,
            "vocab_size": 65024,
        }
    )
    assert kv(spec).num_kv_heads == 1
    assert total_parameters(spec) == 6_921_720_704
    assert spec.limits.candidates == {"max_position_embeddings": 2048}
    assert spec.is_tied


def test_falcon_40b_reads_num_kv_heads() -> None:
    changes = {"new_decoder_architecture": True, "num_kv_heads": 2, "multi_query": True}
    spec = small("FalconForCausalLM", "falcon", **changes)
    assert kv(spec).num_kv_heads == 2


def test_chatglm_counts_kv_heads_in_groups() -> None:
    spec = read(
        {
            "architectures": ["ChatGLMModel"],
            "model_type": "chatglm",
            "hidden_size": 4096,
            "num_layers": 28,
            "num_attention_heads": 32,
            "ffn_hidden_size": 13696,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "add_qkv_bias": True,
            "padded_vocab_size": 65024,
            "seq_length": 32768,
            "tie_word_embeddings": False,
        }
    )
    # THUDM/chatglm2-6b, counted from the file's shapes
    assert total_parameters(spec) == 6_243_584_000
    assert kv(spec).num_kv_heads == 2
    assert (spec.rotary_tables[0].rows, spec.rotary_tables[0].width) == (32768, 64)


def test_head_dim_need_not_be_hidden_by_heads() -> None:
    spec = small("Qwen3ForCausalLM", "qwen3", head_dim=32)
    assert kv(spec).head_dim == 32
    assert weight(spec, "self_attn.q_proj").rows == 128
    assert weight(spec, "self_attn.q_norm").rows == 32


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(BadConfig, match=r"hidden_size: 64, expected a multiple of"):
        small("LlamaForCausalLM", "llama", num_attention_heads=6, num_key_value_heads=6)


def test_gemma4_full_layers_have_heads_of_their_own() -> None:
    spec = small(
        "Gemma4ForCausalLM",
        "gemma4_text",
        head_dim=16,
        global_head_dim=32,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        sliding_window=64,
        layer_types=["sliding_attention"] * 3 + ["full_attention"],
    )
    assert kinds(spec) == ["s", "s", "s", "f"]
    assert (kv(spec, 3).num_kv_heads, kv(spec, 3).head_dim) == (1, 32)
    # v is k in the checkpoint: runtimes hold it, nobody counts it
    assert not weight(spec, "self_attn.v_proj", 3).is_parameter
    assert weight(spec, "self_attn.v_proj", 0).is_parameter


MLA = {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}


def test_mla_ignores_kv_heads_and_head_dim() -> None:
    spec = small("DeepseekV2ForCausalLM", "deepseek_v2", head_dim=192, **MLA)
    assert kv_elements_per_token(spec) == 4 * 576


def test_mla_with_a_null_query_rank_projects_at_once() -> None:
    spec = small("DeepseekV2ForCausalLM", "deepseek_v2", **MLA)
    assert weight(spec, "self_attn.q_proj").rows == 4 * 192
    assert not has(spec, "self_attn.q_a_proj")


def test_an_indexer_that_is_shared_has_no_cache() -> None:
    # GLM-5.2: 21 of 78 layers keep index keys
    spec = small(
        "GlmMoeDsaForCausalLM",
        "glm_moe_dsa",
        **{**MLA, "q_lora_rank": 32},
        index_n_heads=2,
        index_head_dim=128,
        index_topk=2048,
        indexer_types=["full", "shared", "shared", "full"],
    )
    assert kinds(spec) == ["Li", "L", "L", "Li"]
    assert has(spec, "self_attn.indexer.wq_b", 0)
    assert not has(spec, "self_attn.indexer.wq_b", 1)
    assert isinstance(latent := spec.layers()[0].caches[0], LatentCache)
    assert latent.max_attended_tokens == 2048


# --- experts


def test_no_experts_means_dense() -> None:
    spec = small(
        "GraniteMoeHybridForCausalLM",
        "granitemoehybrid",
        num_local_experts=0,
        shared_intermediate_size=96,
        layer_types=["mamba", "attention", "mamba", "mamba"],
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=16,
    )
    assert routes(spec) == [False] * 4
    assert kinds(spec) == ["T", "f", "T", "T"]
    assert spec.intermediate_sizes == (96,)


def test_qwen_moe_skips_layers_by_step_and_list() -> None:
    spec = small(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        decoder_sparse_step=2,
        mlp_only_layers=[3],
    )
    assert routes(spec) == [False, True, False, False]
    assert spec.intermediate_sizes == (32, 128)


def test_an_unused_dense_width_is_not_counted() -> None:
    spec = small(
        "Qwen3MoeForCausalLM", "qwen3_moe", num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32,
    )  # fmt: skip
    assert spec.intermediate_sizes == (32,)


def test_a_list_of_moe_layers() -> None:
    spec = small(
        "MiMoV2FlashForCausalLM",
        "mimo_v2_flash",
        head_dim=24,
        v_head_dim=16,
        swa_num_attention_heads=4,
        swa_num_key_value_heads=4,
        swa_head_dim=24,
        swa_v_head_dim=16,
        hybrid_layer_pattern=[0, 1, 1, 0],
        moe_layer_freq=[0, 1, 1, 1],
        sliding_window=128,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
    )
    assert routes(spec) == [False, True, True, True]
    assert kinds(spec) == ["f", "s", "s", "f"]
    assert (kv(spec, 0).num_kv_heads, kv(spec, 1).num_kv_heads) == (2, 4)
    assert (kv(spec, 0).head_dim, kv(spec, 0).v_head_dim) == (24, 16)
    assert has(spec, "self_attn.sinks", 1)
    assert not has(spec, "self_attn.sinks", 0)


def test_llama4_routes_each_second_layer_and_chunks_three_of_four() -> None:
    spec = small(
        "Llama4ForCausalLM",
        "llama4_text",
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=1,
        intermediate_size_mlp=256,
        interleave_moe_layer_step=2,
        attention_chunk_size=8192,
        no_rope_layers=[],
    )
    assert routes(spec) == [False, True, False, True]
    assert kinds(spec) == ["c", "c", "c", "f"]
    assert kv(spec).window == 8192
    assert spec.intermediate_sizes == (128, 256)


def test_ernie_routes_between_two_indices() -> None:
    spec = small(
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5_moe",
        moe_num_experts=4,
        moe_k=2,
        moe_intermediate_size=32,
        moe_num_shared_experts=2,
        moe_layer_start_index=1,
        moe_layer_end_index=2,
        moe_layer_interval=1,
    )
    assert routes(spec) == [False, True, True, False]
    assert weight(spec, "mlp.shared_experts.gate_proj", 1).rows == 64


def test_hunyuan_lists_with_a_number_for_each_layer() -> None:
    spec = small(
        "HunYuanMoEV1ForCausalLM",
        "hunyuan",
        num_experts=4,
        moe_topk=[1, 1, 2, 2],
        moe_intermediate_size=[32, 32, 48, 48],
        num_shared_expert=[1, 1, 1, 1],
        use_mixed_mlp_moe=True,
    )
    experts = [layer.experts for layer in spec.layers()]
    assert [e.num_experts_per_tok for e in experts if e] == [1, 1, 2, 2]
    assert [e.moe_intermediate_size for e in experts if e] == [32, 32, 48, 48]


def test_mtp_layers_are_not_built() -> None:
    one = small("DeepseekV2ForCausalLM", "deepseek_v2", **MLA)
    other = small("DeepseekV2ForCausalLM", "deepseek_v2", num_nextn_predict_layers=3, **MLA)
    assert total_parameters(one) == total_parameters(other)


# --- which layers do what


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "ssss"),  # absent: the class has 4096, vLLM 0.32 slides them all
        ({"sliding_window": None}, "ffff"),
        ({"sliding_window": 1024}, "ssss"),
    ],
)
def test_mistral_slides_unless_the_window_is_null(changes: dict[str, Any], expected: str) -> None:
    spec = small("MistralForCausalLM", "mistral", **changes)
    assert "".join(kinds(spec)) == expected


def test_qwen2_slides_only_where_it_says_so() -> None:
    off = {"sliding_window": 64, "use_sliding_window": False, "max_window_layers": 2}
    assert kinds(small("Qwen2ForCausalLM", "qwen2", **off)) == ["f"] * 4
    on = {**off, "use_sliding_window": True}
    assert kinds(small("Qwen2ForCausalLM", "qwen2", **on)) == ["f", "f", "s", "s"]


def test_phi3_slides_even_where_the_window_is_longer_than_the_context() -> None:
    spec = small("Phi3ForCausalLM", "phi3", sliding_window=262144)
    assert kinds(spec) == ["s"] * 4
    assert kv(spec).window == 262144


def test_gemma2_alternates_by_class() -> None:
    spec = small("Gemma2ForCausalLM", "gemma2", head_dim=16, sliding_window=128)
    assert kinds(spec) == ["s", "f", "s", "f"]


def test_gemma3_keeps_each_sixth_layer_full() -> None:
    spec = small("Gemma3ForCausalLM", "gemma3_text", head_dim=16, num_hidden_layers=13)
    assert "".join(kinds(spec)) == "sssssfsssssfs"


def test_a_pattern_in_letters() -> None:
    spec = small("Exaone4ForCausalLM", "exaone4", sliding_window=64, sliding_window_pattern="LLLG")
    assert kinds(spec) == ["s", "s", "s", "f"]


def test_an_unknown_word_in_layer_types_is_refused() -> None:
    with pytest.raises(BadConfig, match="layer_types: 'spiral', expected full_attention or"):
        small("Olmo3ForCausalLM", "olmo3", layer_types=["spiral"] * 4)


def test_a_list_that_is_too_short_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"layer_types.*expected a list of 4 words"):
        small("Olmo3ForCausalLM", "olmo3", layer_types=["full_attention"])


NEMOTRON = {
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
    "num_hidden_layers": 5,
}


def test_nemotron_letters() -> None:
    spec = small(
        "NemotronHForCausalLM", "nemotron_h", hybrid_override_pattern="M-M*E", **NEMOTRON,
        n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=48, moe_latent_size=16,
    )  # fmt: skip
    assert kinds(spec) == ["T", "-", "T", "f", "-"]
    assert routes(spec) == [False, False, False, False, True]
    assert weight(spec, "mixer.experts.0.up_proj", 4).cols == 16
    assert not has(spec, "mixer.gate_proj", 1)


def test_nemotron_words_stand_for_the_layer_count() -> None:
    config = {key: value for key, value in SMALL.items() if key != "num_hidden_layers"}
    spec = read(
        {
            "architectures": ["NemotronHForCausalLM"],
            "model_type": "nemotron_h",
            **config,
            **{key: value for key, value in NEMOTRON.items() if key != "num_hidden_layers"},
            "layers_block_type": ["mamba", "mlp", "attention"],
        }
    )
    assert spec.num_layers == 3


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("MXM*E", "hybrid_override_pattern: 'X'"), ("M*", "'2 layers', expected num_hidden_layers")],
)
def test_a_wrong_nemotron_pattern_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        small("NemotronHForCausalLM", "nemotron_h", hybrid_override_pattern=pattern, **NEMOTRON)


def test_kimi_linear_counts_layers_from_one() -> None:
    spec = small(
        "KimiLinearForCausalLM",
        "kimi_linear",
        **{**MLA, "num_experts": 4, "n_shared_experts": 1},
        linear_attn_config={"full_attn_layers": [4], "kda_layers": [1, 2, 3]},
    )
    assert kinds(spec) == ["T", "T", "T", "L"]


def test_qwen3_next_attends_each_fourth_layer() -> None:
    spec = small(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        head_dim=16,
        full_attention_interval=4,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    )
    assert kinds(spec) == ["T", "T", "T", "f"]
    # the query projection makes an output gate besides
    assert weight(spec, "self_attn.q_proj", 3).rows == 2 * 4 * 16


def test_the_state_dtype_is_read() -> None:
    spec = small("NemotronHForCausalLM", "nemotron_h", hybrid_override_pattern="MMM*M", **NEMOTRON)
    cache = spec.layers()[0].caches[0]
    assert isinstance(cache, StateCache)
    assert [tensor.dtype_bits for tensor in cache.tensors] == [None, 32]


def test_nemotron_nas_rounds_widths_and_drops_attention() -> None:
    block = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 2.625}}
    idle = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 5.25}}
    spec = read(
        {
            "architectures": ["DeciLMForCausalLM"],
            "model_type": "nemotron-nas",
            **SMALL,
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "intermediate_size": None,
            "num_key_value_heads": None,
            "block_configs": [block, idle, idle, block],
        }
    )
    assert kinds(spec) == ["f", "-", "-", "f"]
    assert kv(spec).num_kv_heads == 32
    # 2 x 2.625 x 8192 / 3 = 14336; 28672 (Llama-3_3-Nemotron-Super-49B)
    assert spec.intermediate_sizes == (14336, 28672)


def test_the_last_layers_may_share_caches() -> None:
    spec = small(
        "Gemma4ForCausalLM",
        "gemma4_text",
        head_dim=16,
        global_head_dim=16,
        hidden_size_per_layer_input=8,
        num_kv_shared_layers=2,
        use_double_wide_mlp=True,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=32,
    )
    assert kinds(spec) == ["s", "f", "r", "r"]
    assert not has(spec, "self_attn.k_proj", 2)
    assert weight(spec, "mlp.up_proj", 2).rows == 256
    assert weight(spec, "mlp.up_proj", 1).rows == 128


FALCON_H1 = {"mamba_n_heads": 8, "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_conv": 4}


def test_falcon_h1_has_both_in_every_layer_and_a_width_of_its_own() -> None:
    spec = small("FalconH1ForCausalLM", "falcon_h1", mamba_d_ssm=64, mamba_d_head=8, **FALCON_H1)
    caches = spec.layers()[0].caches
    assert [type(cache) for cache in caches] == [KvCache, StateCache]
    # mamba_d_ssm 64, not mamba_expand 2 x hidden 64
    assert weight(spec, "mamba.out_proj").cols == 64


def test_falcon_h1_heads_that_do_not_make_the_width_are_refused() -> None:
    with pytest.raises(BadConfig, match="mamba_d_head: 16, expected 64 / mamba_n_heads"):
        small("FalconH1ForCausalLM", "falcon_h1", mamba_d_ssm=64, mamba_d_head=16, **FALCON_H1)


def test_falcon_mamba_width_counts_before_expand() -> None:
    spec = small(
        "FalconMambaForCausalLM", "falcon_mamba", expand=16, time_step_rank=4, state_size=16
    )
    assert weight(spec, "mixer.out_proj").cols == 128
    assert spec.num_attention_heads == 0


def test_jamba_periods() -> None:
    spec = small(
        "JambaForCausalLM",
        "jamba",
        attn_layer_period=4,
        attn_layer_offset=2,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        num_experts_per_tok=2,
    )
    assert kinds(spec) == ["T", "T", "f", "T"]
    assert routes(spec) == [False, True, False, True]


def test_lfm2_rounds_its_width() -> None:
    spec = small(
        "Lfm2ForCausalLM",
        "lfm2",
        intermediate_size=12288,
        layer_types=["conv", "conv", "full_attention", "conv"],
    )
    # 2/3 of 12288, rounded up to a multiple of 256 (LFM2-1.2B)
    assert spec.intermediate_sizes == (8192,)
    assert kinds(spec) == ["T", "T", "f", "T"]


def test_images_of_mllama_are_no_text_cache() -> None:
    spec = small("MllamaForConditionalGeneration", "mllama", cross_attention_layers=[1])
    assert kinds(spec) == ["f", "-", "f", "f"]
    assert spec.unsupported == ("keys and values of images in the cross-attention layers",)


def test_minicpm3_caches_all_its_heads() -> None:
    spec = small(
        "MiniCPM3ForCausalLM",
        "minicpm3",
        kv_lora_rank=16,
        q_lora_rank=24,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
    )
    # vLLM 0.32 pads the values to the keys' width
    assert kv(spec) == KvCache(kind="full", num_heads=4, num_kv_heads=4, head_dim=12, v_head_dim=12)


# --- how runtimes hold the weights (vLLM 0.32, built for one rank)


def test_groups_of_mamba2_are_divided_like_kv_heads() -> None:
    # mamba2-780m has one group: with TP 8 each rank holds all of B and C
    spec = small("FalconH1ForCausalLM", "falcon_h1", mamba_d_ssm=64, mamba_d_head=8, **FALCON_H1)
    groups = [w for w in spec.layers()[0].weights if w.shard is Shard.KV and "mamba" in w.name]
    assert [(w.name, w.rows, w.cols, w.kv_heads) for w in groups] == [
        ("mamba.in_proj", 32, 64, 1),
        ("mamba.conv1d", 32, 4, 1),
        ("mamba.conv1d.bias", 32, 1, 1),
    ]


def test_gpt_bigcode_keeps_its_mlp_whole_and_a_mask() -> None:
    spec = small("GPTBigCodeForCausalLM", "gpt_bigcode", n_positions=512)
    assert weight(spec, "mlp.c_fc").shard is Shard.REPLICATED
    assert weight(spec, "attn.c_attn").shard is Shard.COLUMN
    mask = next(item for item in spec.outside if item.name == "transformer.bias")
    assert (mask.num_elements, mask.dtype_bits, mask.is_parameter) == (512 * 512, 8, False)


@pytest.mark.parametrize(
    ("architecture", "model_type", "bits"),
    [("Glm4MoeForCausalLM", "glm4_moe", 32), ("Qwen3MoeForCausalLM", "qwen3_moe", None)],
)
def test_some_routers_are_float32(architecture: str, model_type: str, bits: int | None) -> None:
    experts = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
    count = {"n_routed_experts": 4} if bits else {"num_experts": 4}
    spec = small(architecture, model_type, **experts, **count)
    assert weight(spec, "mlp.gate", 1).dtype_bits == bits


def test_mla_projects_down_on_every_rank_and_up_by_heads() -> None:
    spec = small("DeepseekV2ForCausalLM", "deepseek_v2", **{**MLA, "q_lora_rank": 32})
    shards = {item.name: item.shard for item in spec.layers()[0].weights}
    assert shards["self_attn.q_a_proj"] is Shard.REPLICATED
    assert shards["self_attn.kv_a_proj_with_mqa"] is Shard.REPLICATED
    assert shards["self_attn.q_b_proj"] is Shard.COLUMN
    assert shards["self_attn.kv_b_proj"] is Shard.COLUMN
    assert shards["self_attn.o_proj"] is Shard.ROW


# --- dtype, tying, vocabulary


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "torch.bfloat16"}, "bfloat16"),
        ({}, "float32"),  # what transformers takes for a file that says nothing
    ],
)
def test_dtype(keys: dict[str, str], expected: str) -> None:
    assert small("LlamaForCausalLM", "llama", **keys).dtype == expected


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(BadConfig, match="torch_dtype: 'int3', expected bfloat16, float16 or"):
        small("LlamaForCausalLM", "llama", torch_dtype="int3")


@pytest.mark.parametrize(
    ("architecture", "model_type", "expected"),
    [
        ("LlamaForCausalLM", "llama", False),
        ("GemmaForCausalLM", "gemma", True),
        ("FalconForCausalLM", "falcon", True),
        ("CohereForCausalLM", "cohere", True),
        ("SmolLM3ForCausalLM", "smollm3", True),
        ("Starcoder2ForCausalLM", "starcoder2", True),
        ("Qwen2ForCausalLM", "qwen2", False),
    ],
)
def test_tying_by_class_where_the_file_is_silent(
    architecture: str, model_type: str, expected: bool
) -> None:
    spec = small(architecture, model_type)
    assert spec.is_tied is expected
    assert any(item.name == "lm_head" for item in spec.outside) is not expected


def test_tying_may_stand_in_the_text_config_alone() -> None:
    # Ministral 3 3B
    text = {"model_type": "ministral3", **SMALL}
    wrapper = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
    }
    stated = {**text, "tie_word_embeddings": False}
    assert not read({**wrapper, "text_config": stated}).is_tied
    assert read({**wrapper, "text_config": text}).is_tied  # the wrapper's class default


@pytest.mark.parametrize(
    ("architecture", "model_type", "everywhere"),
    [
        ("LlamaForCausalLM", "llama", False),
        ("Qwen3ForCausalLM", "qwen3", False),
        ("GPT2LMHeadModel", "gpt2", True),
        ("GemmaForCausalLM", "gemma", True),
    ],
)
def test_vocabulary_on_pipeline_stages(
    architecture: str, model_type: str, everywhere: bool
) -> None:
    spec = small(architecture, model_type)
    assert spec.has_vocab_on_every_stage is everywhere


# --- what cannot be


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden_size", "4096", "hidden_size: '4096', expected an integer"),
        ("hidden_size", True, "hidden_size: True, expected an integer"),
        ("num_hidden_layers", 0, "num_hidden_layers: 0, expected a positive integer"),
        ("num_hidden_layers", -1, "num_hidden_layers: -1, expected an integer of at least 0"),
        ("num_hidden_layers", 10**9, "expected at most 4096 layers"),
        ("vocab_size", 1.5, "vocab_size: 1.5, expected an integer"),
        ("num_key_value_heads", 5, "num_key_value_heads: 5, expected a divisor of"),
        ("attention_bias", "yes", "attention_bias: 'yes', expected true or false"),
        ("architectures", "LlamaForCausalLM", "architectures: .*expected a list"),
        ("rope_scaling", "yarn", "rope_scaling: 'yarn', expected an object"),
        ("rope_scaling", {"type": "linear", "factor": "2"}, "factor: '2', expected a number"),
        ("rope_scaling", {"type": "linear", "factor": float("inf")}, "expected a finite number"),
        ("model_type", 3, "model_type: 3, expected a string"),
    ],
)
def test_bad_values_name_file_key_value_and_expectation(
    key: str, value: object, message: str
) -> None:
    with pytest.raises(BadConfig, match=message) as error:
        read({**LLAMA_8B, key: value})
    assert str(error.value).startswith("org--name/config.json: ")


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers"])
def test_a_flat_file_has_to_say_how_large_it_is(key: str) -> None:
    config = {name: value for name, value in LLAMA_8B.items() if name != key}
    with pytest.raises(BadConfig, match=f"{key}: missing, expected an integer"):
        read(config)


def test_a_file_that_is_no_object_is_refused() -> None:
    with pytest.raises(BadConfig, match="expected a JSON object"):
        read_config([], model_id="x", source="config.json")  # type: ignore[arg-type]


def test_a_whole_float_is_an_integer() -> None:
    assert small("LlamaForCausalLM", "llama", hidden_size=64.0).hidden_size == 64


def test_chunks_of_mamba_2_decide_blocks_of_hybrids_until_0_27() -> None:
    nemotron = small(
        "NemotronHForCausalLM", "nemotron_h",
        hybrid_override_pattern="M-M*M", chunk_size=128, **NEMOTRON,
    )  # fmt: skip
    falcon = small(
        "FalconH1ForCausalLM", "falcon_h1",
        mamba_d_ssm=64, mamba_d_head=8, mamba_chunk_size=256, **FALCON_H1,
    )  # fmt: skip
    assert (chunk(nemotron), chunk(falcon)) == (128, 256)


def chunk(spec: ModelSpec) -> int | None:
    states = [c for layer in spec.layers() for c in layer.caches if isinstance(c, StateCache)]
    return states[0].chunk_size


def test_kimi_linear_without_lengths_has_the_default_of_vllm_s_own_class() -> None:
    # vLLM 0.32: "derived max_model_len (max_position_embeddings=4096.0 ...)"
    assert defaults_of("kimi_linear")["max_position_embeddings"] == 4096
