"""Every metric of queries beside its plain definition, and samples from blocks of ties."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import reference_queries as exact
from torchrankmetrics.definitions import AtMost, Power
from torchrankmetrics.kg import KnownPositives
from torchrankmetrics.queries import definitions as d
from torchrankmetrics.queries.sample import QuerySample

CUT = [
    (d.recall_at, exact.recall),
    (d.precision_at, exact.precision),
    (d.success_at, exact.success),
    (d.first_reciprocal_rank, exact.rr),
    (d.average_precision, exact.ap),
    (d.normalized_dcg, exact.ndcg),
    (d.capped_recall_at, exact.recall_cap),
    (d.f1_at, exact.f1),
    (d.capped_average_precision, exact.ap_cap),
    (d.fall_out_at, exact.fall_out),
]
UNCUT = [
    (d.first_reciprocal_rank(), exact.rr),
    (d.average_precision(), exact.ap),
    (d.normalized_dcg(), exact.ndcg),
    (d.R_PRECISION, exact.r_precision),
    (d.QUERY_AUC, exact.auc),
    (d.FIRST_MEAN_RANK, exact.first_mr),
    (d.QueryDefinition("mean_rank", f=Power(1)), lambda ranks, N: sum(ranks) / len(ranks)),
    (d.rank_biased_precision(0.5), lambda ranks, N: sum(Fraction(1, 2) ** r for r in ranks)),
    (
        d.QueryDefinition("root", f=lambda r: r.rsqrt()),
        lambda ranks, N: sum(r**-0.5 for r in ranks) / len(ranks),
    ),
    (
        d.QueryDefinition("per_root", f=AtMost(2), divisor=np.sqrt, higher_is_better=True),
        lambda ranks, N: sum(r <= 2 for r in ranks) / len(ranks) ** 0.5,
    ),
]
# definition, and the value of ranks among N candidates
METRICS = UNCUT + [
    (make(k), lambda ranks, N, f=f, k=k: f(ranks, N, k))
    for make, f in CUT
    for k in (1, 2, 3, 5, 12)
]
every_metric = pytest.mark.parametrize(
    ("definition", "value"), METRICS, ids=[one.name for one, _ in METRICS]
)


def sample_of(*queries, weight=None):
    """A sample of queries (N, blocks), each block (first place, last place, answers), from its rows in disorder."""
    rows = [
        (q, low, high, N)
        for q, (N, blocks) in enumerate(queries)
        for low, high, t in blocks
        for _ in range(t)
    ]
    columns = np.array(rows, dtype=np.int64)[
        np.random.default_rng(len(rows)).permutation(len(rows))
    ].T
    return sample_of_rows(
        *columns, weight if weight is None else np.asarray(weight, float)[columns[0]]
    )


def sample_of_rows(query, low, high, num_candidates, weight=None):
    """A sample from one row per answer, in any order: equal rows of a query are the answers of one block."""
    rows = np.stack([query, low, high], 1)
    blocks, first, answers = np.unique(rows, axis=0, return_index=True, return_counts=True)
    label, low, high = blocks.T
    starts = np.unique(label, return_index=True)[1]
    one = first[starts]
    weight = np.ones(len(one)) if weight is None else weight[one]
    ends = np.append(starts, len(label))
    return QuerySample(ends, low, high, answers, num_candidates[one], weight, np.ones_like(one))


def looked_up(mask):
    """The exclusion of a mask (B, N) as a look-up of known positives, which may hold relevant items."""
    return KnownPositives(*mask.nonzero().T)(torch.arange(len(mask)))
