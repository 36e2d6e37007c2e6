from .sample import Moments as Moments
from .tasks import (
    GEOMETRIC_MEAN_RANK as GEOMETRIC_MEAN_RANK,
    HARMONIC_MEAN_RANK as HARMONIC_MEAN_RANK,
    INVERSE_GEOMETRIC_MEAN_RANK as INVERSE_GEOMETRIC_MEAN_RANK,
    INVERSE_MEAN_RANK as INVERSE_MEAN_RANK,
    INVERSE_MEDIAN_RANK as INVERSE_MEDIAN_RANK,
    MEAN_AUC as MEAN_AUC,
    MEAN_RANK as MEAN_RANK,
    MEAN_RECIPROCAL_RANK as MEAN_RECIPROCAL_RANK,
    MEDIAN_RANK as MEDIAN_RANK,
    RANK_COUNT as RANK_COUNT,
    RANK_MEDIAN_ABSOLUTE_DEVIATION as RANK_MEDIAN_ABSOLUTE_DEVIATION,
    RANK_STANDARD_DEVIATION as RANK_STANDARD_DEVIATION,
    RANK_VARIANCE as RANK_VARIANCE,
    TIE_RATE as TIE_RATE,
    RankDefinition as RankDefinition,
    hits_at as hits_at,
    power_mean_rank as power_mean_rank,
)
from .transforms import (
    AUC as AUC,
    IDENTITY as IDENTITY,
    AtMost as AtMost,
    Exponential as Exponential,
    Log as Log,
    Power as Power,
    WithCandidates as WithCandidates,
)
