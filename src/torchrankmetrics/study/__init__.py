"""Many models, data sets and seeds at once: from saved ranks to tables, figures and a page that others can check."""

from torchrankmetrics.study.rank_study import RankStudy
from torchrankmetrics.study.verify import Verification, verify

__all__ = ["RankStudy", "Verification", "verify"]
