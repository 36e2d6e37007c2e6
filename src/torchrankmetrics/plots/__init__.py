"""Plots of an evaluation. Each takes ``ax=`` and returns ``(fig, ax)``; matplotlib comes with the extra ``plot``."""

from torchrankmetrics.plots.canvas import to_svg
from torchrankmetrics.plots.datasets import (
    by_dataset,
    critical_difference,
    differences,
    groups,
    intervals_by_dataset,
)
from torchrankmetrics.plots.evaluations import (
    calibration,
    forest,
    group_differences,
    rank_ecdf,
    ties,
)

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
