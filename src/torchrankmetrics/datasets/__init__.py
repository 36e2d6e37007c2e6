"""Facts of benchmark graphs: how many candidates their filtered evaluation has, as data files with provenance."""

from torchrankmetrics.datasets.facts import DatasetFacts, candidate_counts, dataset_facts, dataset_names

__all__ = ["DatasetFacts", "candidate_counts", "dataset_facts", "dataset_names"]
