"""Plots of an evaluation. Each takes ``ax=`` and returns ``(fig, ax)``; matplotlib comes with the extra ``plot``."""

from torchrankmetrics.plots.across import critical_difference, differences, intervals_by_dataset
from torchrankmetrics.plots.breakdowns import by_dataset, groups
from torchrankmetrics.plots.distribution import calibration, rank_ecdf, ties
from torchrankmetrics.plots.forests import forest, group_differences
from torchrankmetrics.plots.svg import to_svg

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
