"""What one cached key or value row takes in memory, by KV dtype.

Names are those that vLLM accepts for ``--kv-cache-dtype``; the sizes were read in vLLM 0.33's
source and all but ``nvfp4`` seen in the pages that vLLM 0.32 computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_llmserve.engine.exact import cdiv

AUTO: Final = "auto"


class KvDtypeError(ValueError):
    """A KV dtype that is unknown, or not defined for this kind of cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Key and value rows of ``bits`` an element, plus what each row carries besides.

    ``block_scale_elements``: elements that share one byte of scale (nvfp4: 16).
    """

    key_bits: int
    value_bits: int
    key_extra_bytes: int = 0
    value_extra_bytes: int = 0
    block_scale_elements: int | None = None
    is_padded_even: bool = False

    def bytes(self, head_dim: int, v_head_dim: int) -> int:
        key = cdiv(head_dim * self.key_bits, 8) + self.key_extra_bytes
        value = cdiv(v_head_dim * self.value_bits, 8) + self.value_extra_bytes
        if self.block_scale_elements is not None:
            key += cdiv(head_dim, self.block_scale_elements)
            value += cdiv(v_head_dim, self.block_scale_elements)
        return key + value + (key + value) % 2 * self.is_padded_even


def _plain(bits: int) -> _Rows:
    return _Rows(key_bits=bits, value_bits=bits)


def _scaled(bits: int) -> _Rows:
    # a float32 scale for each row
    return _Rows(key_bits=bits, value_bits=bits, key_extra_bytes=4, value_extra_bytes=4)


def _turboquant(key_bits: int, value_bits: int) -> _Rows:
    return _Rows(
        key_bits=key_bits,
        value_bits=value_bits,
        key_extra_bytes=0 if key_bits == 8 else 2,
        value_extra_bytes=4,
        is_padded_even=True,
    )


_NVFP4: Final = _Rows(key_bits=4, value_bits=4, block_scale_elements=16)

_HEAD_FORMATS: Final[dict[str, _Rows]] = {
    "float16": _plain(16),
    "bfloat16": _plain(16),
    "fp8": _plain(8),
    "fp8_e4m3": _plain(8),
    "fp8_e5m2": _plain(8),
    "fp8_inc": _plain(8),
    "int8": _plain(8),
    "int8_per_token_head": _scaled(8),
    "fp8_per_token_head": _scaled(8),
    "int4_per_token_head": _scaled(4),
    "nvfp4": _NVFP4,
    "nvfp4_4over6": _NVFP4,
    "turboquant_k8v4": _turboquant(8, 4),
    "turboquant_4bit_nc": _turboquant(4, 4),
    "turboquant_k3v4_nc": _turboquant(3, 4),
    "turboquant_3bit_nc": _turboquant(3, 3),
}
_LATENT_BITS: Final[dict[str, int]] = {
    "float16": 16,
    "bfloat16": 16,
    "fp8": 8,
    "fp8_e4m3": 8,
    "fp8_e5m2": 8,
    "fp8_inc": 8,
}
# Packed rows exist for one shape only: a latent of 512 and 64 rotary elements.
# 656 = 512 x fp8 + 4 float32 scales + 64 x bf16 (FlashMLA's sparse layout).
_PACKED_LATENT_SHAPE: Final = (512, 64)
_PACKED_LATENT_BYTES: Final[dict[str, int]] = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}


def kv_head_token_bytes(
    head_dim: int, v_head_dim: int, kv_cache_dtype: str, model_dtype_bits: int
) -> int:
    """Bytes of one token's key and value rows of one KV head of one layer.

    Args:
        head_dim: elements of a key row.
        v_head_dim: elements of a value row.
        kv_cache_dtype: the runtime's word; ``auto`` is the model's own dtype.
        model_dtype_bits: width of the model's dtype, for ``auto``.

    Raises:
        KvDtypeError: the KV dtype is unknown or not made for key and value heads.
    """
    rows = _HEAD_FORMATS.get(kv_cache_dtype)
    if kv_cache_dtype == AUTO:
        rows = _plain(model_dtype_bits)
    if rows is None:
        raise KvDtypeError(_no_such(kv_cache_dtype, "attention heads", _HEAD_FORMATS))
    return rows.bytes(head_dim, v_head_dim)


def latent_token_bytes(
    kv_lora_rank: int, qk_rope_head_dim: int, kv_cache_dtype: str, model_dtype_bits: int
) -> int:
    """Bytes of one token's MLA row of one layer: the latent and its rotary part, no heads.

    Raises:
        KvDtypeError: the KV dtype is unknown, not made for MLA, or not for this row's shape.
    """
    if kv_cache_dtype in _PACKED_LATENT_BYTES:
        if (kv_lora_rank, qk_rope_head_dim) != _PACKED_LATENT_SHAPE:
            raise KvDtypeError(
                f"KV dtype {kv_cache_dtype!r} is defined for kv_lora_rank 512 and "
                f"qk_rope_head_dim 64, not {kv_lora_rank} and {qk_rope_head_dim}"
            )
        return _PACKED_LATENT_BYTES[kv_cache_dtype]
    bits = model_dtype_bits if kv_cache_dtype == AUTO else _LATENT_BITS.get(kv_cache_dtype)
    if bits is None:
        valid = {**_LATENT_BITS, **_PACKED_LATENT_BYTES}
        raise KvDtypeError(_no_such(kv_cache_dtype, "MLA", valid))
    return cdiv((kv_lora_rank + qk_rope_head_dim) * bits, 8)


def indexer_token_bytes(index_head_dim: int) -> int:
    """Bytes of one token's key of a sparse-attention indexer: 8 bit and a scale per 128 elements.

    DeepSeek V3.2: 128 + 4 = 132, whatever the KV dtype.
    """
    return index_head_dim + 4 * cdiv(index_head_dim, 128)


def _no_such(kv_cache_dtype: str, kind: str, valid: dict[str, _Rows] | dict[str, int]) -> str:
    names = ", ".join([AUTO, *valid])
    return f"KV dtype {kv_cache_dtype!r} is not known for {kind}; valid: {names}"
