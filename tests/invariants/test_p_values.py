"""p-values are valid under ties: P(p <= a) <= a for all metrics with one and all tie structures."""

import itertools
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from torchrankmetrics import RankCollection, RankDefinition
from torchrankmetrics.definitions import WithCandidates, hits_at, power_mean_rank
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.metrics.registry import all_names
from torchrankmetrics.queries import QueryDefinition

OWN = [
    RankDefinition("step", f=lambda r: (r <= 2).double()),
    RankDefinition(
        "steps", f=lambda r: (r > 1).double() + (r > 3).double(), g=lambda x: (1 + x).log()
    ),
    RankDefinition(
        "top_half", f=WithCandidates(lambda r, n: (r <= n / 2).double(), min_candidates=2)
    ),
]
NAMED = [
    parse_name(name.replace("<k>", k)).definition
    for name in all_names()
    for k in "13"
    if "<p>" not in name
]
NAMED = [definition for definition in dict.fromkeys(NAMED) if definition.has_p_value]
OF_TASKS = [
    *(definition for definition in NAMED if isinstance(definition, RankDefinition)),
    hits_at(10),
    *(power_mean_rank(p) for p in (2, -2, 0.5, math.inf, -math.inf)),
    *OWN,
]
OF_QUERIES = [
    *(definition for definition in NAMED if isinstance(definition, QueryDefinition)),
    QueryDefinition("query_step", f=lambda r: (r <= 2).double()),
    QueryDefinition("query_mean_rank", f=lambda r: r),
]
TIED = [[[1, 1, 0]], [[1, 1, 0], [2, 2, 2]], [[3, 2, 2, 1], [1, 1, 0, 0]]]  # scores


def all_p_values(scores, metrics, relevant):
    """p-values for all choices of so many relevant items per row, equally likely under the null."""
    outcomes, found = [], {}
    for chosen in itertools.product(
        *(itertools.combinations(range(len(row)), relevant) for row in scores)
    ):
        # candidates with equal scores are interchangeable
        pairs = zip(scores, chosen, strict=True)
        key = tuple(tuple(sorted(row[column] for column in columns)) for row, columns in pairs)
        if key not in found:
            target = torch.zeros(len(scores), len(scores[0]), dtype=torch.bool)
            for row, columns in zip(target, chosen, strict=True):
                row[list(columns)] = True
            collection = RankCollection(metrics, views=("p_value",))
            collection.update(torch.tensor(scores).double(), target)
            found[key] = [value.item() for value in collection.compute().values()]
        outcomes.append(found[key])
    return np.array(outcomes)


@pytest.mark.parametrize("scores", TIED, ids=str)
@pytest.mark.parametrize(("metrics", "relevant"), [(OF_TASKS, 1), (OF_QUERIES, 1), (OF_QUERIES, 2)])
def test_p_is_at_most_a_for_a_share_of_at_most_a_of_all_positions(scores, metrics, relevant):
    p = all_p_values(scores, metrics, relevant) * (1 + 1e-9)
    reached = (p[:, None] <= p).mean(0)  # of the positions: as small a p-value, or smaller
    invalid = (reached > p).any(0)
    assert [one.name for one, wrong in zip(metrics, invalid, strict=True) if wrong] == []


@pytest.mark.parametrize(("metrics", "relevant"), [(OF_TASKS, 1), (OF_QUERIES, 2)])
def test_p_and_its_logarithm_are_those_of_pessimistic_ranks_for_every_rank_type(metrics, relevant):
    random = np.random.default_rng(1)
    scores = torch.as_tensor(random.integers(0, 4, (6, 30))).double()
    scores[:, :relevant] += 1
    target = torch.zeros(6, 30, dtype=torch.bool)
    target[:, :relevant] = True
    rank_types = ("pessimistic", "realistic", "optimistic", "expected")
    tied, last = (
        RankCollection(metrics, views=("p_value",), rank_types=rank_types) for _ in range(2)
    )
    tied.update(scores, target)
    # no ties: each relevant item is the last of its block
    last.update(scores - 0.5 * target, target)
    of_tied, of_last = tied.compute(), last.compute()
    for key, measure in tied.measures.items():
        want = of_last[
            "pessimistic_"
            + replace(measure, rank_type="pessimistic").key.removeprefix("pessimistic_")
        ]
        assert of_tied[key].item() == pytest.approx(want.item(), rel=1e-9), key
        assert 0 < want < 1, key


@pytest.mark.parametrize("side", ["head", "tail"])
def test_errors_of_p_values_are_nan_where_the_value_is(side):
    # AUC and query AUC have no value for a single candidate, and no metric has one without tasks
    collection = RankCollection(
        [*OF_TASKS, *OF_QUERIES], views=("p_value",), sides=("head", "tail")
    )
    scores = torch.tensor([[1.0, 0.0]])
    exclude = torch.tensor([[False, True]])
    collection.update(scores, torch.tensor([0]), exclude=exclude, side="tail")
    with warnings.catch_warnings(action="ignore"):
        values = collection.compute()
    errors = collection.p_value_errors()
    assert errors.keys() == values.keys()
    for key in (key for key in values if key.startswith(side)):
        assert math.isnan(errors[key]) == math.isnan(values[key]), key
    assert math.isnan(errors["tail_p_auc"])
    assert errors["tail_p_mrr"] == 0
    assert math.isnan(errors["head_p_mrr"])
