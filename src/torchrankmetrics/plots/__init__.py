"""Plots of an evaluation. Each takes ``ax=`` and returns ``(fig, ax)``; matplotlib comes with the extra ``plot``."""

from torchrankmetrics.plots.distribution import rank_ecdf, ties
from torchrankmetrics.plots.values import by_dataset, forest, groups

__all__ = ["by_dataset", "forest", "groups", "rank_ecdf", "ties"]
