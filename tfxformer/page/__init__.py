"""The model in a browser tab: Python packs it, JavaScript computes and shows it."""
