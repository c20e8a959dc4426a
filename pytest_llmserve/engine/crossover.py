"""Where the bottleneck flips: the batch, the context and the share at which another roof limits.

A decode step of ``B`` sequences computes ``B x f`` FLOPs and reads ``W + B x k`` bytes, with ``f``
and ``k`` of one sequence at its context. So it turns compute bound at
``B = W x peak / (f x bandwidth - k x peak)``, and never where reading a sequence's own cache
already takes longer than its FLOPs: no batch amortises the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_llmserve.engine.exact import cdiv
from pytest_llmserve.engine.phases import decode_step
from pytest_llmserve.engine.positions import Reach
from pytest_llmserve.engine.roofline import ridge_point

if TYPE_CHECKING:
    from pytest_llmserve.engine.costs import StepCosts

LONGEST: Final = 1 << 27


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A decode step as a straight line in the batch, at one context; in FLOPs and bytes."""

    flops_each: int
    fixed_bytes: int
    bytes_each: int

    def time_s(self, batch: int, peak_flops_per_s: float, bytes_per_s: float) -> float:
        """Floor of a step."""
        compute = batch * self.flops_each / peak_flops_per_s
        return max(compute, (self.fixed_bytes + batch * self.bytes_each) / bytes_per_s)

    def shortest_token_s(self, peak_flops_per_s: float, bytes_per_s: float) -> float:
        """Time of a token that no batch goes below."""
        return max(self.flops_each / peak_flops_per_s, self.bytes_each / bytes_per_s)


def step_line(costs: StepCosts, context: int) -> StepLine:
    """The line through the steps of one and of two sequences."""
    one, two = decode_step(costs, 1, context), decode_step(costs, 2, context)
    each = int(two.floor_bytes) - int(one.floor_bytes)
    return StepLine(
        flops_each=int(one.flops), fixed_bytes=int(one.floor_bytes) - each, bytes_each=each
    )


def compute_bound_batch(
    costs: StepCosts, peak_flops_per_s: int, bytes_per_s: int, context: int
) -> int | None:
    """Smallest batch whose decode step is compute bound; ``None``: no batch is, at that context.

    Raises:
        ValueError: a rate that is not positive.
    """
    ridge_point(peak_flops_per_s, bytes_per_s)
    line = step_line(costs, context)
    gain = line.flops_each * bytes_per_s - line.bytes_each * peak_flops_per_s
    if gain <= 0:
        return None
    return max(1, cdiv(line.fixed_bytes * peak_flops_per_s, gain))


def kv_overtakes_weights_context(costs: StepCosts, batch: int) -> int | None:
    """Shortest context at which a step of ``batch`` reads more cache than weights.

    Chunked attention is counted with its whole chunk, as it is on average twice over. ``None``:
    the cache stays smaller at any length (a window, a recurrent state).
    """

    def overtakes(context: int) -> bool:
        read = costs.state_bytes
        for part in costs.attention:
            reach = part.reach
            kept = Reach("window", reach.limit) if reach.kind == "chunk" else reach
            read += part.bytes_per_token * int(kept.attended(context))
        return batch * read > int(decode_step(costs, batch, context).weight_bytes)

    if not overtakes(LONGEST):
        return None
    low, high = 0, LONGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if overtakes(middle) else (middle, high)
    return high


def amortised_share(
    costs: StepCosts, peak_flops_per_s: float, bytes_per_s: float, batch: int, context: int
) -> float:
    """Tokens per second at this batch over the most that any batch reaches at this context.

    0.5: half of a step's time is still reading weights, which a larger batch would share.
    """
    line = step_line(costs, context)
    token_s = line.time_s(batch, peak_flops_per_s, bytes_per_s) / batch
    return line.shortest_token_s(peak_flops_per_s, bytes_per_s) / token_s


def batch_for_share(
    costs: StepCosts, peak_flops_per_s: float, bytes_per_s: float, share: float, context: int
) -> int:
    """Smallest batch whose :func:`amortised_share` is at least ``share`` (below 1).

    Raises:
        ValueError: a share that is not above 0 and below 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"expected a share above 0 and below 1, got {share}")
    low, high = 0, 1
    while amortised_share(costs, peak_flops_per_s, bytes_per_s, high, context) < share:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        enough = amortised_share(costs, peak_flops_per_s, bytes_per_s, middle, context) >= share
        low, high = (low, middle) if enough else (middle, high)
    return high
