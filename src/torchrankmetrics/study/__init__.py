"""Studies of many models, datasets and seeds: from saved ranks to tables, figures and a page."""

from torchrankmetrics.study.figures import critical_difference, intervals_by_dataset
from torchrankmetrics.study.rank_study import RankStudy
from torchrankmetrics.study.verification import Verification, verify

__all__ = [
    "RankStudy",
    "Verification",
    "critical_difference",
    "intervals_by_dataset",
    "verify",
]
