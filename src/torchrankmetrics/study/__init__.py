"""Many models, data sets and seeds at once: from saved ranks to tables, figures and a page that others can check."""

from torchrankmetrics.study.rank_study import RankStudy

__all__ = ["RankStudy"]
