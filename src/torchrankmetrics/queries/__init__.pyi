from .definitions import (
    FIRST_MEAN_RANK as FIRST_MEAN_RANK,
    FIRST_MEDIAN_RANK as FIRST_MEDIAN_RANK,
    QUERY_AUC as QUERY_AUC,
    R_PRECISION as R_PRECISION,
    QueryDefinition as QueryDefinition,
    average_precision as average_precision,
    discounted_gain as discounted_gain,
    exponential_ndcg as exponential_ndcg,
    first_reciprocal_rank as first_reciprocal_rank,
    normalized_dcg as normalized_dcg,
    precision_at as precision_at,
    rank_biased_precision as rank_biased_precision,
    recall_at as recall_at,
    success_at as success_at,
)
from .kind import QueryKind as QueryKind
