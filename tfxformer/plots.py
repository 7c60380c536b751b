"""Pictures, drawn by Matplotlib: the extra ``plots``."""

from tfxformer.plots_attention import (
    draw_attention,
    draw_head,
    draw_heads,
    draw_layers,
    draw_mask,
)
from tfxformer.plots_canvas import png, save, svg
from tfxformer.plots_model import (
    draw_neighbours,
    draw_position_curves,
    draw_position_similarity,
    draw_positions,
)
from tfxformer.plots_training import (
    draw_bleu_by_length,
    draw_curves,
    draw_lengths,
    draw_schedules,
)

__all__ = [
    "draw_attention",
    "draw_bleu_by_length",
    "draw_curves",
    "draw_head",
    "draw_heads",
    "draw_layers",
    "draw_lengths",
    "draw_mask",
    "draw_neighbours",
    "draw_position_curves",
    "draw_position_similarity",
    "draw_positions",
    "draw_schedules",
    "png",
    "save",
    "svg",
]
