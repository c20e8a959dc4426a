"""Draft heads that read the target's hidden states: EAGLE-3 and DFlash.

As vLLM 0.32 builds them. The embedding is counted as in any model; runtimes take the target's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.models.errors import MISSING
from pytest_llmserve.models.families.common import attention, decoder, hidden_size, mlp, uniform
from pytest_llmserve.models.spec import Group, Shard, Weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.models.families.common import Decoder
    from pytest_llmserve.models.fields import Fields
    from pytest_llmserve.models.parts import Attention

_EAGLE3_STATES: Final = 3  # hidden states of the target that fc joins
_ID_BITS: Final = 64


def eagle3(c: Fields) -> Decoder:
    """One Llama layer whose q, k and v read 2 hidden widths; its own, often smaller vocabulary."""
    part = attention(c, has_qkv_bias=c.flag("attention_bias"))
    vocab = c.optional_size("draft_vocab_size") or c.size("vocab_size")
    hidden = hidden_size(c)
    target = c.optional_size("target_hidden_size") or hidden
    extra = (
        Weight(name="fc", group=Group.OTHER, rows=hidden, cols=_EAGLE3_STATES * target),
        Weight(
            name="draft_id_to_target_id",
            group=Group.OTHER,
            rows=vocab,
            dtype_bits=_ID_BITS,
            is_matmul=False,
            is_parameter=False,
        ),
        *_second_inputs(part, hidden),
    )
    blocks = uniform(c, part, mlp(c), norms=3)
    found = decoder(c, blocks, is_tied=False, extra=extra, rotary_dim=part.head_dim)
    return replace(found, vocab_size=vocab)


def _second_inputs(part: Attention, hidden: int) -> Iterator[Weight]:
    """q, k and v over the second hidden width: the embedding beside the hidden state."""
    for name, heads, shard in (
        ("q_proj", part.num_heads, Shard.COLUMN),
        ("k_proj", part.num_kv_heads, Shard.KV),
        ("v_proj", part.num_kv_heads, Shard.KV),
    ):
        yield Weight(
            name=f"model.layers.0.self_attn.{name}",
            group=Group.ATTENTION,
            rows=heads * part.head_dim,
            cols=hidden,
            shard=shard,
            kv_heads=heads if shard is Shard.KV else 0,
        )


def dflash(c: Fields) -> Decoder:
    """Qwen3 layers over blocks of masked tokens; fc joins the target layers that it names."""
    part = attention(c, qk_norm="head")
    hidden = hidden_size(c)
    states = c.nested("dflash_config").integers("target_layer_ids") or ()
    if not states:
        raise c.bad("dflash_config.target_layer_ids", MISSING, "a list of the target's layers")
    fc = Weight(name="fc", group=Group.OTHER, rows=hidden, cols=len(states) * hidden)
    norm = Weight(name="hidden_norm", group=Group.NORM, rows=hidden, is_matmul=False)
    blocks = uniform(c, part, mlp(c))
    return decoder(c, blocks, is_tied=False, extra=(fc, norm), rotary_dim=part.head_dim)
