"""The public names; ``import torchrankmetrics`` loads them, and torch, when the first of them is used."""

from torchrankmetrics.datasets.precomputed import PrecomputedExpectation
from torchrankmetrics.deciding.decision import SequentialResult
from torchrankmetrics.deciding.triples import rank_sequentially
from torchrankmetrics.deciding.until_decided import SequentialEvaluation
from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.evaluation.adjust import adjust
from torchrankmetrics.evaluation.compare import compare
from torchrankmetrics.evaluation.evaluate import evaluate
from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.metrics.adjusted import (
    AdjustedHitsAtK,
    AdjustedMeanRank,
    AdjustedMeanRankIndex,
    AdjustedMeanReciprocalRank,
    ZHitsAtK,
    ZMeanRank,
    ZMeanReciprocalRank,
)
from torchrankmetrics.metrics.collection import RankCollection
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.named import (
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
from torchrankmetrics.protocols.alignment import rank_alignment
from torchrankmetrics.protocols.complex_queries import rank_complex_queries
from torchrankmetrics.protocols.embedding_scorer import EmbeddingScorer
from torchrankmetrics.protocols.facts import KnownFacts, rank_facts
from torchrankmetrics.protocols.known_answers import KnownAnswers
from torchrankmetrics.protocols.known_triples import KnownTriples
from torchrankmetrics.protocols.long_tables import rank_long_table, rank_long_tables
from torchrankmetrics.protocols.popularity import weight_by_popularity
from torchrankmetrics.protocols.relations import RELATION_CATEGORIES, relation_categories
from torchrankmetrics.protocols.triples import rank_triples
from torchrankmetrics.ranking.accumulator import RankAccumulator
from torchrankmetrics.ranking.certified.candidates import Candidates
from torchrankmetrics.ranking.chunks import rank_embeddings
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import rank_scores
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.study.rank_study import RankStudy
from torchrankmetrics.theory.candidates import Moments
from torchrankmetrics.theory.definitions import RankDefinition, WithCandidates
from torchrankmetrics.theory.expectation.exact import ExactExpectation
from torchrankmetrics.theory.expectation.monte_carlo import MonteCarloExpectation
from torchrankmetrics.theory.expectation.provider import ExpectationProvider
from torchrankmetrics.theory.queries.definitions import QueryDefinition

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
    "weight_by_popularity",
]
