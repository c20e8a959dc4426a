"""Whisper: an encoder of audio, and a decoder that attends to it.

Layout as transformers 5.24.0 builds it; what tensor parallelism divides as vLLM 0.32.0 and 0.33.0
do. The encoder, and the keys and values that the decoder makes of its output, run once a request:
they are the tower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.models.families.common import Decoder
from pytest_llmserve.models.families.vision import COLUMN, ROW, Draft, Tower
from pytest_llmserve.models.parts import Attention, Block, CrossAttention, Mlp
from pytest_llmserve.models.spec import Group, Weight

if TYPE_CHECKING:
    from pytest_llmserve.models.fields import Fields

_CONV_KERNEL = 3


def whisper(c: Fields) -> Decoder:
    """The decoder: self attention, attention to the encoder, an MLP without gate."""
    hidden, heads = c.size("d_model"), c.size("decoder_attention_heads")
    head_dim = _head_dim(c, hidden, "decoder_attention_heads")
    own = Attention(
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        has_qkv_bias=True,
        has_o_bias=True,
        has_unstored_k_bias=True,
    )
    cross = CrossAttention(
        num_heads=heads, head_dim=head_dim, encoder_tokens=c.size("max_source_positions")
    )
    mlp = Mlp(intermediate_size=c.size("decoder_ffn_dim"), is_gated=False, has_bias=True)
    block = Block(parts=(own, cross, mlp), norms=3)
    positions = Weight(
        name="model.decoder.embed_positions",
        group=Group.EMBEDDING,
        rows=c.size("max_target_positions"),
        cols=hidden,
        is_matmul=False,
    )
    is_tied = c.flag("tie_word_embeddings", default=True)
    return Decoder(
        hidden_size=hidden,
        vocab_size=c.size("vocab_size"),
        blocks=((block, tuple(range(c.layer_count("decoder_layers")))),),
        is_tied=is_tied,
        names="whisper",
        layers_path="model.decoder.layers",
        has_norm_bias=True,
        has_whole_embedding=True,
        extra=(positions,),
        unsupported=() if is_tied else ("an lm_head beside Whisper's embedding",),
    )


def _head_dim(c: Fields, hidden: int, key: str) -> int:
    heads = c.size(key)
    if hidden % heads:
        raise c.bad("d_model", hidden, f"a multiple of {key} ({heads})")
    return hidden // heads


def encoder(top: Fields, text: Fields) -> Tower:
    """Two convolutions, the encoder's layers, and k and v of the decoder's cross attention."""
    hidden, heads = text.size("d_model"), text.size("encoder_attention_heads")
    _head_dim(text, hidden, "encoder_attention_heads")
    width, depth = text.size("encoder_ffn_dim"), text.layer_count("encoder_layers")
    draft = Draft("model.encoder")
    draft.linear("conv1", hidden, _CONV_KERNEL * text.size("num_mel_bins"))
    draft.linear("conv2", hidden, _CONV_KERNEL * hidden)
    draft.table("embed_positions", text.size("max_source_positions"), hidden)
    layer = "layers.self_attn"
    draft.linear(f"{layer}.q_proj", hidden, hidden, COLUMN, copies=depth)
    _key_value(draft, layer, hidden, depth)
    draft.linear(f"{layer}.out_proj", hidden, hidden, ROW, copies=depth)
    draft.linear("layers.fc1", width, hidden, COLUMN, copies=depth)
    draft.linear("layers.fc2", hidden, width, ROW, copies=depth)
    draft.vector("layers.norms", hidden, copies=4 * depth)
    draft.vector("layer_norm", hidden, copies=2)
    draft.path = "model.decoder"
    _key_value(draft, "layers.encoder_attn", hidden, text.layer_count("decoder_layers"))
    return draft.done(heads, width, layers_path="model.decoder.layers")


def _key_value(draft: Draft, path: str, hidden: int, copies: int) -> None:
    """Keys and values; k has no bias in the checkpoint, runtimes hold one for it."""
    draft.linear(f"{path}.k_proj", hidden, hidden, COLUMN, copies=copies, has_bias=False)
    bias = Weight(
        name=f"{draft.path}.{path}.k_proj.bias",
        group=Group.VISION,
        rows=hidden,
        shard=COLUMN,
        copies=copies,
        is_matmul=False,
        is_parameter=False,
    )
    draft.weights.append(bias)
    draft.linear(f"{path}.v_proj", hidden, hidden, COLUMN, copies=copies)
