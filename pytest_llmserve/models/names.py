"""What each part's weights are called in the checkpoints of a family.

Ignore lists of quantised checkpoints are matched against these paths, so they have to be the
checkpoint's own. A table holds only what differs from ``llama``; a matrix that the checkpoint
stores fused has the same name for each of its parts. An expert's path is that of expert 0 and
stands for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_LLAMA: Final[Mapping[str, str]] = {
    "embedding": "model.embed_tokens",
    "final_norm": "model.norm",
    "lm_head": "lm_head",
    "norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "v_norm": "self_attn.v_norm",
    "sinks": "self_attn.sinks",
    "index_q": "self_attn.index_q_proj",
    "index_k": "self_attn.index_k_proj",
    "index_norm": "self_attn.index_k_norm",
    "q_a": "self_attn.q_a_proj",
    "q_a_norm": "self_attn.q_a_layernorm",
    "q_b": "self_attn.q_b_proj",
    "kv_a": "self_attn.kv_a_proj_with_mqa",
    "kv_a_norm": "self_attn.kv_a_layernorm",
    "kv_b": "self_attn.kv_b_proj",
    "indexer_q": "self_attn.indexer.wq_b",
    "indexer_k": "self_attn.indexer.wk",
    "indexer_weights": "self_attn.indexer.weights_proj",
    "indexer_norm": "self_attn.indexer.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "router": "mlp.gate",
    "expert_gate": "mlp.experts.0.gate_proj",
    "expert_up": "mlp.experts.0.up_proj",
    "expert_down": "mlp.experts.0.down_proj",
    "shared": "mlp.shared_experts",
    "shared_gate": "mlp.shared_expert_gate",
    "latent_in": "mlp.fc1_latent_proj",
    "latent_out": "mlp.fc2_latent_proj",
    "state": "mamba",
}


def _fused_experts(prefix: str) -> dict[str, str]:
    return {
        "expert_gate": f"{prefix}.gate_up_proj",
        "expert_up": f"{prefix}.gate_up_proj",
        "expert_down": f"{prefix}.down_proj",
    }


def _w123(prefix: str) -> dict[str, str]:
    return {"gate": f"{prefix}.w1", "up": f"{prefix}.w3", "down": f"{prefix}.w2"}


def _fused_qkv(path: str, out: str) -> dict[str, str]:
    return {"q": path, "k": path, "v": path, "o": out}


_MIXTRAL_EXPERTS: Final = {
    "router": "block_sparse_moe.gate",
    "expert_gate": "block_sparse_moe.experts.0.w1",
    "expert_up": "block_sparse_moe.experts.0.w3",
    "expert_down": "block_sparse_moe.experts.0.w2",
}
_GPT2: Final = {
    "embedding": "transformer.wte",
    "final_norm": "transformer.ln_f",
    "norm": "ln_1",
    **_fused_qkv("attn.c_attn", "attn.c_proj"),
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
_BLOOM: Final = {
    "embedding": "transformer.word_embeddings",
    "final_norm": "transformer.ln_f",
    **_fused_qkv("self_attention.query_key_value", "self_attention.dense"),
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}

TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "llama": {},
    "qwen2_moe": {"shared": "mlp.shared_expert"},
    "fused_experts": {**_fused_experts("mlp.experts"), "shared": "mlp.shared_expert"},
    "mixtral": _MIXTRAL_EXPERTS,
    "minimax_m3": {**_MIXTRAL_EXPERTS, "shared": "block_sparse_moe.shared_experts"},
    "minimax_m1": {**_MIXTRAL_EXPERTS, "state": "self_attn"},
    "phi3": {
        **_fused_qkv("self_attn.qkv_proj", "self_attn.o_proj"),
        "gate": "mlp.gate_up_proj",
        "up": "mlp.gate_up_proj",
    },
    "glm4": {"gate": "mlp.gate_up_proj", "up": "mlp.gate_up_proj"},
    "phi3_small": {
        **_fused_qkv("self_attn.query_key_value", "self_attn.dense"),
        "gate": "mlp.up_proj",
    },
    "phi": {"o": "self_attn.dense", "up": "mlp.fc1", "down": "mlp.fc2"},
    "gpt_oss": {"router": "mlp.router", **_fused_experts("mlp.experts")},
    "gemma4": {"router": "router.proj", **_fused_experts("experts")},
    "llama4": {
        "gate": "feed_forward.gate_proj",
        "up": "feed_forward.up_proj",
        "down": "feed_forward.down_proj",
        "router": "feed_forward.router",
        **_fused_experts("feed_forward.experts"),
        "shared": "feed_forward.shared_expert",
    },
    "chatglm": {
        "embedding": "transformer.embedding.word_embeddings",
        "final_norm": "transformer.encoder.final_layernorm",
        "lm_head": "transformer.output_layer",
        **_fused_qkv("self_attention.query_key_value", "self_attention.dense"),
        "gate": "mlp.dense_h_to_4h",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    "falcon": _BLOOM,
    "bloom": _BLOOM,
    "gpt2": _GPT2,
    "whisper": {
        "embedding": "model.decoder.embed_tokens",
        "final_norm": "model.decoder.layer_norm",
        "lm_head": "proj_out",
        "norm": "final_layer_norm",
        "o": "self_attn.out_proj",
        "cross_q": "encoder_attn.q_proj",
        "cross_o": "encoder_attn.out_proj",
        "up": "fc1",
        "down": "fc2",
    },
    "gptj": {
        "embedding": "transformer.wte",
        "final_norm": "transformer.ln_f",
        "norm": "ln_1",
        "q": "attn.q_proj",
        "k": "attn.k_proj",
        "v": "attn.v_proj",
        "o": "attn.out_proj",
        "up": "mlp.fc_in",
        "down": "mlp.fc_out",
    },
    "gpt_neox": {
        "embedding": "gpt_neox.embed_in",
        "final_norm": "gpt_neox.final_layer_norm",
        "lm_head": "embed_out",
        **_fused_qkv("attention.query_key_value", "attention.dense"),
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    "opt": {
        "embedding": "model.decoder.embed_tokens",
        "final_norm": "model.decoder.final_layer_norm",
        "norm": "self_attn_layer_norm",
        "o": "self_attn.out_proj",
        "up": "fc1",
        "down": "fc2",
    },
    "mpt": {
        "embedding": "transformer.wte",
        "final_norm": "transformer.norm_f",
        "norm": "norm_1",
        **_fused_qkv("attn.Wqkv", "attn.out_proj"),
        "up": "ffn.up_proj",
        "down": "ffn.down_proj",
    },
    "starcoder2": {"up": "mlp.c_fc", "down": "mlp.c_proj"},
    "qwen": {
        "embedding": "transformer.wte",
        "final_norm": "transformer.ln_f",
        "norm": "ln_1",
        **_fused_qkv("attn.c_attn", "attn.c_proj"),
        **_w123("mlp"),
        "down": "mlp.c_proj",
    },
    "internlm2": {
        "embedding": "model.tok_embeddings",
        "lm_head": "output",
        "norm": "attention_norm",
        **_fused_qkv("attention.wqkv", "attention.wo"),
        **_w123("feed_forward"),
    },
    "exaone": {
        "embedding": "transformer.wte",
        "final_norm": "transformer.ln_f",
        "norm": "ln_1",
        "q": "attn.attention.q_proj",
        "k": "attn.attention.k_proj",
        "v": "attn.attention.v_proj",
        "o": "attn.attention.out_proj",
        "gate": "mlp.c_fc_0",
        "up": "mlp.c_fc_1",
        "down": "mlp.c_proj",
    },
    "baichuan": {**_fused_qkv("self_attn.W_pack", "self_attn.o_proj")},
    "granitemoe": {
        "router": "block_sparse_moe.router.layer",
        "expert_gate": "block_sparse_moe.input_linear",
        "expert_up": "block_sparse_moe.input_linear",
        "expert_down": "block_sparse_moe.output_linear",
        "shared": "shared_mlp",
    },
    "hunyuan": {
        "q_norm": "self_attn.query_layernorm",
        "k_norm": "self_attn.key_layernorm",
        "router": "mlp.gate.wg",
        "shared": "mlp.shared_mlp",
    },
    "bailing": {
        "embedding": "model.word_embeddings",
        **_fused_qkv("attention.query_key_value", "attention.dense"),
    },
    "qwen3_next": {"state": "linear_attn", "shared": "mlp.shared_expert"},
    "qwen3_5": {
        "state": "linear_attn",
        **_fused_experts("mlp.experts"),
        "shared": "mlp.shared_expert",
    },
    "kimi_linear": {
        "state": "self_attn",
        "router": "block_sparse_moe.gate",
        "expert_gate": "block_sparse_moe.experts.0.w1",
        "expert_up": "block_sparse_moe.experts.0.w3",
        "expert_down": "block_sparse_moe.experts.0.w2",
        "shared": "block_sparse_moe.shared_experts",
    },
    "granite_hybrid": {
        "router": "block_sparse_moe.router.layer",
        "expert_gate": "block_sparse_moe.input_linear",
        "expert_up": "block_sparse_moe.input_linear",
        "expert_down": "block_sparse_moe.output_linear",
        "shared": "shared_mlp",
        "gate": "shared_mlp.input_linear",
        "up": "shared_mlp.input_linear",
        "down": "shared_mlp.output_linear",
    },
    "lfm2": {
        "norm": "operator_norm",
        "o": "self_attn.out_proj",
        "q_norm": "self_attn.q_layernorm",
        "k_norm": "self_attn.k_layernorm",
        **_w123("feed_forward"),
        "router": "feed_forward.gate",
        "expert_gate": "feed_forward.experts.0.w1",
        "expert_up": "feed_forward.experts.0.w3",
        "expert_down": "feed_forward.experts.0.w2",
        "state": "conv",
    },
    "jamba": {
        "gate": "feed_forward.gate_proj",
        "up": "feed_forward.up_proj",
        "down": "feed_forward.down_proj",
        "router": "feed_forward.router",
        "expert_gate": "feed_forward.experts.0.gate_proj",
        "expert_up": "feed_forward.experts.0.up_proj",
        "expert_down": "feed_forward.experts.0.down_proj",
    },
    "nemotron_h": {
        "embedding": "backbone.embeddings",
        "final_norm": "backbone.norm_f",
        "norm": "norm",
        **{role: f"mixer.{role}_proj" for role in ("q", "k", "v", "o", "up", "down")},
        "router": "mixer.gate",
        "expert_up": "mixer.experts.0.up_proj",
        "expert_down": "mixer.experts.0.down_proj",
        "shared": "mixer.shared_experts",
        "latent_in": "mixer.fc1_latent_proj",
        "latent_out": "mixer.fc2_latent_proj",
        "state": "mixer",
    },
    "mamba": {
        "embedding": "backbone.embeddings",
        "final_norm": "backbone.norm_f",
        "norm": "norm",
        "state": "mixer",
    },
    "falcon_h1": {
        "final_norm": "model.final_layernorm",
        "gate": "feed_forward.gate_proj",
        "up": "feed_forward.up_proj",
        "down": "feed_forward.down_proj",
    },
}


def names_of(table: str) -> Mapping[str, str]:
    """All roles and their paths."""
    return {**_LLAMA, **TABLES[table]}
