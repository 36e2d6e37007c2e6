"""Studies of many models, datasets and seeds: from saved ranks to tables, figures and a page with a manifest."""

from torchrankmetrics.study.page import Verification, verify
from torchrankmetrics.study.rank_study import RankStudy

__all__ = ["RankStudy", "Verification", "verify"]
