"""Bisection over integers."""

from collections.abc import Callable


def first_integer(low: int, high: int, condition: Callable[[int], bool]) -> int:
    """Smallest integer in [low, high] that fulfils a monotone condition; ``high`` is taken to, and not asked.

    >>> first_integer(0, 100, lambda x: x * x >= 50)
    8
    """
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if condition(middle) else (middle + 1, high)
    return low
