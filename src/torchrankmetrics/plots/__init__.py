"""Plots of an evaluation with matplotlib: each takes ``ax=`` and returns ``(fig, ax)``."""

from torchrankmetrics.plots.canvas import to_svg
from torchrankmetrics.plots.datasets import (
    by_dataset,
    differences,
    groups,
)
from torchrankmetrics.plots.evaluations import (
    calibration,
    forest,
    group_differences,
    rank_ecdf,
    ties,
)
from torchrankmetrics.plots.planning import detectable_differences

__all__ = [
    "by_dataset",
    "calibration",
    "detectable_differences",
    "differences",
    "forest",
    "group_differences",
    "groups",
    "rank_ecdf",
    "ties",
    "to_svg",
]
