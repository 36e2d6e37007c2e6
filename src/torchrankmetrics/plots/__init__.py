"""Plots of an evaluation. Each takes ``ax=`` and returns ``(fig, ax)``; matplotlib comes with the extra ``plot``."""

from torchrankmetrics.plots.distribution import calibration, rank_ecdf, ties
from torchrankmetrics.plots.intervals import forest, group_differences
from torchrankmetrics.plots.values import by_dataset, groups

__all__ = ["by_dataset", "calibration", "forest", "group_differences", "groups", "rank_ecdf", "ties"]
