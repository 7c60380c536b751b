"""Pictures, drawn by Matplotlib: the extra ``plots``.

Each function takes arrays and returns a Matplotlib figure. A notebook shows the
figure, and `save` writes it to a PNG or SVG file. Matplotlib's styles apply: with
``matplotlib.style.context("dark_background")`` around the call, letters are light.
"""

from tfxformer.plots.attention import draw_attention, draw_mask
from tfxformer.plots.model import draw_neighbours, draw_positions
from tfxformer.plots.style import png, save
from tfxformer.plots.training import draw_curves, draw_lengths, draw_schedules

__all__ = [
    "draw_attention",
    "draw_curves",
    "draw_lengths",
    "draw_mask",
    "draw_neighbours",
    "draw_positions",
    "draw_schedules",
    "png",
    "save",
]
