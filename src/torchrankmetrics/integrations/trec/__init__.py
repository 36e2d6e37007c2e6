"""Metrics of retrieval runs, from qrels and a run: files, or objects of other libraries."""

from torchrankmetrics.integrations.trec.runs import DEFAULT_RUN_METRICS, evaluate_run, rank_run
from torchrankmetrics.integrations.trec.sources import read_qrels, read_run

__all__ = ["DEFAULT_RUN_METRICS", "evaluate_run", "rank_run", "read_qrels", "read_run"]
