from .facts import (
    DatasetFacts as DatasetFacts,
    candidate_counts as candidate_counts,
    dataset_facts as dataset_facts,
    dataset_names as dataset_names,
)
from .precomputed import PrecomputedExpectation as PrecomputedExpectation
