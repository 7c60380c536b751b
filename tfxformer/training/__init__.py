"""From batches to weights: `trainer.train` and its parts."""
