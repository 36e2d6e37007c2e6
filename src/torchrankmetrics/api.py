"""The public names; ``import torchrankmetrics`` loads them, and torch, when the first of them is used."""

from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.metrics.collection import RankCollection
from torchrankmetrics.metrics.comparison import compare
from torchrankmetrics.metrics.functional import evaluate
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
from torchrankmetrics.metrics.published import adjust
from torchrankmetrics.ranking.alignment import rank_alignment
from torchrankmetrics.ranking.chunks import RankAccumulator, rank_embeddings
from torchrankmetrics.ranking.known import KnownAnswers
from torchrankmetrics.ranking.known_triples import KnownTriples
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.relations import RELATION_CATEGORIES, relation_categories
from torchrankmetrics.ranking.scores import rank_scores
from torchrankmetrics.ranking.table import RankTable
from torchrankmetrics.ranking.triples import rank_triples
from torchrankmetrics.theory.candidates import Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.exact import ExactExpectation
from torchrankmetrics.theory.expectation.monte_carlo import MonteCarloExpectation
from torchrankmetrics.theory.expectation.precomputed import PrecomputedExpectation
from torchrankmetrics.theory.expectation.provider import ExpectationProvider

__all__ = [
    "RELATION_CATEGORIES",
    "AdjustedHitsAtK",
    "AdjustedMeanRank",
    "AdjustedMeanRankIndex",
    "AdjustedMeanReciprocalRank",
    "ExactExpectation",
    "ExpectationProvider",
    "GeometricMeanRank",
    "HarmonicMeanRank",
    "HitsAtK",
    "InverseGeometricMeanRank",
    "InverseMeanRank",
    "InverseMedianRank",
    "KnownAnswers",
    "KnownTriples",
    "MeanRank",
    "MeanReciprocalRank",
    "MedianRank",
    "Moments",
    "MonteCarloExpectation",
    "PowerMeanRank",
    "PrecomputedExpectation",
    "RankAccumulator",
    "RankCollection",
    "RankCount",
    "RankDefinition",
    "RankMedianAbsoluteDeviation",
    "RankMetric",
    "RankMetricWarning",
    "RankStandardDeviation",
    "RankTable",
    "RankVariance",
    "Ranks",
    "TieRate",
    "ZHitsAtK",
    "ZMeanRank",
    "ZMeanReciprocalRank",
    "adjust",
    "compare",
    "evaluate",
    "rank_alignment",
    "rank_embeddings",
    "rank_scores",
    "rank_triples",
    "relation_categories",
]
