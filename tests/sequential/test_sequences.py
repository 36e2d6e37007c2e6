"""Confidence sequences of finite populations, against plain loops.

Tested are every order of small populations and the coverage at every look.
"""

import math
from fractions import Fraction
from itertools import permutations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from torchrankmetrics.sequential.sequences import (
    FRACTIONS,
    Drawn,
    betting_interval,
    log_capital,
    side_of,
)

POPULATIONS = {  # values, sizes
    "hits": ([0, 1, 1, 0, 1], [1, 1, 1, 1, 1]),
    "differences": ([0.5, 0.5, 0.9, 0.1, 0.5, 0.7], [1, 1, 1, 1, 1, 1]),
    "one stands out": ([0.1, 0.1, 0.1, 0.1, 0.1, 1.0], [1, 1, 1, 1, 1, 1]),
    "queries": ([0.2, 1.0, 0.4, 0.0, 0.7], [1, 5, 2, 1, 3]),
    "a large query": ([1.0, 0.3, 0.2, 0.25, 0.4], [9, 1, 1, 1, 1]),
    "constant": ([0.5, 0.5, 0.5, 0.5], [2, 1, 1, 3]),
}


def orders(name):
    """Every order of a population and its probability: draws with the odds of the sizes."""
    values, sizes = (np.array(part, dtype=float) for part in POPULATIONS[name])
    for order in permutations(range(len(values))):
        probability, left = Fraction(1), Fraction(int(sizes.sum()))
        for i in order:
            probability *= Fraction(int(sizes[i])) / left
            left -= int(sizes[i])
        yield probability, values[list(order)], sizes[list(order)]


def mean_of(name):
    values, sizes = map(np.array, POPULATIONS[name])
    return float((values * sizes).sum() / sizes.sum())


def capital_by_hand(values, sizes, total, mean):
    """The bets on a larger mean, in a plain loop."""
    capitals, seen, left, after = [1.0] * len(FRACTIONS), 0.0, total, []
    for x, size in zip(values, sizes, strict=True):
        expected = (total * mean - seen) / left
        if expected < -1e-9:
            capitals = [math.inf] * len(capitals)
        capitals = [
            c * (1 + f * (x / max(expected, 1e-9) - 1))
            for c, f in zip(capitals, FRACTIONS, strict=True)
        ]
        after.append(sum(capitals) / len(capitals))
        seen, left = seen + size * x, left - size
    return after


@pytest.mark.parametrize("mean", [0.2, 0.5, 0.9])
def test_capital_is_that_of_a_plain_loop_on_both_sides(mean):
    rng = np.random.default_rng(0)
    values, sizes = rng.random(30), rng.integers(1, 5, 30).astype(float)
    total = float(sizes.sum()) + 7
    part = Drawn(values, sizes, total)
    above, below = (np.exp(log_capital(part, mean, above=above)) for above in (True, False))
    assert above == pytest.approx(capital_by_hand(values, sizes, total, mean))
    assert below == pytest.approx(capital_by_hand(1 - values, sizes, total, 1 - mean))


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("above", [True, False])
def test_capital_is_a_martingale_at_the_true_mean_over_all_orders(name, above):
    mean, expected, most = mean_of(name), 0.0, 0.0
    for probability, values, sizes in orders(name):
        capital = np.exp(log_capital(Drawn(values, sizes, float(sizes.sum())), mean, above=above))
        expected = expected + float(probability) * capital
        most = max(most, capital.max())
    assert (expected <= 1 + 1e-9).all()
    # where what is left may be known to be 0 (or 1), money is given away; elsewhere the game is
    # fair
    extreme = 0.0 if above else 1.0
    if extreme not in POPULATIONS[name][0]:
        assert expected == pytest.approx(np.ones(len(expected)))


@pytest.mark.parametrize("name", POPULATIONS)
def test_all_looks_together_are_wrong_in_no_more_than_alpha_of_all_orders(name):
    mean, alphas = mean_of(name), (0.05, 0.2, 0.5, 0.8)
    wrong = dict.fromkeys(alphas, Fraction())
    for probability, values, sizes in orders(name):
        whole = Drawn(values, sizes, float(sizes.sum()))
        for alpha in alphas:
            # it remembers every draw
            wrong[alpha] += probability * (side_of(whole, mean, alpha) != 0)
    assert all(wrong[alpha] <= alpha for alpha in alphas)


UNITS = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=30)
@given(UNITS, st.integers(0, 50), st.floats(0.01, 0.99), st.floats(0, 1), st.floats(0, 1))
def test_intervals_are_bounded_shrink_and_agree_with_sides(units, left, alpha, one, two):
    values, sizes = (np.array(part, dtype=float) for part in zip(*units, strict=True))
    total = float(sizes.sum() + left)
    for end in {len(values) // 2, len(values)}:
        part = Drawn(values[:end], sizes[:end], total)
        low, high = betting_interval(part, alpha)
        assert 0 <= low <= high <= 1
        if end:
            seen = (values[:end] * sizes[:end]).sum() / total
            assert low >= seen - 1e-7
            for mean in (one, two):
                if low + 1e-6 < mean < high - 1e-6:
                    assert side_of(part, mean, alpha) == 0
    smaller, larger = sorted((one, two))
    whole = Drawn(values, sizes, total)
    for above, sign in ((True, 1), (False, -1)):
        capitals = [log_capital(whole, mean, above=above) for mean in (smaller, larger)]
        with np.errstate(invalid="ignore"):
            assert (sign * (capitals[0] - capitals[1]) >= -1e-6).all() or np.isinf(capitals).any()


@pytest.mark.parametrize("t", range(1, 6))
@pytest.mark.parametrize("name", ["hits", "differences", "one stands out"])
def test_estimates_are_unbiased_after_any_number_of_draws_of_equal_sizes(t, name):
    found = [(float(p), Drawn(v[:t], s[:t], float(s.sum())).estimate) for p, v, s in orders(name)]
    assert sum(p * x for p, x in found) == pytest.approx(mean_of(name))


def test_the_first_draw_is_unbiased_whatever_the_sizes():
    found = sum(
        float(p) * Drawn(v[:1], s[:1], float(s.sum())).estimate for p, v, s in orders("queries")
    )
    assert found == pytest.approx(mean_of("queries"))
    assert math.isnan(Drawn(np.empty(0), np.empty(0), 3.0).estimate)
    assert betting_interval(Drawn(np.empty(0), np.empty(0), 3.0), 0.05) == (0.0, 1.0)
