"""Mathematics on ranks and candidate counts; knows torch, NumPy and SciPy, nothing of scores or torchmetrics."""
