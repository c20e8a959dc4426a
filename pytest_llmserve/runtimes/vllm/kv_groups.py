"""How vLLM puts layers into groups that share one pool of blocks.

A block id belongs to one group at a time; within its block each layer of the group has one page.
Source: vLLM 0.33.0 ``v1/core/kv_cache_utils.py`` and, for the steps, the releases named in
:mod:`version_rules`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_llmserve.runtimes.deployment import KvGroup

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from pytest_llmserve.runtimes.vllm.kv_specs import KvSpec
    from pytest_llmserve.runtimes.vllm.version_rules import KvRules

IndexedSpec = tuple[int, "KvSpec"]


class KvLayoutError(ValueError):
    """vLLM would stop while laying out the cache; the message is its own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GroupedLayers:
    """One group over the whole model: its layers with their positions, and one spec for all.

    ``is_mixed``: the layers' pages differ in size, a block holds their sum.
    """

    spec: KvSpec
    members: tuple[IndexedSpec, ...]
    is_mixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankLayout:
    """The groups as one pipeline stage keeps them."""

    groups: tuple[KvGroup, ...]
    specs: tuple[KvSpec, ...]
    """For each group, the spec that says how many blocks a request takes."""
    layers: tuple[tuple[KvSpec, int], ...]
    """Every different spec and how many layers of this stage have it."""
    bytes_per_block: int


def group_layers(
    specs: Sequence[IndexedSpec], rules: KvRules, *, is_hybrid_manager_off: bool = False
) -> tuple[GroupedLayers, ...]:
    """The groups of the whole model, in vLLM's order.

    Raises:
        KvLayoutError: vLLM cannot lay this out (states without the hybrid manager, page sizes
            that do not divide in a version that does not pad).
    """
    if not specs:
        return ()
    if is_hybrid_manager_off:
        specs = _promote(specs)
    whole = _one_group(specs)
    if whole is not None:
        return (whole,)
    if is_hybrid_manager_off and any(not spec.is_attention for _, spec in specs):
        raise KvLayoutError(
            "Failed to promote local KV cache specs to one unified type. "
            "(the hybrid KV cache manager is off)"
        )
    return _split(_unify_pages(specs, rules), rules)


def _promote(specs: Sequence[IndexedSpec]) -> list[IndexedSpec]:
    """Windows become full attention where full layers exist; only-window models stay."""
    if not any(spec.kind in ("full", "mla") for _, spec in specs):
        return list(specs)
    return [
        (i, replace(s, kind="full") if s.kind in ("sliding", "chunked") else s) for i, s in specs
    ]


def _merge_key(spec: KvSpec) -> KvSpec:
    """Full-attention layers of one shape are one spec whatever window they remember."""
    return replace(spec, window=None) if spec.kind == "full" and spec.window is not None else spec


def _one_group(specs: Sequence[IndexedSpec]) -> GroupedLayers | None:
    distinct = {_merge_key(spec) for _, spec in {s: (i, s) for i, s in specs}.values()}
    first = _merge_key(specs[0][1])
    if len(distinct) == 1:
        return GroupedLayers(spec=first, members=tuple(specs))
    if len({spec.block_size for spec in distinct}) > 1:
        return None
    kinds = {spec.kind for spec in distinct}
    is_one_type = kinds <= {"full", "mla"} or (
        len(kinds) == 1
        and len({spec.window for spec in distinct}) == 1
        and len({spec.state_blocks for spec in distinct}) == 1
    )
    return GroupedLayers(spec=first, members=tuple(specs), is_mixed=True) if is_one_type else None


def _unify_pages(specs: Sequence[IndexedSpec], rules: KvRules) -> list[IndexedSpec]:
    """Smaller pages hold more tokens where they divide the largest page, else they are padded."""
    largest = max(spec.page_bytes for _, spec in specs)
    made: dict[KvSpec, KvSpec] = {}
    for _, spec in specs:
        if spec in made:
            continue
        ratio, rest = divmod(largest, spec.page_bytes)
        if spec.page_bytes == largest:
            made[spec] = spec
        elif spec.is_attention and rest == 0:
            made[spec] = replace(spec, block_size=spec.block_size * ratio, page_bytes=largest)
        elif spec.kind == "mla" or not rules.pads_pages:
            raise KvLayoutError(
                "The page size of the layer is not divisible by the maximum page size. "
                "Cannot unify by adjusting block_size."
            )
        else:
            made[spec] = replace(spec, page_bytes=largest)
    return [(index, made[spec]) for index, spec in specs]


def _split(specs: Sequence[IndexedSpec], rules: KvRules) -> tuple[GroupedLayers, ...]:
    buckets: dict[KvSpec, list[IndexedSpec]] = {}
    for index, spec in specs:
        buckets.setdefault(_merge_key(spec), []).append((index, spec))
    sizes = [len(members) for members in buckets.values()]
    size = min(sizes)
    if rules.group_ratio is not None and max(sizes) < size * rules.group_ratio:
        size = max(sizes)
    groups: list[GroupedLayers] = []
    for spec, members in buckets.items():
        count = -(-len(members) // size)
        groups.extend(
            GroupedLayers(spec=spec, members=tuple(members[i::count])) for i in range(count)
        )
    return tuple(groups)


def on_stage(groups: tuple[GroupedLayers, ...], layers: Container[int]) -> RankLayout:
    """The groups on a pipeline stage that holds the layers at these positions.

    A block has a page for each layer of the largest group of the stage.
    """
    out: list[KvGroup] = []
    counts: Counter[KvSpec] = Counter()
    bytes_per_block = 0
    for group in groups:
        here = [spec for index, spec in group.members if index in layers]
        counts.update(here)
        held = sum(spec.page_bytes for spec in here)
        bytes_per_block = max(bytes_per_block, held)
        out.append(
            KvGroup(
                num_layers=len(here),
                kind="mixed" if group.is_mixed else group.spec.kind,
                block_size=group.spec.block_size,
                page_bytes=held if group.is_mixed else group.spec.page_bytes,
            )
        )
    return RankLayout(
        groups=tuple(out),
        specs=tuple(group.spec for group in groups),
        layers=tuple(counts.items()),
        bytes_per_block=bytes_per_block,
    )
