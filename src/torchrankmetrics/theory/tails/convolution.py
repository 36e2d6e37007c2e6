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
_DROPPED = 1e-6  # tilted mass that may be dropped in all
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


def log_tail_by_convolution(law: SumLaw, s: float, t0: float) -> float | None:
    """Log P(S >= s) by convolution, right to 1e-3 at the very least; None where the atoms are too many.

    Args:
        law: the law of S.
        s: an observed value, a little below an atom that is to count.
        t0: tilt, 0 <= t0; best where K'(t0) = s.
    """
    groups = law.atoms(_MOST_POINTS)
    if groups is None:
        return None
    short = law.highest - s
    tilted = [_tilt(group, t0, short) for group in groups]
    if _expected_atoms(groups, tilted) > 30 * _MOST_ATOMS:
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
    if sum(half.dropped for half in halves) > 1e-3 * math.exp(min(log_tail, 0.0)):
        return None
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
    if len(a.mass) * len(b.mass) > _MOST_PAIRS:
        raise _TooManyAtomsError
    shortfall = np.add.outer(a.shortfall, b.shortfall).ravel()
    mass = np.multiply.outer(a.mass, b.mass).ravel()
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


def _log_tail_of_pairs(a: _Partial, b: _Partial, short: float, t0: float) -> float:
    """Log of the sum of the masses times exp(-t0 (short - x - y)) over the pairs with x + y <= short."""
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(a.mass) + t0 * (a.shortfall - short), np.log(b.mass) + t0 * b.shortfall
    log_sum = np.append(-np.inf, np.logaddexp.accumulate(log_b))
    log_terms = log_a + log_sum[np.searchsorted(b.shortfall, short - a.shortfall, side="right")]
    largest = float(log_terms.max())
    return largest + math.log(float(np.exp(log_terms - largest).sum())) if largest > -math.inf else largest
