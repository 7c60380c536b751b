"""The exported model: a SavedModel that takes strings and gives strings."""
