"""From parts to weights and caches: recurrent layers, whose state has a fixed size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_llmserve.models.build_layers import linear, vector
from pytest_llmserve.models.spec import Cache, Group, Shard, StateCache, StateTensor, Weight
from pytest_llmserve.models.state_parts import (
    GatedDelta,
    KimiDelta,
    Lightning,
    Mamba1,
    Mamba2,
    ShortConv,
    StatePart,
)

Names = Mapping[str, str]
_STATE = Group.STATE


def _conv(path: str, rows: int, kernel: int, *, has_bias: bool) -> Iterator[Weight]:
    name = f"{path}.conv1d"
    yield Weight(
        name=name, group=_STATE, rows=rows, cols=kernel, shard=Shard.COLUMN, is_matmul=False
    )
    if has_bias:
        yield vector(f"{name}.bias", _STATE, rows, Shard.COLUMN)


def _decay(path: str, rows: int, cols: int = 1) -> Weight:
    """``A_log``: kept in float32 by runtimes."""
    return Weight(
        name=f"{path}.A_log",
        group=_STATE,
        rows=rows,
        cols=cols,
        shard=Shard.COLUMN,
        dtype_bits=32,
        is_matmul=False,
    )


def _conv_state(kernel: int, channels: int) -> StateTensor:
    return StateTensor(shape=(kernel - 1, channels), sharded_axis=1, role="conv")


def _recurrent(*shape: int, dtype_bits: int | None = None) -> StateTensor:
    return StateTensor(shape=shape, sharded_axis=0, role="recurrent", dtype_bits=dtype_bits)


def _groups(
    name: str, part: Mamba2, cols: int, *, has_bias: bool, is_matmul: bool
) -> Iterator[Weight]:
    """The rows of B and C: a rank has at least one whole group, as with KV heads."""
    groups, rows = part.num_groups, 2 * part.num_groups * part.state_size
    yield Weight(
        name=name,
        group=_STATE,
        rows=rows,
        cols=cols,
        shard=Shard.KV,
        kv_heads=groups,
        is_matmul=is_matmul,
    )
    if has_bias:
        yield vector(f"{name}.bias", _STATE, rows, Shard.KV, groups)


def mamba2_weights(part: Mamba2, hidden_size: int, names: Names) -> Iterator[Weight]:
    """in_proj makes gate, x, B, C and dt in one; the convolution runs over x, B and C."""
    path = names["state"]
    inner = part.num_heads * part.head_dim
    in_rows = 2 * inner + part.num_heads
    bias = part.has_bias
    yield from linear(f"{path}.in_proj", _STATE, in_rows, hidden_size, Shard.COLUMN, has_bias=bias)
    yield from _groups(f"{path}.in_proj", part, hidden_size, has_bias=bias, is_matmul=True)
    yield from _conv(path, inner, part.conv_kernel, has_bias=part.has_conv_bias)
    yield from _groups(
        f"{path}.conv1d", part, part.conv_kernel, has_bias=part.has_conv_bias, is_matmul=False
    )
    yield _decay(path, part.num_heads)
    for name in ("D", "dt_bias"):
        yield vector(f"{path}.{name}", _STATE, part.num_heads, Shard.COLUMN)
    if part.has_gate_norm:
        yield vector(f"{path}.norm", _STATE, inner, Shard.COLUMN)
    yield from linear(f"{path}.out_proj", _STATE, hidden_size, inner, Shard.ROW, has_bias=bias)


def mamba2_caches(part: Mamba2) -> Iterator[Cache]:
    """The last inputs of the convolution and a matrix per head."""
    channels = part.num_heads * part.head_dim + 2 * part.num_groups * part.state_size
    conv = _conv_state(part.conv_kernel, channels)
    recurrent = _recurrent(
        part.num_heads, part.head_dim, part.state_size, dtype_bits=part.state_dtype_bits
    )
    yield StateCache(kind="mamba2", tensors=(conv, recurrent), chunk_size=part.chunk_size)


def mamba1_weights(part: Mamba1, hidden_size: int, names: Names) -> Iterator[Weight]:
    """x_proj makes dt, B and C from the convolved input."""
    path, inner, bias = names["state"], part.intermediate_size, part.has_bias
    rank = part.time_step_rank
    yield from linear(
        f"{path}.in_proj", _STATE, 2 * inner, hidden_size, Shard.COLUMN, has_bias=bias
    )
    yield from _conv(path, inner, part.conv_kernel, has_bias=part.has_conv_bias)
    x_rows = rank + 2 * part.state_size
    yield from linear(f"{path}.x_proj", _STATE, x_rows, inner, Shard.ROW)
    yield from linear(f"{path}.dt_proj", _STATE, inner, rank, Shard.COLUMN, has_bias=True)
    yield _decay(path, inner, part.state_size)
    yield vector(f"{path}.D", _STATE, inner, Shard.COLUMN)
    yield from linear(f"{path}.out_proj", _STATE, hidden_size, inner, Shard.ROW, has_bias=bias)
    if part.has_inner_norms:
        yield vector(f"{path}.dt_layernorm", _STATE, rank)
        yield vector(f"{path}.b_layernorm", _STATE, part.state_size)
        yield vector(f"{path}.c_layernorm", _STATE, part.state_size)


def mamba1_caches(part: Mamba1) -> Iterator[Cache]:
    """The last inputs of the convolution and a vector per channel."""
    conv = _conv_state(part.conv_kernel, part.intermediate_size)
    recurrent = _recurrent(part.intermediate_size, part.state_size)
    yield StateCache(kind="mamba1", tensors=(conv, recurrent))


def gated_delta_weights(part: GatedDelta, hidden_size: int, names: Names) -> Iterator[Weight]:
    """q, k, v and z, b and a, the convolution over q, k and v, and the output."""
    path = names["state"]
    key_rows = part.num_key_heads * part.key_head_dim
    value_rows = part.num_value_heads * part.value_head_dim
    conv_rows = 2 * key_rows + value_rows
    heads = part.num_value_heads
    if part.is_split:
        inputs = {"in_proj_qkv": conv_rows, "in_proj_z": value_rows}
        inputs |= {"in_proj_b": heads, "in_proj_a": heads}
    else:
        inputs = {"in_proj_qkvz": conv_rows + value_rows, "in_proj_ba": 2 * heads}
    for name, rows in inputs.items():
        yield from linear(f"{path}.{name}", _STATE, rows, hidden_size, Shard.COLUMN)
    yield from _conv(path, conv_rows, part.conv_kernel, has_bias=False)
    yield _decay(path, heads)
    yield vector(f"{path}.dt_bias", _STATE, heads, Shard.COLUMN)
    yield vector(f"{path}.norm", _STATE, part.value_head_dim)
    yield from linear(f"{path}.out_proj", _STATE, hidden_size, value_rows, Shard.ROW)


def gated_delta_caches(part: GatedDelta) -> Iterator[Cache]:
    """The last inputs of the convolution and a matrix per value head."""
    channels = 2 * part.num_key_heads * part.key_head_dim
    channels += part.num_value_heads * part.value_head_dim
    conv = _conv_state(part.conv_kernel, channels)
    recurrent = _recurrent(
        part.num_value_heads,
        part.value_head_dim,
        part.key_head_dim,
        dtype_bits=part.state_dtype_bits,
    )
    yield StateCache(kind="gdn", tensors=(conv, recurrent))


def kimi_delta_weights(part: KimiDelta, hidden_size: int, names: Names) -> Iterator[Weight]:
    """q, k and v each with its convolution; decay and output gate of low rank."""
    path, dim = names["state"], part.head_dim
    inner = part.num_heads * dim
    for name in ("q", "k", "v"):
        yield from linear(f"{path}.{name}_proj", _STATE, inner, hidden_size, Shard.COLUMN)
        conv = f"{path}.{name}"
        yield from _conv(conv, inner, part.conv_kernel, has_bias=False)
    for name in ("f", "g"):
        yield from linear(f"{path}.{name}_a_proj", _STATE, dim, hidden_size, Shard.REPLICATED)
        yield from linear(f"{path}.{name}_b_proj", _STATE, inner, dim, Shard.COLUMN)
    yield from linear(f"{path}.b_proj", _STATE, part.num_heads, hidden_size, Shard.COLUMN)
    yield _decay(path, part.num_heads)
    yield Weight(
        name=f"{path}.dt_bias",
        group=_STATE,
        rows=inner,
        shard=Shard.COLUMN,
        dtype_bits=32,
        is_matmul=False,
    )
    yield vector(f"{path}.o_norm", _STATE, dim)
    yield from linear(f"{path}.o_proj", _STATE, hidden_size, inner, Shard.ROW)


def kimi_delta_caches(part: KimiDelta) -> Iterator[Cache]:
    """The last inputs of three convolutions and a matrix per head."""
    conv = _conv_state(part.conv_kernel, 3 * part.num_heads * part.head_dim)
    # float32 whatever the model's dtype (vLLM 0.32)
    recurrent = _recurrent(part.num_heads, part.head_dim, part.head_dim, dtype_bits=32)
    yield StateCache(kind="kda", tensors=(conv, recurrent))


def lightning_weights(part: Lightning, hidden_size: int, names: Names) -> Iterator[Weight]:
    """q, k and v in one, an output gate, a norm and the output."""
    path = names["state"]
    inner = part.num_heads * part.head_dim
    yield from linear(f"{path}.qkv_proj", _STATE, 3 * inner, hidden_size, Shard.COLUMN)
    yield from linear(f"{path}.output_gate", _STATE, inner, hidden_size, Shard.COLUMN)
    yield from linear(f"{path}.out_proj", _STATE, hidden_size, inner, Shard.ROW)
    yield vector(f"{path}.norm", _STATE, inner, Shard.COLUMN)


def lightning_caches(part: Lightning) -> Iterator[Cache]:
    """A matrix per head."""
    yield StateCache(
        kind="linear", tensors=(_recurrent(part.num_heads, part.head_dim, part.head_dim),)
    )


def short_conv_weights(part: ShortConv, hidden_size: int, names: Names) -> Iterator[Weight]:
    """Two gates and the input, the convolution, the output."""
    path, bias = names["state"], part.has_bias
    yield from linear(
        f"{path}.in_proj", _STATE, 3 * hidden_size, hidden_size, Shard.COLUMN, has_bias=bias
    )
    yield Weight(
        name=f"{path}.conv",
        group=_STATE,
        rows=hidden_size,
        cols=part.conv_kernel,
        shard=Shard.COLUMN,
        is_matmul=False,
    )
    if bias:
        yield vector(f"{path}.conv.bias", _STATE, hidden_size, Shard.COLUMN)
    yield from linear(
        f"{path}.out_proj", _STATE, hidden_size, hidden_size, Shard.ROW, has_bias=bias
    )


def short_conv_caches(part: ShortConv, hidden_size: int) -> Iterator[Cache]:
    """The last inputs of the convolution."""
    yield StateCache(kind="short_conv", tensors=(_conv_state(part.conv_kernel, hidden_size),))


def state_weights_and_caches(
    part: StatePart, hidden_size: int, names: Names
) -> tuple[Iterator[Weight], Iterator[Cache]]:
    """The weights and the state of one recurrent part."""
    match part:
        case Mamba1():
            return mamba1_weights(part, hidden_size, names), mamba1_caches(part)
        case Mamba2():
            return mamba2_weights(part, hidden_size, names), mamba2_caches(part)
        case GatedDelta():
            return gated_delta_weights(part, hidden_size, names), gated_delta_caches(part)
        case KimiDelta():
            return kimi_delta_weights(part, hidden_size, names), kimi_delta_caches(part)
        case Lightning():
            return lightning_weights(part, hidden_size, names), lightning_caches(part)
        case ShortConv():
            weights = short_conv_weights(part, hidden_size, names)
            return weights, short_conv_caches(part, hidden_size)
