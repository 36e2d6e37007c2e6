"""The warnings of the package: one category, so that a user can silence or escalate them; told once per job."""

import warnings

from torch import distributed


class RankMetricWarning(UserWarning):
    """Told when a number is undefined or rests on damaged input.

    Such are NaN scores, repeats that differ, sample ids that repeat within one update, and a Numba that cannot be used.
    Where a process group is initialised, its first process alone tells it.
    """


def warn(message: str) -> None:
    """Give a ``RankMetricWarning`` to the caller of the function that calls this."""
    if is_told_here():
        warnings.warn(message, RankMetricWarning, stacklevel=3)


def is_told_here() -> bool:
    """Whether this process speaks for its job: the first of the process group, or one without a group."""
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0
