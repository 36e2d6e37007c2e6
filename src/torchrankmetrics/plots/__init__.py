"""Plots of an evaluation. Each takes ``ax=`` and returns ``(fig, ax)``; matplotlib comes with the extra ``plot``."""

from torchrankmetrics.plots.canvas import to_svg
from torchrankmetrics.plots.datasets import by_dataset, critical_difference, differences, groups, intervals_by_dataset
from torchrankmetrics.plots.distribution import calibration, rank_ecdf, ties
from torchrankmetrics.plots.forests import forest, group_differences

__all__ = [
    "by_dataset",
    "calibration",
    "critical_difference",
    "differences",
    "forest",
    "group_differences",
    "groups",
    "intervals_by_dataset",
    "rank_ecdf",
    "ties",
    "to_svg",
]
