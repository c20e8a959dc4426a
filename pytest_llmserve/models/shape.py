"""``Shape``: a model in our own terms, between a config file and its exact weights.

This is what the bundled catalogue stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmserve.models.parts import Block
    from pytest_llmserve.models.spec import ContextLimits, Quantization, RotaryTable, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything of a config that decides sizes, normalised.

    ``blocks`` are the kinds of layer, each with the positions it has in the stack. ``names`` is a
    table of ``names.py``.
    """

    architecture: str
    model_type: str
    hidden_size: int
    vocab_size: int
    blocks: tuple[tuple[Block, tuple[int, ...]], ...]
    limits: ContextLimits
    dtype: str
    is_tied: bool
    names: str = "llama"
    layers_path: str = "model.layers"
    has_norm_bias: bool = False
    has_final_norm: bool = True
    has_lm_head_bias: bool = False
    embedding_size: int | None = None
    """Width of the embedding where it is not the hidden size (OPT-350M)."""
    has_whole_embedding: bool = False
    """Runtimes keep the embedding whole on every rank (Whisper)."""
    extra: tuple[Weight, ...] = ()
    """Weights outside the layers besides embedding, final norm and lm_head."""
    vision: tuple[Weight, ...] = ()
    vision_num_heads: int | None = None
    vision_intermediate_sizes: tuple[int, ...] = ()
    is_multimodal: bool = False
    quantization: Quantization | None = None
    rotary_tables: tuple[RotaryTable, ...] = ()
    has_vocab_on_every_stage: bool = False
    has_embedding_on_every_stage: bool = False
    unsupported: tuple[str, ...] = ()

    @property
    def num_layers(self) -> int:
        """Layers of the stack."""
        return sum(len(indices) for _, indices in self.blocks)
