"""P(S >= s) from the atoms of S themselves, where they are few: few tasks, few values, or a value close to the best.

The summands are tilted towards s, P~(x) ~ P(x) exp(t0 x), so that what matters has mass of order one and the rest can
be dropped with a bound on the error. Two halves of the sum are convolved task by task, equal sums merged, and the tail
is read off the two sorted halves.
"""

import math

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.tails.laws import Atoms, SumLaw

_MOST_POINTS = 1 << 18  # in the supports of all summands together
_MOST_ATOMS = 1 << 18  # in either half of the sum
_MOST_PAIRS = 1 << 22  # formed at once
_DROPPED = 1e-6  # tilted mass that may be lost in all, where there are many atoms
_MANY = 1 << 14
_EQUAL = 1e-13  # sums whose relative distance is smaller are one atom
_ONE_BY_ONE = 64  # tasks that are convolved one after the other; more are squared

Half = tuple[FloatArray, FloatArray]  # values, ascending, and their tilted mass


def log_upper_tail_of_atoms(law: SumLaw, s: float, t0: float) -> float | None:
    """Log P(S >= s) by convolution, right to about 1e-4; None where the atoms are too many.

    Args:
        law: the law of S.
        s: an observed value, a little below an atom that is to count.
        t0: tilt, 0 <= t0; best where K'(t0) = s.
    """
    groups = law.atoms(_MOST_POINTS)
    if groups is None:
        return None
    tilted = [_tilt(group, t0) for group in groups]
    if _expected_atoms(groups, tilted) > 30 * _MOST_ATOMS:
        return None
    allowed = _DROPPED / sum(group.count for group in groups)
    halves: list[Half] = [(np.zeros(1), np.ones(1)), (np.zeros(1), np.ones(1))]
    for group, (probability, _) in zip(groups, tilted, strict=True):
        base = group.values, probability
        smaller = int(len(halves[1][0]) < len(halves[0][0]))
        for side in (0, 1):
            tasks = (group.count + (side == smaller)) // 2
            grown = _add(halves[side], base, tasks, allowed)
            if grown is None:
                return None
            halves[side] = grown
    lost = sum(1 - float(mass.sum()) for _, mass in halves)
    log_scale = sum(group.count * log_factor for group, (_, log_factor) in zip(groups, tilted, strict=True))
    constant = law.highest - sum(group.count * float(group.values[-1]) for group in groups)
    log_tail = _log_tail_of_pairs(halves[0], halves[1], s - constant, t0)
    # what was dropped can weigh no more than an atom at s itself
    if log_tail == -math.inf or lost > 1e-3 * math.exp(min(log_tail, 0.0)):
        return None
    return min(0.0, log_tail + log_scale - t0 * (s - constant))


def _tilt(group: Atoms, t0: float) -> tuple[FloatArray, float]:
    """Tilted probabilities of one summand and the log of its moment generating function at t0."""
    top = t0 * float(group.values.max())
    mass = group.probability * np.exp(t0 * group.values - top)
    total = float(mass.sum())
    return mass / total, top + math.log(total)


def _expected_atoms(groups: list[Atoms], tilted: list[tuple[FloatArray, float]]) -> float:
    """About how many atoms a half of the sum has: multisets in all, or those of tilted mass if these are fewer."""
    log_all = log_likely = 0.0
    for group, (probability, _) in zip(groups, tilted, strict=True):
        half, kinds = group.count / 2, len(probability)
        log_all += math.lgamma(half + kinds) - math.lgamma(half + 1) - math.lgamma(kinds)
        log_likely += float(np.log1p(6 * np.sqrt(half * np.sort(probability)[:-1])).sum())
    return math.exp(min(log_all, log_likely, 700.0))


def _add(half: Half, base: Half, count: int, allowed: float) -> Half | None:
    """Convolve ``count`` more tasks into a half; None if it gets too large."""
    if count > _ONE_BY_ONE:
        power: Half | None = base
        result: Half | None = half
        remaining = count
        while remaining and power is not None and result is not None:
            if remaining & 1:
                result = _convolve(result, power, allowed)
            remaining >>= 1
            power = _convolve(power, power, allowed) if remaining else power
        return result if power is not None else None
    for _ in range(count):
        grown = _convolve(half, base, allowed)
        if grown is None:
            return None
        half = grown
    return half


def _convolve(a: Half, b: Half, allowed: float) -> Half | None:
    if len(a[0]) * len(b[0]) > _MOST_PAIRS:
        return None
    values = np.add.outer(a[0], b[0]).ravel()
    mass = np.multiply.outer(a[1], b[1]).ravel()
    if len(mass) > _MANY:
        kept = mass >= allowed / len(mass)
        values, mass = values[kept], mass[kept]
    order = np.argsort(values, kind="stable")
    values, mass = values[order], mass[order]
    first = np.flatnonzero(np.r_[True, np.diff(values) > _EQUAL * np.abs(values[1:])])
    if len(first) > _MOST_ATOMS:
        return None
    return values[first], np.add.reduceat(mass, first)


def _log_tail_of_pairs(a: Half, b: Half, s: float, t0: float) -> float:
    """Log of the sum of a b exp(-t0 (x + y - s)) over the pairs with x + y >= s."""
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(a[1]) - t0 * (a[0] - a[0][-1]), np.log(b[1]) - t0 * (b[0] - b[0][-1])
    log_suffix = np.append(np.logaddexp.accumulate(log_b[::-1])[::-1], -np.inf)
    log_terms = log_a + log_suffix[np.searchsorted(b[0], s - a[0])]
    largest = float(log_terms.max())
    if largest == -math.inf:
        return -math.inf
    return largest + math.log(float(np.exp(log_terms - largest).sum())) - t0 * float(a[0][-1] + b[0][-1] - s)
