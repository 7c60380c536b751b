"""Export: a SavedModel that takes strings and returns strings."""
