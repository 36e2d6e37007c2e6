from . import (
    audit as audit,
    datasets as datasets,
    definitions as definitions,
    inference as inference,
    integrations as integrations,
    kg as kg,
    null as null,
    plots as plots,
    queries as queries,
    ranking as ranking,
    sequential as sequential,
    study as study,
)
from .definitions.tasks import RankDefinition as RankDefinition
from .errors import RankMetricError as RankMetricError, RankMetricWarning as RankMetricWarning
from .inference.compare import compare as compare
from .kg.known_triples import KnownTriples as KnownTriples
from .kg.triples import rank_triples as rank_triples
from .metrics.adjust import adjust as adjust
from .metrics.collection import RankCollection as RankCollection
from .metrics.evaluate import evaluate as evaluate
from .metrics.metric import RankMetric as RankMetric
from .metrics.named import (
    AdjustedHitsAtK as AdjustedHitsAtK,
    AdjustedMeanRank as AdjustedMeanRank,
    AdjustedMeanRankIndex as AdjustedMeanRankIndex,
    AdjustedMeanReciprocalRank as AdjustedMeanReciprocalRank,
    AveragePrecision as AveragePrecision,
    CappedAveragePrecisionAtK as CappedAveragePrecisionAtK,
    CappedRecallAtK as CappedRecallAtK,
    DiscountedCumulativeGain as DiscountedCumulativeGain,
    ExponentialNDCG as ExponentialNDCG,
    F1AtK as F1AtK,
    FallOutAtK as FallOutAtK,
    FirstMeanRank as FirstMeanRank,
    FirstMedianRank as FirstMedianRank,
    FirstReciprocalRank as FirstReciprocalRank,
    GeometricMeanRank as GeometricMeanRank,
    HarmonicMeanRank as HarmonicMeanRank,
    HitsAtK as HitsAtK,
    InverseGeometricMeanRank as InverseGeometricMeanRank,
    InverseMeanRank as InverseMeanRank,
    InverseMedianRank as InverseMedianRank,
    MeanAUC as MeanAUC,
    MeanRank as MeanRank,
    MeanReciprocalRank as MeanReciprocalRank,
    MedianRank as MedianRank,
    NormalizedDCG as NormalizedDCG,
    PowerMeanRank as PowerMeanRank,
    PrecisionAtK as PrecisionAtK,
    QueryAUC as QueryAUC,
    RankBiasedPrecision as RankBiasedPrecision,
    RankCount as RankCount,
    RankMedianAbsoluteDeviation as RankMedianAbsoluteDeviation,
    RankStandardDeviation as RankStandardDeviation,
    RankVariance as RankVariance,
    RecallAtK as RecallAtK,
    RPrecision as RPrecision,
    SuccessAtK as SuccessAtK,
    TieRate as TieRate,
    ZHitsAtK as ZHitsAtK,
    ZMeanRank as ZMeanRank,
    ZMeanReciprocalRank as ZMeanReciprocalRank,
)
from .ranking.embeddings import rank_embeddings as rank_embeddings
from .ranking.ranks import Ranks as Ranks, rank_scores as rank_scores
from .table.rank_table import RankTable as RankTable
from .table.task_facts import TaskFacts as TaskFacts
from .version import __version__ as __version__
