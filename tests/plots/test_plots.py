"""What is drawn, not how it looks: data of lines, bars and cells against the figures behind."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="the plot extra is not installed")

from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from pytest_llmserve.assertions import LlmServe
from pytest_llmserve.invariants import invariant
from pytest_llmserve.invariants.phases import decode_floor, prefill_floor
from pytest_llmserve.plots import capacity_map, roofline, vram_bars, write_plots
from pytest_llmserve.plots.draw import FIT_COLOURS, PART_COLOURS
from pytest_llmserve.plots.figures import capacity, phase_points, vram_bar
from pytest_llmserve.policy import Facts, Workload
from pytest_llmserve.subject import Subject
from pytest_llmserve.sweeps import Fit
from pytest_llmserve.units import GIB

SERVE = LlmServe()
LOAD = Facts(workload=Workload(prompt_tokens=4000, output_tokens=500, concurrency=32))


def subject(model: str = "meta-llama/Llama-3.1-8B-Instruct", **given: Any) -> Subject:
    given = {"gpu": "h100-sxm-80gb", "version": "0.19.1", "max_model_len": 16384, **given}
    (found,) = SERVE.server(model, **given).subjects
    return Subject(found.inputs, LOAD)


CHAT = subject(name="chat")
LARGE = subject("meta-llama/Llama-3.1-70B-Instruct", name="large", gpu="l40s")


def labelled(figure: Figure, start: str) -> Any:
    (axes,) = figure.axes
    return next(line for line in axes.lines if str(line.get_label()).startswith(start))


def test_the_roof_meets_at_the_ridge() -> None:
    """989.4 TFLOP/s over 3.35 TB/s: 295 FLOP/byte (NVIDIA's datasheet of the H100 SXM)."""
    figure = roofline([CHAT])
    assert figure is not None
    roof = labelled(figure, "roof of h100-sxm-80gb, bfloat16: ridge 295")
    x, y = roof.get_xdata(), roof.get_ydata()
    assert x[1] == pytest.approx(295.34, abs=0.01)
    assert y[1] == y[2] == pytest.approx(989.4)
    assert y[0] / x[0] == pytest.approx(3.35)  # TB/s is the slope


def test_phases_lie_on_their_roof() -> None:
    figure = roofline([CHAT, LARGE])
    assert figure is not None
    lone, many = decode_floor(CHAT, 1, 4250), decode_floor(CHAT, 32, 4250)
    prompt = prefill_floor(CHAT, 4000)
    for label, floor in (
        ("1  chat: decode, batch 1, 4,250 tokens", lone),
        ("2  chat: decode, batch 32, 4,250 tokens", many),
        ("3  chat: prefill, 4,000 tokens", prompt),
    ):
        assert floor is not None
        point = labelled(figure, label)
        assert point.get_xdata()[0] == pytest.approx(floor.intensity_flop_per_byte)
        reached = floor.flops / floor.floor_s / 1e12
        assert point.get_ydata()[0] == pytest.approx(reached)
    assert len({point.roof.label for point in phase_points([CHAT, LARGE])}) == 2


def test_a_bar_adds_up_to_the_budget() -> None:
    bar = vram_bar(CHAT)
    vram = CHAT.plan.vram
    assert bar is not None
    assert vram is not None
    assert bar.short_gib == 0
    in_budget = [size for name, size in bar.parts if name != "CUDA graphs" or vram.graphs_in_budget]
    assert sum(in_budget) == pytest.approx(bar.budget_gib)
    assert bar.total_gib * GIB == pytest.approx(vram.gpu_total_bytes.expected)
    figure = vram_bars([CHAT, LARGE])
    assert figure is not None
    (axes,) = figure.axes
    bars: list[Any] = list(axes.patches)
    widths = [patch.get_width() for patch in bars[: len(bar.parts)]]
    assert widths == pytest.approx([size for _, size in bar.parts])
    assert labelled(figure, "budget").get_xdata()[0] == pytest.approx(bar.budget_gib)
    assert [t.get_text() for t in axes.get_yticklabels()] == [
        "chat\n1 x h100-sxm-80gb",
        "large\n1 x l40s",
    ]


def test_a_bar_says_what_it_is_short_of() -> None:
    """65.7 GiB a GPU even over two: on one L40S of 44 the weights alone do not fit."""
    bar = vram_bar(LARGE)
    assert bar is not None
    assert bar.short_gib > 80
    assert dict(bar.parts)["KV cache"] == 0
    figure = vram_bars([LARGE])
    assert figure is not None
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert f"short of {bar.short_gib:.1f} GiB " in texts


def test_the_map_is_the_sweep() -> None:
    found = capacity(CHAT)
    figure = capacity_map(CHAT)
    assert found is not None
    assert figure is not None
    (mesh,) = [c for c in figure.axes[0].collections if isinstance(c, QuadMesh)]
    drawn = mesh.get_array()
    assert drawn is not None
    assert (drawn == found.kind.fit).all()
    assert {int(fit) for fit in drawn.ravel()} >= {Fit.DOES_NOT_FIT, Fit.FITS}
    assert found.declared == (4500, 32)
    mark = labelled(figure, "declared: 32 x 4,500 tokens")
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (32, 4500)
    # the cell under the mark says what LLM103 says
    row = min(range(len(found.kind.contexts)), key=lambda i: abs(found.kind.contexts[i] - 4500))
    column = found.kind.concurrencies.index(32)
    verdict = invariant("concurrency-fits").judge(CHAT)
    assert (found.kind.fit[row, column] == Fit.FITS) == bool(verdict)
    assert found.kind.contexts[-1] > 16384  # beyond max_model_len is on the map, and does not fit
    assert (found.kind.fit[-1] == Fit.DOES_NOT_FIT).all()


def test_nothing_is_drawn_of_what_is_not_known() -> None:
    blind = subject(gpu="b100")
    assert roofline([blind]) is None
    assert vram_bars([blind]) is None
    assert capacity_map(blind) is None
    assert capacity_map(subject(tensor_parallel_size=2, pipeline_parallel_size=2)) is None


def test_colours_are_told_apart_by_all_eyes() -> None:
    """Lightness differs between any two that touch: a picture in grey still reads."""

    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    fits = [lightness(colour) for colour in FIT_COLOURS.values()]
    assert min(abs(a - b) for a, b in pairwise(fits)) > 30
    parts = [lightness(colour) for colour in PART_COLOURS.values()]
    assert abs(parts[0] - parts[-1]) > 30


def test_files(tmp_path: Path) -> None:
    twin = subject(name="chat")
    written = write_plots(tmp_path / "pics", [CHAT, LARGE, twin])
    assert [path.name for path in written] == [
        "roofline-1.png",
        "vram-1.png",
        "capacity-chat-h100-sxm-80gb.png",
        "capacity-large-l40s.png",
        "capacity-chat-h100-sxm-80gb-2.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
