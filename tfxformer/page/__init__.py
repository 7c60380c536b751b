"""The model in a browser tab: `page` packs it, and JavaScript computes and shows it."""

from tfxformer.page.page import page, write_page

__all__ = ["page", "write_page"]
