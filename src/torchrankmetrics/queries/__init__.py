"""Metrics of queries with several true candidates: values under ties, null moments and p-values."""
