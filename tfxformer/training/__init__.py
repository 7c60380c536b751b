"""From batches to weights: `trainer.train`, and what it is made of."""
