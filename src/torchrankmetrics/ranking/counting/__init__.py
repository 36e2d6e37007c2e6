"""Counting comparisons: per task, how many candidates score below, not above, and NaN; every way gives the same bits."""

from torchrankmetrics.ranking.counting.plain import count_columns

__all__ = ["count_columns"]
