"""Mathematics of ranks and candidate counts, independent of scores and torchmetrics."""
