"""Tails of sums by a Fourier transform, simulation or the saddlepoint formula."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.null.tails.fourier import (
    ROUGHNESS,
    lattice_step,
    log_of_rest,
    on_grid,
    on_lattice,
)
from torchrankmetrics.null.tails.lists import Values
from torchrankmetrics.null.tails.simulation import (
    listed_tail,
    num_draws,
    num_outcomes,
    simulated_tail,
)
from torchrankmetrics.null.tails.summands import Cumulants, Summands

# correction and number of summands from which on the formula is used; of 1,200 sums with p > 1e-12
# all were within 1%
_NEGLIGIBLE = 0.01
_MANY = 32
_LOWEST = 7.0  # frequency at which the transform of a normal distribution is 2e-11
_MOST_OUTCOMES = 1 << 18  # that are listed
_CENTRAL = 0.25  # |w| up to which Edgeworth's series is used


class Tail(NamedTuple):
    """Log of a probability, and its relative error: standard error or size of a neglected term."""

    log_p: float
    error: float


@np.errstate(all="ignore")
def log_upper_tail(
    values: Values,
    which: IntArray,
    v: FloatArray,
    c: FloatArray,
    s: float,
    slack: float,
) -> Tail:
    """Log P(S >= s) for groups of c summands v x; sums within ``slack`` below s reach it."""
    varies = values.best[which] > values.worst[which]
    s -= float(c[~varies] @ (v[~varies] * values.best[which[~varies]]))
    which = which[varies]
    v = v[varies]
    c = c[varies]
    top, bottom = (float(c @ (v * end[which])) for end in (values.best, values.worst))
    if s <= bottom + slack:
        return Tail(0.0, 0.0)
    if s > top + slack:
        return Tail(-math.inf, 0.0)
    step, misfit = lattice_step(values, which, v, c)
    slack = max(slack, misfit)
    if s >= top - slack:
        return Tail(_log_all_best(values, which, c), 0.0)
    if step:  # halfway between two multiples of the step from the top
        s = top - (math.floor((top - s + slack) / step) + 0.5) * step
        return _tail(Summands(values, which, v, c), s, step)
    return _tail(Summands(values, which, v, c), s - slack, None)


def _log_all_best(values: Values, which: IntArray, c: FloatArray) -> float:
    """Logarithm of the probability that all summands have their best value."""
    used, index = np.unique(which, return_inverse=True)
    number = np.bincount(index, c)
    best = values.best[used]
    least = best - 1e-9 * np.abs(best)
    reaching = [
        int(values.num_reaching(one, least[i : i + 1])[0]) for i, one in enumerate(used.tolist())
    ]
    return float(number @ np.log(values.mass_before(used, np.array(reaching))))


def _tail(sums: Summands, s: float, step: float | None) -> Tail:
    """P(S >= s); with a step, s is halfway between two multiples of it."""
    if num_outcomes(sums) <= _MOST_OUTCOMES:
        return Tail(min(listed_tail(sums.in_single_places(), s), 0.0), 0.0)
    if step is not None:
        about = s - sums.mean
        found = on_lattice(sums, about, sums.saddlepoint(about), step)
        if found is not None:
            return Tail(min(found, 0.0), 0.0)
    # two cases: a summand reaches s alone, or none does and several together must
    log_open = sums.exclude_alone(s)
    log_alone = log_of_rest(log_open) if log_open < 0 else -math.inf
    if s > sums.largest:
        return Tail(log_alone, 0.0)
    rest = _inexact_tail(sums, s - sums.mean, step)
    log_rest = log_open + rest.log_p
    log_p = float(np.logaddexp(log_alone, log_rest))
    return Tail(min(log_p, 0.0), rest.error * math.exp(log_rest - log_p))


def _inexact_tail(sums: Summands, s: float, step: float | None) -> Tail:
    """P(S >= s) by simulation, on a grid or by the saddlepoint formula; s is about the mean."""
    t = sums.saddlepoint(s)
    cumulants = sums.cumulants(t)
    is_many = sums.num >= _MANY and cumulants.variance > 0
    is_accurate = is_many and cumulants.correction <= _NEGLIGIBLE
    if is_accurate and step is None and not sums.is_interpolated:
        is_accurate = sums.roughness(t, _LOWEST) <= ROUGHNESS
    if not is_accurate:
        found = on_grid(sums, s, t) if is_many else None
        if found is not None:
            return Tail(min(found, 0.0), ROUGHNESS)
        if num_draws(sums):
            found, error = simulated_tail(sums, s + sums.mean, t)
            if found > -math.inf:
                return Tail(min(found, 0.0), error)
    if cumulants.variance == 0:  # s is in the last cell
        return Tail(min(cumulants.log_m - t * s, 0.0), 1.0)
    log_p = _saddlepoint_formula(sums, s, t, cumulants, step)
    return Tail(log_p, cumulants.correction**2 if is_accurate else cumulants.correction)


def _saddlepoint_formula(
    sums: Summands, s: float, t: float, at_t: Cumulants, step: float | None
) -> float:
    """The formula of Lugannani and Rice 1980, with the second term of Daniels 1987."""
    w = math.copysign(math.sqrt(max(2 * (t * s - at_t.log_m), 0.0)), t)
    if abs(w) < _CENTRAL:
        return _edgeworth(sums, s)
    if w < -30:
        return 0.0
    u = t * at_t.deviation
    if step is not None:
        u *= math.sinh(min(t * step / 2, 300.0)) / (t * step / 2)
    log_density = -w * w / 2 - math.log(math.sqrt(2 * math.pi))
    second = at_t.second_term / u - 1 / u**3 - at_t.skewness / (2 * u * u) + 1 / w**3
    if w < 0:
        above = math.exp(float(log_ndtr(-w))) + math.exp(log_density) * (1 / u - 1 / w + second)
        return math.log(min(max(above, 1e-300), 1.0))
    ratio = math.exp(float(log_ndtr(-w)) - log_density) + 1 / u - 1 / w + second
    if ratio <= 0:
        ratio = 1 / u
    return min(log_density + math.log(ratio), 0.0)


def _edgeworth(sums: Summands, s: float) -> float:
    """Edgeworth's series near the mean, where the saddlepoint formula loses digits."""
    found = sums.cumulants(0.0)
    z = s / found.deviation
    skewness = found.skewness
    kurtosis = found.kurtosis
    series = skewness / 6 * (z * z - 1) + kurtosis / 24 * (z**3 - 3 * z)
    series += skewness**2 / 72 * (z**5 - 10 * z**3 + 15 * z)
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    tail = math.exp(float(log_ndtr(-z))) + density * series
    return math.log(min(max(tail, 1e-300), 1.0))
