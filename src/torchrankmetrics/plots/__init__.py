"""Plots of an evaluation. Each takes ``ax=`` and returns ``(fig, ax)``; matplotlib comes with the extra ``plot``."""

from torchrankmetrics.plots.across import critical_difference, differences, intervals_by_dataset
from torchrankmetrics.plots.distribution import rank_ecdf, ties
from torchrankmetrics.plots.svg import to_svg
from torchrankmetrics.plots.values import by_dataset, forest, groups

__all__ = [
    "by_dataset",
    "critical_difference",
    "differences",
    "forest",
    "groups",
    "intervals_by_dataset",
    "rank_ecdf",
    "ties",
    "to_svg",
]
