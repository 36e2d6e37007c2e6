"""The warnings of the package: one category, to silence or escalate, told once per job; and keywords by old names."""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


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
    distributed: Any = sys.modules.get("torch.distributed")  # who has not imported it is in no process group
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return True
    return bool(distributed.get_rank() == 0)


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Take keywords by their old names too, ``renamed(old="new")``, with a ``FutureWarning`` that names the new one."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                if new in kwargs:
                    raise TypeError(f"{function.__qualname__}() got {new}= and {old}=, its name up to 0.1; pass {new}=")
                message = f"{function.__qualname__}({old}=...) is deprecated and goes with 0.3: pass {new}="
                if is_told_here():
                    warnings.warn(message, FutureWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called

    return decorate
