"""P(S >= s) from the atoms of S themselves, where they are few: few tasks, few values, or a value close to the best.

A summand falls short of its best value by D >= 0, and S >= s says that the shortfalls add up to at most highest - s:
no partial sum beyond that need be kept. The summands are tilted towards s, P~(D) ~ P(D) exp(-t0 D), so that what
matters has mass of order one and the rest can be dropped with a bound on the error. Two halves of the sum are convolved
task by task, equal sums merged, and the tail is read off the two sorted halves.
"""

import math
from dataclasses import dataclass

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.tails.laws import Atoms, SumLaw

_MOST_POINTS = 1 << 18  # in the supports of all summands together
_MOST_ATOMS = 1 << 18  # in either half of the sum
_MOST_PAIRS = 1 << 22  # formed at once
_MANY = 1 << 14  # atoms, from where on those of negligible mass are dropped
_DROPPED = 1e-9  # tilted mass that may be dropped in all
_LEAST_ACCURACY = 1e-6  # of a tail, beside the mass that was dropped
_EQUAL = 1e-13  # sums whose relative distance is smaller are one atom
_ONE_BY_ONE = 64  # tasks that are convolved one after the other; more are squared


@dataclass(frozen=True)
class _Partial:
    """Sums of some of the shortfalls, ascending, their tilted mass, and a bound on the mass that was dropped."""

    shortfall: FloatArray
    mass: FloatArray
    dropped: float = 0.0


class _TooManyAtomsError(Exception):
    pass


def log_tail_by_convolution(law: SumLaw, s: float, t0: float, most: int | None = None) -> float | None:
    """Log P(S >= s) by convolution, no less and at most 1e-6 more; None where the atoms are too many.

    Args:
        law: the law of S.
        s: an observed value, a little below an atom that is to count.
        t0: tilt, 0 <= t0; best where K'(t0) = s.
        most: atoms in a half of the sum, by an estimate; None: as many as there is room for.
    """
    groups = law.atoms(_MOST_POINTS)
    if groups is None:
        return None
    short = law.highest - s
    tilted = [_tilt(group, t0, short) for group in groups]
    if _expected_atoms(groups, tilted) > (30 * _MOST_ATOMS if most is None else most):
        return None
    negligible = _DROPPED / sum(group.count for group in groups)
    halves = [_Partial(np.zeros(1), np.ones(1)), _Partial(np.zeros(1), np.ones(1))]
    try:
        for group, (base, _) in zip(groups, tilted, strict=True):
            smaller = int(len(halves[1].mass) < len(halves[0].mass))
            for side in (0, 1):
                tasks = (group.count + (side == smaller)) // 2
                halves[side] = _add(halves[side], base, tasks, short, negligible)
    except _TooManyAtomsError:
        return None
    log_tail = _log_tail_of_pairs(halves[0], halves[1], short, t0)
    # what was dropped weighs no more than the same mass at s itself
    dropped = sum(half.dropped for half in halves)
    if dropped > _LEAST_ACCURACY * math.exp(min(log_tail, 0.0)):
        return None
    if dropped > 0:
        log_tail = float(np.logaddexp(log_tail, math.log(dropped)))
    log_factors = sum(group.count * log_factor for group, (_, log_factor) in zip(groups, tilted, strict=True))
    return min(0.0, log_tail + log_factors + t0 * short)


def _tilt(group: Atoms, t0: float, short: float) -> tuple[_Partial, float]:
    """Tilted probabilities of one shortfall, up to ``short``, and log E exp(-t0 D)."""
    mass = group.probability * np.exp(-t0 * group.shortfall)
    total = float(mass.sum())
    near = group.shortfall <= short
    return _Partial(group.shortfall[near], mass[near] / total), math.log(total)


def _expected_atoms(groups: list[Atoms], tilted: list[tuple[_Partial, float]]) -> float:
    """About how many atoms a half of the sum has: multisets in all, or those of tilted mass if these are fewer."""
    log_all = log_likely = 0.0
    for group, (base, _) in zip(groups, tilted, strict=True):
        half, kinds = group.count / 2, len(base.mass)
        log_all += math.lgamma(half + kinds) - math.lgamma(half + 1) - math.lgamma(kinds)
        log_likely += float(np.log1p(6 * np.sqrt(half * np.sort(base.mass)[:-1])).sum())
    return math.exp(min(log_all, log_likely, 700.0))


def _add(half: _Partial, base: _Partial, count: int, short: float, negligible: float) -> _Partial:
    """Convolve ``count`` more tasks into a half."""
    if count <= _ONE_BY_ONE:
        for _ in range(count):
            half = _convolve(half, base, short, negligible)
        return half
    while count:
        if count & 1:
            half = _convolve(half, base, short, negligible)
        count >>= 1
        if count:
            base = _convolve(base, base, short, negligible)
    return half


def _convolve(a: _Partial, b: _Partial, short: float, negligible: float) -> _Partial:
    if len(a.mass) * len(b.mass) <= _MOST_PAIRS:
        shortfall = np.add.outer(a.shortfall, b.shortfall).ravel()
        mass = np.multiply.outer(a.mass, b.mass).ravel()
    else:
        shortfall, mass = _near_pairs(a, b, short)
    kept = shortfall <= short
    dropped = a.dropped + b.dropped
    if len(mass) > _MANY:
        small = mass < negligible / len(mass)
        dropped += float(mass[small & kept].sum())
        kept &= ~small
    shortfall, mass = shortfall[kept], mass[kept]
    if not len(mass):
        return _Partial(np.zeros(1), np.zeros(1), dropped)
    order = np.argsort(shortfall, kind="stable")
    shortfall, mass = shortfall[order], mass[order]
    first = np.flatnonzero(np.r_[True, np.diff(shortfall) > _EQUAL * shortfall[1:]])
    if len(first) > _MOST_ATOMS:
        raise _TooManyAtomsError
    return _Partial(shortfall[first], np.add.reduceat(mass, first), dropped)


def _near_pairs(a: _Partial, b: _Partial, short: float) -> tuple[FloatArray, FloatArray]:
    """Sums and masses of the pairs that fall short by no more than ``short``, where all pairs are too many."""
    partners = np.searchsorted(b.shortfall, short - a.shortfall, side="right")
    total = int(partners.sum())
    if total > _MOST_PAIRS:
        raise _TooManyAtomsError
    left = np.repeat(np.arange(len(a.mass)), partners)
    right = np.arange(total) - np.repeat(np.cumsum(partners) - partners, partners)
    return a.shortfall[left] + b.shortfall[right], a.mass[left] * b.mass[right]


def _log_tail_of_pairs(a: _Partial, b: _Partial, short: float, t0: float) -> float:
    """Log of the sum of the masses times exp(-t0 (short - x - y)) over the pairs with x + y <= short."""
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(a.mass) + t0 * (a.shortfall - short), np.log(b.mass) + t0 * b.shortfall
    log_sum = np.append(-np.inf, np.logaddexp.accumulate(log_b))
    log_terms = log_a + log_sum[np.searchsorted(b.shortfall, short - a.shortfall, side="right")]
    largest = float(log_terms.max())
    return largest + math.log(float(np.exp(log_terms - largest).sum())) if largest > -math.inf else largest
