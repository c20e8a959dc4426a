"""Models and settings made by hand for the planning tests: only what planning looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

from pytest_llmserve.hardware.spec import GpuSpec
from pytest_llmserve.models.spec import (
    Cache,
    ContextLimits,
    Experts,
    Group,
    KvCache,
    LatentCache,
    Layer,
    LayerGroup,
    ModelSpec,
    RotaryTable,
    Shard,
    StateCache,
    StateTensor,
    Weight,
)
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.runtimes.vllm.drafts import draft_of
from pytest_llmserve.runtimes.vllm.plan import stage_pools
from pytest_llmserve.runtimes.vllm.settings import VllmSettings
from pytest_llmserve.units import GIB, Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.runtimes.vllm.kv_pool import RankPool

V32 = Version("0.32.0")


def settings(**changed: Any) -> VllmSettings:
    """An H100 server's defaults of vLLM 0.32, with some values changed."""
    values: dict[str, Any] = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "max_model_len": 131072,
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 8192,
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "quantization": None,
        "gpu_memory_utilization": 0.92,
        "kv_cache_memory_bytes": None,
        "num_gpu_blocks_override": None,
        "block_size": None,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "enforce_eager": False,
        "async_scheduling": True,
        "disable_hybrid_kv_cache_manager": False,
        "enable_expert_parallel": False,
        "decode_context_parallel_size": 1,
        "prefill_context_parallel_size": 1,
        "cpu_offload_gib": 0.0,
        "language_model_only": False,
        "num_speculative_tokens": 0,
        "speculative_method": None,
        "enable_lora": False,
        "max_loras": 1,
        "max_lora_rank": 16,
        "attention_backend": None,
    }
    plain: dict[str, Any] = {
        "has_cuda_graphs": True,
        "draft_model": None,
        "is_auto_max_model_len": False,
        "derived_max_model_len": 131072,
        "env": {},
    }
    for name, value in changed.items():
        (values if name in values else plain)[name] = value
    plain.update((name, Setting(value, "test")) for name, value in values.items())
    return VllmSettings(**plain)


def gpu(capability: tuple[int, int] = (9, 0), total_gib: float = 79.18) -> GpuSpec:
    """A card of this compute capability; 79.18 GiB is what an H100 reports."""
    return GpuSpec(
        id="card",
        name="card",
        vendor="nvidia",
        architecture="",
        compute_capability=capability,
        memory_total_bytes=Interval.exact(round(total_gib * GIB)),
        memory_marketed_bytes=80 * 10**9,
        hbm_bytes_per_s=None,
        hbm_safe_bytes_per_s=None,
        dense_flops_per_s={},
        source="test card",
    )


def heads(kv_heads: int, head_dim: int, window: int | None = None, **more: Any) -> KvCache:
    """Softmax attention; with a window sliding, unless ``kind`` says otherwise."""
    values: dict[str, Any] = {
        "kind": "full" if window is None else "sliding",
        "num_heads": kv_heads,
        "v_head_dim": head_dim,
    }
    values.update(more)
    return KvCache(num_kv_heads=kv_heads, head_dim=head_dim, window=window, **values)


def latent() -> LatentCache:
    """DeepSeek V3's MLA."""
    return LatentCache(
        num_heads=128,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )


def state(kind: Any, conv: tuple[int, int], recurrent: tuple[int, ...], **more: Any) -> StateCache:
    """A recurrent state; TP divides the channels of the convolution and the heads."""
    bits = more.pop("recurrent_bits", None)
    return StateCache(
        kind=kind,
        tensors=(
            StateTensor(shape=conv, sharded_axis=1, role="conv"),
            StateTensor(shape=recurrent, sharded_axis=0, role="recurrent", dtype_bits=bits),
        ),
        **more,
    )


def model(
    stack: Sequence[Cache | tuple[Cache, ...]],
    *,
    weights: tuple[Weight, ...] = (),
    outside: tuple[Weight, ...] = (),
    experts: Experts | None = None,
    **more: Any,
) -> ModelSpec:
    """A stack of layers by their caches; equal layers are grouped."""
    places: dict[tuple[Cache, ...], list[int]] = {}
    for index, cache in enumerate(stack):
        caches = cache if isinstance(cache, tuple) else (cache,)
        places.setdefault(caches, []).append(index)
    values: dict[str, Any] = {
        "id": "org/model",
        "architecture": "LlamaForCausalLM",
        "model_type": "llama",
        "hidden_size": 4096,
        "vocab_size": 128256,
        "num_attention_heads": 32,
        "num_kv_heads": 8,
        "intermediate_sizes": (14336,),
        "is_tied": False,
        "dtype": "bfloat16",
        "limits": ContextLimits(candidates={"max_position_embeddings": 131072}),
    }
    values.update(more)
    return ModelSpec(
        num_layers=len(stack),
        layer_groups=tuple(
            LayerGroup(
                layer=Layer(caches=caches, weights=weights, experts=experts),
                indices=tuple(indices),
            )
            for caches, indices in places.items()
        ),
        outside=outside,
        **values,
    )


def llama_8b() -> ModelSpec:
    """Llama-3.1-8B with all its weights: config.json of meta-llama/Llama-3.1-8B."""
    h, mlp, kv, vocab = 4096, 14336, 1024, 128256
    attention, dense = Group.ATTENTION, Group.MLP

    def linear(name: str, group: Group, rows: int, cols: int, shard: Shard) -> Weight:
        count = 8 if shard is Shard.KV else 0
        return Weight(name=name, group=group, rows=rows, cols=cols, shard=shard, kv_heads=count)

    def norm(name: str) -> Weight:
        return Weight(name=name, group=Group.NORM, rows=h, is_matmul=False)

    def table(name: str, group: Group) -> Weight:
        return Weight(name=name, group=group, rows=vocab, cols=h, shard=Shard.VOCAB)

    return model(
        [heads(8, 128, num_heads=32)] * 32,
        weights=(
            linear("self_attn.q_proj", attention, h, h, Shard.COLUMN),
            linear("self_attn.k_proj", attention, kv, h, Shard.KV),
            linear("self_attn.v_proj", attention, kv, h, Shard.KV),
            linear("self_attn.o_proj", attention, h, h, Shard.ROW),
            linear("mlp.gate_proj", dense, mlp, h, Shard.COLUMN),
            linear("mlp.up_proj", dense, mlp, h, Shard.COLUMN),
            linear("mlp.down_proj", dense, h, mlp, Shard.ROW),
            norm("input_layernorm"),
            norm("post_attention_layernorm"),
        ),
        outside=(
            table("model.embed_tokens", Group.EMBEDDING),
            table("lm_head", Group.LM_HEAD),
            norm("model.norm"),
        ),
        rotary_tables=(RotaryTable(rows=131072, width=128),),
    )


def pattern(full: KvCache, sliding: KvCache, layers: int, each: int) -> list[Any]:
    """Every ``each``-th layer full attention, the others sliding (Gemma 3's order)."""
    return [full if (i + 1) % each == 0 else sliding for i in range(layers)]


def gemma_3_27b() -> ModelSpec:
    """62 layers, each 6th full, window 1024, 16 KV heads of 128."""
    return model(pattern(heads(16, 128), heads(16, 128, 1024), 62, 6), model_type="gemma3")


def gpt_oss(layers: int) -> ModelSpec:
    """Even layers slide over 128 tokens, 8 KV heads of 64."""
    return model([heads(8, 64, 128), heads(8, 64)] * (layers // 2), model_type="gpt_oss")


def pool(
    spec: ModelSpec,
    version: str = "0.32.0",
    card: GpuSpec | None = None,
    draft: ModelSpec | None = None,
    **changed: Any,
) -> RankPool:
    """The pool of the first stage; ``draft``: the model named for drafting."""
    stated = settings(**changed)
    return stage_pools(
        stated,
        version=Version(version),
        model=spec,
        gpu=card or gpu(),
        draft=draft_of(stated, spec, draft),
    )[0]
