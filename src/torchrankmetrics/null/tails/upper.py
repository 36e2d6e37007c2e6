"""log P(S >= s): narrow the ranges of few summands, tilt to the saddlepoint, then sum atoms or a Fourier series."""

import math

import numpy as np
from scipy.special import gammaln, i0e

from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.null.tails.summands import Summands
from torchrankmetrics.null.tails.transform import Transform

Bracket = tuple[float, float]  # lower and upper end
_GOAL = 1e-3  # relative error of p
_LISTED = 20  # summands whose sums are listed before the series of a lattice is tried
_PAIRS, _MERGED = 1 << 20, 1 << 17  # sums that are listed, and those that are sorted
_MOST_LISTED, _MOST_VALUES = 512, 1 << 17  # summands and values whose sums are listed
_MOST_TERMS, _WORK = 1 << 14, 1 << 17  # of a series: frequencies, and those of all groups
# highest frequencies that matter little; error of a transform, or because of higher ones
_LAST, _DOUBTED = 3e-8, 1e-5
# relative error of a series on a lattice, for each task, of others
_ROUNDING, _KERNEL, _DENSITY = 1e-10, 5e-12, 3e-6


@np.errstate(all="ignore")
def log_upper_tail(sums: Summands, s: float, slack: float) -> Bracket:
    """Lower and upper end of log P(S >= s); an atom of S within ``slack`` below s counts as reached."""
    low, high = -math.inf, 0.0
    if s <= sums.transform.cumulants(0.0)[1]:  # P(S >= s) = 1 - P(-S > -s) loses no digits
        negated = Summands(sums.f, -sums.sign, sums.low, sums.N, sums.v, sums.c)
        high, low = np.log(-np.expm1(_log_tail(negated, -s, -slack)))
    if not high - low <= _GOAL:
        ends = _log_tail(sums, s, slack)
        # NaN: overflow
        low, high = np.fmax.reduce([-math.inf, low, ends[0]]), np.fmin.reduce([0.0, high, ends[1]])
    return min(float(low), 0.0), min(float(high), 0.0)


def _on_lattice(sums: Summands, s: float, slack: float) -> tuple[float | None, float, float]:
    """Step of the lattice of S, a part of the least distance of values; s on the lattice; slack for its rounding."""
    steps = np.unique(sums.distances())
    steps, parts = steps[steps > 0], np.arange(1, 5001)
    for ratio in (steps / steps[:1]).tolist():
        parts = parts[np.abs(ratio * parts - np.rint(ratio * parts)) < 1e-6]
    if not len(steps) or not len(parts) or not math.isfinite(s):
        return None, s, slack
    # rounding of the largest distance matters least
    span = float(steps[-1] / np.rint(steps[-1] / steps[0] * parts[0]))
    # of S
    misfit = float(
        np.abs(steps - span * np.rint(steps / span)).max() * (sums.width * sums.c).sum() / steps[0]
    )
    if misfit > span / 4:
        return None, s, slack
    sign, slack = math.copysign(1, slack), min(max(abs(slack), 1e-4 * span, misfit), span / 4)
    return span, sums.top - math.floor((sums.top - s + sign * slack) / span) * span, slack


def _log_tail(sums: Summands, s: float, slack: float) -> Bracket:
    """Ends of log P(S >= s) for s above the mean; values within ``slack`` below s count as reached."""
    span, s, slack = _on_lattice(sums, s, slack)
    log_reached, log_open, rest = sums.narrowed(s, slack)
    if log_open == -math.inf or s > rest.top + slack:
        return log_reached, log_reached
    if rest is not sums and not span:
        span, s, slack = _on_lattice(rest, s, slack)
    ends: Bracket | None = (0.0, 0.0)
    if s > rest.bottom + slack:
        t, exact = rest.transform.saddlepoint(s if span else s - slack, rest.bottom)
        ends = None if span and rest.num > _LISTED else _by_atoms(rest, rest.top - s + slack, t)
        if not ends and exact is not None and exact[2] > 0:
            ends = _series(rest, s, slack, t, span, exact)
    low, high = (
        float(np.logaddexp(log_reached, log_open + end)) for end in ends or (-math.inf, 0.0)
    )
    return low, high


def _by_atoms(sums: Summands, short: float, t: float) -> Bracket | None:
    """All sums up to ``short`` from the top, in two halves and the list of most values; None if they are too many."""
    if sums.num > _MOST_LISTED or sums.num_listed > _MOST_VALUES:
        return None
    lists, log_mass, several = [], 0.0, 0
    for group, c in enumerate(sums.c.astype(np.int64).tolist()):
        d, mass = sums.atoms(group)
        q = mass * np.exp(-t * d)
        log_mass += c * math.log(q.sum() / mass.sum())
        lists += [_merged(d, q / q.sum(), short)] * c
        several += len(lists[-1][0]) > 1
        if several > _LISTED:  # their sums are too many
            return None
    *lists, longest = sorted(lists, key=lambda one: len(one[0]))
    a = b = np.zeros(1), np.ones(1)
    for d, q in reversed(lists):
        a, b = sorted((a, b), key=lambda one: len(one[0]))
        if len(a[0]) * len(d) > _MERGED:
            return None
        a = _merged(np.add.outer(a[0], d).ravel(), np.multiply.outer(a[1], q).ravel(), short)
    a, b, longest = sorted((a, b, longest), key=lambda one: len(one[0]))
    if len(a[0]) * len(b[0]) > _PAIRS:
        return None
    d, q = np.add.outer(a[0], b[0]).ravel(), np.multiply.outer(a[1], b[1]).ravel()
    reach = np.r_[-np.inf, np.logaddexp.accumulate(np.log(longest[1]) + t * longest[0])]
    tail = (
        q * np.exp(t * (d - short) + reach[np.searchsorted(longest[0], short - d, side="right")])
    ).sum()
    log_p = log_mass + t * short + np.log(tail)
    return (log_p, log_p) if math.isfinite(log_p) else None  # tilted masses may underflow


def _merged(x: FloatArray, mass: FloatArray, most: float) -> tuple[FloatArray, FloatArray]:
    """Ascending values up to the given one, those equal up to rounding as one, with their masses."""
    order = np.argsort(x, kind="stable")[: np.count_nonzero(x <= most)]
    x, mass = x[order], mass[order]
    first = np.flatnonzero(np.diff(x, prepend=-np.inf) > 1e-13 * np.abs(x))
    return x[first], np.add.reduceat(mass, first)


def _series(
    sums: Summands, s: float, slack: float, t: float, span: float | None, exact: FloatArray
) -> Bracket:
    """Fourier series of the tilted distribution in a window that has all but exp(-30) of its mass.

    The series of a lattice is finite. The series of a density is complete when the transform has
    decayed. Else it is cut off: then the step at s is replaced by the best functions above and
    below it that need only these frequencies (Graham and Vaaler 1981,
    doi:10.1090/S0002-9947-1981-0607121-1). ``exact`` has the cumulants at t.
    """
    transform, places = sums.transform, len(sums.transform.c)
    sides = np.array([[-1.0, -5.0], [1.0, 5.0]]) / math.sqrt(exact[2])
    # Chernoff
    lows, highs = (
        [(transform.cumulants(t + u)[0] - exact[0] + 30) / u for u in side] for side in sides
    )
    low, high = max(sums.bottom, *lows), min(sums.top, *highs)
    high += 0.02 * (high - low)  # away from the largest sum
    # transforms of few atoms decay slowly
    work = _WORK * (1 if sums.num <= 100 else 20 if transform.is_listed else 12)
    most = number = min(_MOST_TERMS, max(work // places, 128))
    length, middle = high - low, s - (span / 2 if span else slack)
    if span:  # an odd number of points of the lattice, whose coefficients determine all
        number = math.ceil(length / span / 2)
        length, high = span * (2 * number + 1), s + span * math.floor((high - s) / span + 0.5)
    if span and number >= most:
        return _series(sums, middle, 0.0, t, None, exact)
    s, step, tiny = s if span else middle, 2 * math.pi / length, 0.1 * _ROUNDING
    on_grid, unseen, last, seen = (
        bool(span) and transform.is_listed and not transform.doubt.any(),
        0.0,
        0,
        0,
    )
    # few frequencies take less time, or little less if atoms are many
    size = (
        number if on_grid else min(191 if number * places <= 8 * len(transform.x) else 47, number)
    )
    while True:
        theta = step * np.arange(size + 1)
        logs, doubt = transform.log_transform(t, step, size + 1, on_grid=on_grid)
        phi = np.exp(logs - 1j * theta * s)
        errors = np.abs(phi) * np.expm1(np.minimum(np.abs(doubt), 30.0))
        if (errors > _DOUBTED).any():  # no frequencies at which interpolation fails
            number = int(np.argmax(errors > _DOUBTED)) - 1
            phi, errors = phi[: number + 1], errors[: number + 1]
        z = t + 1j * theta[: len(phi)]
        weights = phi * np.where(z.imag == 0, 1, 2) / length
        beyond = np.exp(-z * (high - s + (span or 0.0)))
        inside = weights * -np.expm1(-z * (high - s + (span or 0.0)))
        end = float(np.abs(phi[-8:]).max())
        decayed = end < (tiny if span else _LAST) and not (span and size == number)
        if decayed:
            unseen = 4 * end + math.sqrt(_square_beyond(transform, t, float(theta[-1])) / len(phi))
            decayed, far = unseen < (tiny if span else _DOUBTED), min(number, 16 * size)
            if decayed and max(seen, size) < far and not transform.doubt.any():
                seen = far
                # the last of the seen frequencies at which the transform may be large, as it is
                # near a lattice
                large = np.argsort(-sums.c * sums.width**2)[: 8 + len(sums.c) // 16]
                part = Summands(
                    sums.f, sums.sign, sums.low[large], sums.N[large], sums.v[large], sums.c[large]
                )
                gone = part.transform.log_transform(t, step, seen + 1)[0].real < (
                    -25 if span else -14
                )
                last = int((np.arange(seen + 1) * ~gone).max())
            decayed &= last <= size
        if span or decayed:
            upper = lower = float(
                (inside * (span / -np.expm1(-z * span) if span else 1 / z)).real.sum()
            )
        else:
            wide, rest = length / len(z), 1 - np.arange(len(z)) / len(z)
            # 1 / expm1(z wide), which may overflow
            inverse = -np.exp(-z * wide) / np.expm1(-z * wide)
            above = rest / -np.expm1(-z * wide) - t * wide * (inverse - inverse[0]) / (2j * math.pi)
            upper = wide * float((inside * above + weights * beyond * rest).real.sum())
            lower = wide * float((inside * above - weights * rest).real.sum())
        if decayed or len(phi) > number or (not span and lower <= upper < (1 + _GOAL / 4) * lower):
            break
        following, limit = (1.1 * last, number / 1.2) if last > size else (4 * size, number / 2)
        size = int(following) if following < limit else number
    if span and not (decayed or on_grid):  # cells are not on the lattice
        return _series(sums, middle, 0.0, t, None, exact)
    error = float(exact[3]) + (_ROUNDING + (not on_grid) * _KERNEL * sums.num if span else _DENSITY)
    tiny += 2 / length * float((errors / np.abs(z)).sum()) + (
        unseen if decayed and len(phi) <= number else 0.0
    )
    low, high = (
        float(exact[0]) - t * s + math.log(max(end, 1e-300)) for end in (lower - tiny, upper + tiny)
    )
    return low - error, high + error


def _square_beyond(transform: Transform, t: float, least: float) -> float:
    """Mean of the squares of the transform at high frequencies: about the probability that two draws of S are equal.

    They are if each value of each weight is drawn equally often: for n draws of values with
    probabilities q this has at most the probability sum of q^2, and about that of Poisson numbers
    given their sum. Sums of few weights are equal more often, as 1/2 = 1/3 + 1/6 (hence the power).
    """
    e, weight = (
        transform.mass * np.exp(t * transform.x),
        np.unique(transform.v, return_inverse=True)[1],
    )
    total = np.add.reduceat(e, transform.starts)
    transform.along_rows(total)
    drawn = np.maximum(transform.c, 0.0) / total
    # groups have the atoms of those before them, too
    for row in np.split(drawn, transform.rows[1:]):
        row[:] = row[::-1].cumsum()[::-1]
    unit, x = weight[transform.group], transform.x + transform.best[transform.group]
    order = np.lexsort((x, unit))
    x, number, unit = x[order], (e * drawn[transform.group])[order], unit[order]
    new_unit = np.diff(unit, prepend=-1) != 0
    # equal values are one
    values = np.flatnonzero(new_unit | (np.diff(x, prepend=-np.inf) > 1e-12 * np.abs(x)))
    starts = np.flatnonzero(new_unit[values])
    number = np.add.reduceat(number, values)
    n, width = np.add.reduceat(number, starts) + 1e-99, np.zeros(len(starts))
    np.maximum.at(width, weight, transform.width)
    # units whose phases turn when those of the largest do, or have turned already; the others have
    # not
    large = int(np.argmax(n * width**2))
    active = width >= min(2 * math.pi / least, width[large] / 2)
    turned = (
        number / n[unit[values]] * np.exp(1j * max(least, 2 * math.pi / width[large]) * x[values])
    )
    damped = (n * np.log(np.abs(np.add.reduceat(turned, starts)) + 1e-99))[~active].sum()
    number *= transform.apart[order[values]] == 0  # two draws from a cell of several values differ
    listed = np.add.reduceat(number, starts) + 1e-99
    q = number / listed[unit[values]]
    square, y = np.add.reduceat(q * q, starts) + 1e-99, 2 * n[unit[values]] * q
    logs = np.add.reduceat(np.log(i0e(y)) + y, starts) - 2 * n - np.log(i0e(2 * n))
    logs = np.minimum.reduce(
        [np.minimum(n, 1) * np.log(square), n * np.log(square) + gammaln(n + 1), logs]
    )[active]
    damped += (n * np.log(listed / n))[active].sum()
    return math.exp(min(2 * damped + logs.sum() * (1.0 if len(logs) > 32 else 0.4), 0.0))
