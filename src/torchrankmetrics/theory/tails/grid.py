"""P(S >= s) on a lattice too fine for a line: the whole tilted law by fast Fourier transforms."""

import math

import numpy as np
from scipy import fft

from torchrankmetrics.theory.tails.inversion import alias_period
from torchrankmetrics.theory.tails.laws import SumLaw

_MOST_SUPPORT = 1 << 18
_MOST_WORK = 1 << 23  # points of the lattice times laws of one summand


def log_tail_on_grid(law: SumLaw, s: float, t0: float) -> float | None:
    """Log P(S >= s) for a point s of the lattice, to ten digits; None where the lattice is too fine or not known.

    Under the tilt t0 S stays near s: it is wrapped to a period, which adds less than exp(-32) of the result.
    """
    if law.span is None:
        return None
    points = alias_period(law, s, t0) / law.span + 2
    if points > _MOST_WORK:
        return None
    groups = law.atoms(_MOST_SUPPORT)
    if groups is None or points * len(groups) > _MOST_WORK:
        return None
    size = fft.next_fast_len(math.ceil(points), real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    log_factor = 0.0
    for group in groups:
        mass = group.probability * np.exp(-t0 * group.shortfall)
        total = float(mass.sum())
        log_factor += group.count * math.log(total)
        place = np.rint(group.shortfall / law.span).astype(np.int64) % size
        spectrum *= fft.rfft(np.bincount(place, mass / total, size)) ** group.count
    tilted = np.maximum(fft.irfft(spectrum, size), 0.0)
    short = round((law.highest - s) / law.span)
    beyond = np.arange(size)
    tail = float((tilted[(short - beyond) % size] * np.exp(-t0 * law.span * beyond)).sum())
    return min(0.0, log_factor + t0 * short * law.span + math.log(tail))
