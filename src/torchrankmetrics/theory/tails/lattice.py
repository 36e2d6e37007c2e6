"""The span of a lattice that holds a set of numbers, where there is one worth knowing."""

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray

_MOST_POINTS = 1e6  # of the lattice within the largest step: a finer one is as good as none
_MOST_VALUES = 64  # distinct steps
MOST_WEIGHTS = 64  # distinct weights


def common_span(steps: FloatArray) -> float | None:
    """Largest d with every step a multiple of d, by Euclid in floating point; None if there is none above max / 10^6.

    Args:
        steps: (m,) float64; signs and zeros play no part.

    >>> common_span(np.array([0.3, 0.5]))
    0.1
    """
    steps = np.unique(np.abs(steps[steps != 0]))
    if not 0 < len(steps) <= _MOST_VALUES:
        return None
    largest = float(steps[-1])
    noise = 1e-10 * largest  # Euclid multiplies the rounding of its input
    span = largest
    for step in steps[:-1].tolist():
        a, b = span, step
        while b > noise:
            rest = a % b
            a, b = b, 0.0 if b - rest < noise else rest
        span = a
        if span * _MOST_POINTS < largest:
            return None
    span = largest / round(largest / span)
    multiples = steps / span
    return span if np.abs(multiples - np.round(multiples)).max() < 1e-6 * max(1.0, multiples.max() * 1e-6) else None
