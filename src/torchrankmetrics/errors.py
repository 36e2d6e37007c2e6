"""The warnings of the package: one category, so that a user can silence or escalate them."""


class RankMetricWarning(UserWarning):
    """A number is undefined or rests on damaged input (NaN scores, repeats that differ), or Numba cannot be used."""
