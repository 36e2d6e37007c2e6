"""The public names; ``import torchrankmetrics`` loads them, and torch, when the first of them is used."""

from torchrankmetrics.datasets.precomputed import PrecomputedExpectation
from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.metrics.adjust import adjust
from torchrankmetrics.inference.compare import compare
from torchrankmetrics.metrics.evaluate import evaluate
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.kg.alignment import rank_alignment
from torchrankmetrics.kg.complex_queries import rank_complex_queries
from torchrankmetrics.kg.facts import KnownFacts, rank_facts
from torchrankmetrics.kg.known_answers import KnownAnswers
from torchrankmetrics.kg.known_triples import RELATION_CATEGORIES, KnownTriples, relation_categories
from torchrankmetrics.kg.long_tables import rank_long_table, rank_long_tables
from torchrankmetrics.kg.scorers import EmbeddingScorer
from torchrankmetrics.kg.triples import rank_triples
from torchrankmetrics.metrics.collection import RankCollection
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.named import (
    AdjustedHitsAtK,
    AdjustedMeanRank,
    AdjustedMeanRankIndex,
    AdjustedMeanReciprocalRank,
    GeometricMeanRank,
    HarmonicMeanRank,
    HitsAtK,
    InverseGeometricMeanRank,
    InverseMeanRank,
    InverseMedianRank,
    MeanAUC,
    MeanRank,
    MeanReciprocalRank,
    MedianRank,
    PowerMeanRank,
    RankCount,
    RankMedianAbsoluteDeviation,
    RankStandardDeviation,
    RankVariance,
    TieRate,
    ZHitsAtK,
    ZMeanRank,
    ZMeanReciprocalRank,
)
from torchrankmetrics.metrics.of_queries import (
    AveragePrecision,
    FirstMeanRank,
    FirstMedianRank,
    FirstReciprocalRank,
    NormalizedDCG,
    PrecisionAtK,
    QueryAUC,
    RecallAtK,
    RPrecision,
    SuccessAtK,
)
from torchrankmetrics.ranking.accumulator import RankAccumulator
from torchrankmetrics.ranking.embeddings import rank_embeddings
from torchrankmetrics.ranking.exact.candidates import Candidates
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import rank_scores
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.sequential.evaluation import SequentialEvaluation
from torchrankmetrics.sequential.result import SequentialResult
from torchrankmetrics.sequential.triples import rank_sequentially
from torchrankmetrics.study.rank_study import RankStudy
from torchrankmetrics.definitions.candidates import Moments
from torchrankmetrics.definitions.tasks import RankDefinition, WithCandidates
from torchrankmetrics.null.expectation.exact import ExactExpectation
from torchrankmetrics.null.expectation.monte_carlo import MonteCarloExpectation
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.queries.definitions import QueryDefinition

__all__ = [
    "RELATION_CATEGORIES",
    "AdjustedHitsAtK",
    "AdjustedMeanRank",
    "AdjustedMeanRankIndex",
    "AdjustedMeanReciprocalRank",
    "AveragePrecision",
    "Candidates",
    "EmbeddingScorer",
    "ExactExpectation",
    "ExpectationProvider",
    "FirstMeanRank",
    "FirstMedianRank",
    "FirstReciprocalRank",
    "GeometricMeanRank",
    "HarmonicMeanRank",
    "HitsAtK",
    "InverseGeometricMeanRank",
    "InverseMeanRank",
    "InverseMedianRank",
    "KnownAnswers",
    "KnownFacts",
    "KnownTriples",
    "MeanAUC",
    "MeanRank",
    "MeanReciprocalRank",
    "MedianRank",
    "Moments",
    "MonteCarloExpectation",
    "NormalizedDCG",
    "PowerMeanRank",
    "PrecisionAtK",
    "PrecomputedExpectation",
    "QueryAUC",
    "QueryDefinition",
    "RPrecision",
    "RankAccumulator",
    "RankCollection",
    "RankCount",
    "RankDefinition",
    "RankMedianAbsoluteDeviation",
    "RankMetric",
    "RankMetricWarning",
    "RankStandardDeviation",
    "RankStudy",
    "RankTable",
    "RankVariance",
    "Ranks",
    "RecallAtK",
    "SequentialEvaluation",
    "SequentialResult",
    "SuccessAtK",
    "TieRate",
    "Tolerance",
    "WithCandidates",
    "ZHitsAtK",
    "ZMeanRank",
    "ZMeanReciprocalRank",
    "adjust",
    "compare",
    "evaluate",
    "rank_alignment",
    "rank_complex_queries",
    "rank_embeddings",
    "rank_facts",
    "rank_long_table",
    "rank_long_tables",
    "rank_scores",
    "rank_sequentially",
    "rank_triples",
    "relation_categories",
]
