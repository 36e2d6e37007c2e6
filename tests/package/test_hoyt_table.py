"""Hoyt et al. 2022 (arXiv 2203.07544), table 1: desired properties of metrics, tested by numbers.

Read in each metric's own direction, so that MR can be monotone too:
- fixed optimum: all ranks 1 give the same value whatever the numbers of candidates;
- asymptotic pessimum: all ranks last give a value that tends to a finite limit as the numbers of
  candidates grow;
- strictly anti-monotone: any single rank getting larger makes the value strictly worse;
- size invariant: the value expected of random ranks does not depend on the numbers of candidates.
"""

import functools
import itertools
import math
from fractions import Fraction

import pytest
import torch

import reference
from reference import METRIC_VIEWS, METRICS
from torchrankmetrics import RankCollection, Ranks
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION

DIRECTED = [(name, view) for name, view in METRIC_VIEWS if METRICS[name].better is not None]
ids = pytest.mark.parametrize(
    ("name", "view"), DIRECTED, ids=[reference.key(*pair) for pair in DIRECTED]
)

# what a base metric does, from its formula; f(r) for one task of many is bounded as r grows, or it
# is not
BOUNDED = {"mrr", "auc", "hits_at_1", "hits_at_3", "imr", "igmr", "inverse_median_rank"}
NOT_STRICT = {"hits_at_1", "hits_at_3", "median_rank", "inverse_median_rank"}
NOT_STRICT |= {"power_mean_rank_inf", "power_mean_rank_minus_inf"}


@functools.cache
def metric(key):
    return RankCollection([key])[key]


def value(name, view, ranks, counts):
    member = metric(reference.key(name, view))
    member.reset()
    member.update(Ranks(torch.tensor(ranks), None, torch.tensor(counts)))
    return member.compute().item()


def expected_table(name, view):
    """(fixed optimum, asymptotic pessimum, strictly anti-monotone, size invariant), by argument.

    - The index maps the optimum to 1; M / E and z measure from or by E, which moves with the
      candidate counts, except that of AUC, and sqrt(V), which always does. 0 / E is 0.
    - A view of an unbounded metric divides by E or sqrt(V), which grow like N as the metric does: a
      finite limit. 1 / E of a bounded metric grows beyond all bounds, but its worst value falls
      like its E or faster.
    - The views are affine: they change neither strictness nor, with E as origin or unit, leave any
      size in it.
    """
    free = METRICS[name].by_chance is not None
    optimum = METRICS[name].value([Fraction(1)], [Fraction(1)], [2])
    return (
        view in ("base", "adjusted_index") or (view == "normalized" and (free or optimum == 0)),
        view != "base" or name in BOUNDED,
        name not in NOT_STRICT,
        view != "base" or free,
    )


def fixed_optimum(name, view):
    values = [
        value(name, view, [1, 1, 1], counts) for counts in ([2, 3, 4], [9, 2, 30], [20, 21, 22])
    ]
    return max(values) - min(values) < 1e-12


def asymptotic_pessimum(name, view):
    a, b, c = (value(name, view, [N] * 3, [N] * 3) for N in (20, 40, 80))
    # differences that shrink like a power of N add up
    return abs(c - b) <= 0.97 * abs(b - a) + 1e-3 * abs(c)


def strictly_anti_monotone(name, view):
    counts = [3, 4, 3]
    larger_is_better = view in ("adjusted_index", "z_score") or METRICS[name].better == "higher"
    sign = 1 if larger_is_better else -1
    vectors = itertools.product(*(range(1, n + 1) for n in counts))
    values = {ranks: sign * value(name, view, list(ranks), counts) for ranks in vectors}
    strict = True
    for ranks, i in itertools.product(values, range(3)):
        worse = (*ranks[:i], ranks[i] + 1, *ranks[i + 1 :])
        if worse in values:
            assert values[worse] <= values[ranks] + 1e-12  # never better, for any metric
            strict = strict and values[worse] < values[ranks] - 1e-12
    return strict


def size_invariant(name, view):
    """Mean of the view over random ranks, by enumeration of the base values."""
    means = []
    for counts in ([2, 3, 4], [4, 5, 3], [6, 2, 5]):
        vectors = list(itertools.product(*(range(1, n + 1) for n in counts)))
        base = [
            METRICS[name].value([Fraction(r) for r in v], [Fraction(1, 3)] * 3, counts)
            for v in vectors
        ]
        moments = DEFAULT_EXPECTATION.moments(parse_name(name).definition, counts)
        views = [
            reference.view(name, view, float(x), (moments.mean, moments.variance)) for x in base
        ]
        assert value(name, view, list(vectors[-1]), counts) == pytest.approx(
            views[-1], rel=1e-12, abs=1e-12
        )
        means.append(math.fsum(views) / len(views))
    return max(means) - min(means) < 1e-10


@ids
def test_properties_are_those_of_the_table(name, view):
    properties = (fixed_optimum, asymptotic_pessimum, strictly_anti_monotone, size_invariant)
    assert tuple(test(name, view) for test in properties) == expected_table(name, view)


def test_ranges_with_the_errata_of_the_paper():
    # AMRI reaches -1 exactly when every rank is last
    assert value("mr", "adjusted_index", [9, 4, 700], [9, 4, 700]) == pytest.approx(-1, abs=1e-14)
    # AMRR ends at (mean of 1 / N - E) / (1 - E), not at -E / (1 - E)
    N = [9, 4, 70]
    E = sum(sum(1 / r for r in range(1, n + 1)) / n for n in N) / 3
    want = (sum(1 / n for n in N) / 3 - E) / (1 - E)
    assert value("mrr", "adjusted_index", N, N) == pytest.approx(want, rel=1e-13)
    # AH@k: tasks with N_i <= k always hit, so the end is (m / n - E) / (1 - E)
    N = [2, 3, 8, 16]
    E = (1 + 1 + 3 / 8 + 3 / 16) / 4
    assert value("hits_at_3", "adjusted_index", N, N) == pytest.approx(
        (2 / 4 - E) / (1 - E), rel=1e-13
    )


@pytest.mark.parametrize("name", ["mr", "hmr", "gmr"])
def test_ratios_to_random_ranking_may_exceed_one(name):
    # M / E of MR, HMR and GMR may exceed 1, where section 4.1 says [0, 1)
    assert value(name, "normalized", [9, 9], [9, 9]) > 1
