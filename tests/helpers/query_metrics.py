"""Every metric of queries beside its plain definition, and samples from blocks of ties."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import reference_queries as exact
from torchrankmetrics.definitions import AtMost, Power
from torchrankmetrics.kg import KnownPositives
from torchrankmetrics.metrics.registry import NUMBERED, PLACES, WHOLE
from torchrankmetrics.queries import definitions as d
from torchrankmetrics.queries.sample import QuerySample

# metrics with a cut-off, as functions of it, and their formulas
CUT = [
    (NUMBERED[PLACES][name.removesuffix(f"_at_{k}")].definition, formula)
    for name, (formula, k) in exact.NAMES.items()
    if k is not None
]
# definition, and the value of ranks among N candidates
METRICS = [
    (WHOLE[name].definition(), lambda ranks, N, f=formula: f(ranks, N, None))
    for name, (formula, k) in exact.NAMES.items()
    if k is None
]
METRICS += [
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
METRICS += [
    (make(k), lambda ranks, N, f=f, k=k: f(ranks, N, k))
    for make, f in CUT
    for k in (1, 2, 3, 5, 12)
]
every_metric = pytest.mark.parametrize(
    ("definition", "value"), METRICS, ids=[one.name for one, _ in METRICS]
)


def sample_of(*queries, weight=None):
    """A sample of queries (N, blocks), from its rows in disorder.

    A block is (first place, last place, answers).
    """
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
    """A sample from one row per answer, in any order: equal rows of a query are one block."""
    rows = np.stack([query, low, high], 1)
    blocks, first, answers = np.unique(rows, axis=0, return_index=True, return_counts=True)
    label, low, high = blocks.T
    starts = np.unique(label, return_index=True)[1]
    one = first[starts]
    weight = np.ones(len(one)) if weight is None else weight[one]
    ends = np.append(starts, len(label))
    return QuerySample(ends, low, high, answers, num_candidates[one], weight, np.ones_like(one))


def looked_up(mask):
    """A mask (B, N) as a look-up of known positives, which may contain relevant items."""
    return KnownPositives(*mask.nonzero().T)(torch.arange(len(mask)))
