"""Pictures of servers (extra ``plot``): a roofline, a VRAM bar per GPU, a capacity map.

Each function takes servers and returns a matplotlib ``Figure``; :func:`write_plots` writes PNGs, as
``--llmserve-report plots=DIR`` does. What is drawn is worked out in :mod:`figures`, without
matplotlib.
"""

from __future__ import annotations

from pytest_llmserve.plots.draw import capacity_map, roofline, vram_bars
from pytest_llmserve.plots.write import NO_MATPLOTLIB, is_available, write_plots

__all__ = [
    "NO_MATPLOTLIB",
    "capacity_map",
    "is_available",
    "roofline",
    "vram_bars",
    "write_plots",
]
