"""The figures as matplotlib pictures. Colours are Okabe and Ito's, told apart by all eyes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_llmserve.plots.figures import capacity, phase_points, vram_bar
from pytest_llmserve.sweeps import Fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pytest_llmserve.plots.figures import CapacityMap, PhasePoint, VramBar
    from pytest_llmserve.subject import Subject

BLACK: Final = "#000000"
GREY: Final = "#999999"
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
PART_COLOURS: Final = {
    "weights": "#0072B2",
    "activations": "#E69F00",
    "outside torch": "#999999",
    "CUDA graphs": "#CC79A7",
    "KV cache": "#56B4E9",
}
FIT_COLOURS: Final = {
    Fit.DOES_NOT_FIT: "#D55E00",
    Fit.CLOSE: "#F0E442",
    Fit.FITS: "#56B4E9",
}
FIT_WORDS: Final = {
    Fit.DOES_NOT_FIT: "does not fit",
    Fit.CLOSE: "close: within the error bar",
    Fit.FITS: "fits",
}
MARKERS: Final = {"decode": "o", "prefill": "^"}
LINES: Final = ("-", "--", "-.")
OFFSETS: Final = ((0, 12), (0, -13), (13, -5), (-13, 5), (13, 8), (-13, -8))
"""Points away from a mark, in turn, so that numbers of neighbours do not meet."""
DPI: Final = 144


def roofline(subjects: Iterable[Subject]) -> Figure | None:
    """A roof for each GPU and dtype, with the servers' phases on it; ``None``: nothing to draw."""
    points = phase_points(subjects)
    if not points:
        return None
    figure, axes = _new(9.0, 4.6 + 0.1 * len(points))
    low = min(1.0, *(p.intensity_flop_per_byte for p in points)) / 2
    high = max(4 * max(p.roof.ridge_flop_per_byte for p in points), *_intensities(points)) * 2
    roofs = list(dict.fromkeys(point.roof for point in points))
    for place, roof in enumerate(roofs):
        ridge, peak = roof.ridge_flop_per_byte, roof.peak_flops_per_s
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(
            [low, ridge, high],
            [low * roof.bytes_per_s / 1e12, peak / 1e12, peak / 1e12],
            color=colour,
            linestyle=LINES[place % len(LINES)],
            label=f"roof of {roof.label}: ridge {ridge:.0f} FLOP/byte",
        )
        axes.axvline(ridge, color=colour, linewidth=0.8, linestyle=":")
    for place, point in enumerate(points):
        _draw_point(axes, place, point, COLOURS[roofs.index(point.roof) % len(COLOURS)])
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(low, high),
        xlabel="arithmetic intensity (FLOP/byte): left of the ridge memory limits, right compute",
        ylabel="attainable TFLOP/s per GPU",
        title="Roofline",
    )
    axes.grid(visible=True, which="major", color=GREY, alpha=0.3)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_point(axes: Axes, place: int, point: PhasePoint, colour: str) -> None:
    """A numbered mark, for phases of like servers lie close together."""
    x, y = point.intensity_flop_per_byte, point.flops_per_s / 1e12
    shown = f"{x:,.0f}" if x >= 100 else f"{x:.1f}"
    axes.plot(
        [x],
        [y],
        marker=MARKERS[point.phase.partition(",")[0]],
        markersize=8,
        linestyle="none",
        markerfacecolor=colour,
        markeredgecolor=BLACK,
        label=f"{place + 1}  {point.server}: {point.phase}, {shown} FLOP/byte",
    )
    axes.annotate(
        str(place + 1),
        (x, y),
        xytext=OFFSETS[place % len(OFFSETS)],
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=8,
    )


def vram_bars(subjects: Iterable[Subject]) -> Figure | None:
    """A bar per server with the fullest GPU's memory; ``None``: nothing to draw."""
    bars = [bar for subject in subjects if (bar := vram_bar(subject)) is not None]
    if not bars:
        return None
    figure, axes = _new(9.0, 1.6 + 0.9 * len(bars))
    for row, bar in enumerate(bars):
        _draw_bar(axes, row, bar)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.invert_yaxis()
    axes.set(
        xlabel="GiB of the fullest GPU",
        title="VRAM",
        xlim=(0, 1.08 * max(max(bar.total_gib, sum(s for _, s in bar.parts)) for bar in bars)),
    )
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(once.values()),
        list(once),
        fontsize=8,
        ncols=7,
        loc="outside lower center",
        frameon=False,
    )
    return figure


def _draw_bar(axes: Axes, row: int, bar: VramBar) -> None:
    left = 0.0
    for name, size in bar.parts:
        axes.barh(row, size, left=left, height=0.55, color=PART_COLOURS[name], label=name)
        if size > 0.06 * bar.total_gib:
            ink = "white" if name == "weights" else BLACK
            axes.text(
                left + size / 2, row, f"{size:.1f}", ha="center", va="center", color=ink, fontsize=8
            )
        left += size
    ends = (row - 0.42, row + 0.42)
    axes.plot([bar.budget_gib] * 2, ends, color=BLACK, linewidth=2, label="budget")
    axes.plot(
        [bar.total_gib] * 2, ends, color=BLACK, linewidth=1.2, linestyle=":", label="GPU total"
    )
    if bar.short_gib:
        axes.text(
            bar.budget_gib, row - 0.46, f"short of {bar.short_gib:.1f} GiB ", fontsize=8, ha="right"
        )


def capacity_map(subject: Subject) -> Figure | None:
    """Context x concurrency: what fits, what is close, what does not; ``None``: cannot be told."""
    found = capacity(subject)
    return None if found is None else _draw_map(found)


def _draw_map(found: CapacityMap) -> Figure:
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    figure, axes = _new(7.6, 5.4)
    kind = found.kind
    order = list(FIT_COLOURS)
    axes.pcolormesh(
        _edges(kind.concurrencies),
        _edges(kind.contexts),
        kind.fit,
        cmap=ListedColormap([FIT_COLOURS[fit] for fit in order]),
        norm=BoundaryNorm([-0.5, 0.5, 1.5, 2.5], 3),
    )
    handles: list[Artist] = [
        Patch(facecolor=FIT_COLOURS[fit], edgecolor=GREY, label=FIT_WORDS[fit]) for fit in order
    ]
    if found.declared is not None:
        context, count = found.declared
        handles += axes.plot(
            [count],
            [context],
            marker="X",
            markersize=12,
            color=BLACK,
            markeredgecolor="white",
            linestyle="none",
            label=f"declared: {count:,} x {context:,} tokens",
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="requests at once",
        ylabel="tokens of a request, prompt and answer",
        title=f"Capacity of {found.label}",
    )
    _plain_ticks(axes, kind.concurrencies, kind.contexts)
    figure.legend(handles=handles, fontsize=8, ncols=4, loc="outside lower center", frameon=False)
    return figure


def _plain_ticks(axes: Axes, columns: Sequence[int], rows: Sequence[int]) -> None:
    """Powers of two, written out."""
    from matplotlib.ticker import NullFormatter

    for axis, values in ((axes.xaxis, columns), (axes.yaxis, rows)):
        powers = [1 << bit for bit in range(values[-1].bit_length())]
        ticks = [power for power in powers if power >= values[0]]
        step = 1 + (len(ticks) - 1) // 11
        axis.set_ticks(ticks[::step], [f"{tick:,}" for tick in ticks[::step]])
        axis.set_minor_formatter(NullFormatter())


def _edges(values: Sequence[int]) -> list[float]:
    """Cell borders half-way between whole numbers."""
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    return [values[0] - 0.5, *middles, values[-1] + 0.5]


def _intensities(points: Iterable[PhasePoint]) -> list[float]:
    return [point.intensity_flop_per_byte for point in points]


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    return figure, figure.subplots()
