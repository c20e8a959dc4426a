"""Where the bottleneck flips, against the seed's figures and against brute force."""

import pytest
from engine_specs import llama_2_7b, llama_31_8b, mixtral_8x7b
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmserve.engine.costs import NominalModel, StepCosts, step_costs
from pytest_llmserve.engine.crossover import (
    amortised_share,
    batch_for_share,
    compute_bound_batch,
    kv_overtakes_weights_context,
)
from pytest_llmserve.engine.phases import decode_step
from pytest_llmserve.engine.roofline import Bound, bound_of

PEAK, BANDWIDTH = 989_400 * 10**9, 3_350 * 10**9  # H100 SXM, NVIDIA's datasheet
NOMINAL = NominalModel(num_params=70 * 10**9).costs()
ALL = [step_costs(spec()) for spec in (llama_2_7b, llama_31_8b, mixtral_8x7b)]


def test_a_nominal_model_turns_compute_bound_at_the_ridge() -> None:
    """2 bytes and 2 FLOPs a parameter: one FLOP/byte a sequence, and the ridge is 295.3."""
    assert compute_bound_batch(NOMINAL, PEAK, BANDWIDTH, 1) == 296


def test_long_contexts_are_never_compute_bound() -> None:
    """Llama-2 7B keeps 0.5 MiB a token: its own cache alone outweighs a sequence's FLOPs."""
    costs = step_costs(llama_2_7b())
    assert compute_bound_batch(costs, PEAK, BANDWIDTH, 4096) is None


def test_cache_reads_of_8b_overtake_its_weights_at_114k_tokens() -> None:
    """15.0 GB of weights (less the embedding) over 131,072 bytes of a token: 114,505 tokens."""
    assert kv_overtakes_weights_context(step_costs(llama_31_8b()), 1) == pytest.approx(
        114_505, rel=1e-3
    )
    assert kv_overtakes_weights_context(NOMINAL, 1) is None


@pytest.mark.parametrize("costs", ALL, ids=lambda c: c.name)
@settings(max_examples=60, deadline=None)
@given(context=st.integers(1, 20_000), batch=st.integers(1, 5_000))
def test_the_batch_agrees_with_the_bound_of_a_step(
    costs: StepCosts, context: int, batch: int
) -> None:
    cost = decode_step(costs, batch, context)
    bound = bound_of(int(cost.flops), int(cost.floor_bytes), PEAK, BANDWIDTH)
    turns = compute_bound_batch(costs, PEAK, BANDWIDTH, context)
    assert (bound is Bound.COMPUTE) == (turns is not None and batch >= turns)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ALL), st.integers(1, 512))
def test_the_context_agrees_with_the_bytes_of_a_step(costs: StepCosts, batch: int) -> None:
    context = kv_overtakes_weights_context(costs, batch)
    assert context is not None
    after = decode_step(costs, batch, context)
    assert int(after.kv_read_bytes) > int(after.weight_bytes)
    if context > 1:
        before = decode_step(costs, batch, context - 1)
        assert int(before.kv_read_bytes) <= int(before.weight_bytes)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ALL),
    st.integers(1, 10_000),
    st.integers(1, 4_000),
    st.floats(0.05, 0.99),
)
def test_the_share_rises_with_the_batch(
    costs: StepCosts, context: int, batch: int, share: float
) -> None:
    one = amortised_share(costs, PEAK, BANDWIDTH, batch, context)
    two = amortised_share(costs, PEAK, BANDWIDTH, batch + 1, context)
    assert 0 < one <= two * (1 + 1e-12) <= 1 + 1e-9
    enough = batch_for_share(costs, PEAK, BANDWIDTH, share, context)
    assert amortised_share(costs, PEAK, BANDWIDTH, enough, context) >= share
    if enough > 1:
        assert amortised_share(costs, PEAK, BANDWIDTH, enough - 1, context) < share


def test_a_share_lies_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="above 0 and below 1, got 1"):
        batch_for_share(NOMINAL, PEAK, BANDWIDTH, 1, 1)
