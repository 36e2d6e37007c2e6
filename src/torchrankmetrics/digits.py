"""Probabilities in digits, also where a float is 0."""

import math


def probability_text(log10: float) -> str:
    """Write 10^log10 as ``.4f`` or with an exponent of ten.

    >>> probability_text(-1), probability_text(-4.5), probability_text(-868.589), probability_text(-math.inf)
    ('0.1000', '3.16e-05', '2.58e-869', '0')
    """
    if log10 == -math.inf:
        return "0"
    if log10 >= -3:
        return f"{10**log10:.4f}"
    exponent = math.floor(log10)
    digits = f"{10 ** (log10 - exponent):.3g}"
    if digits == "10":  # 9.996 rounds up
        digits, exponent = "1", exponent + 1
    return f"{digits}e{exponent:03d}"
