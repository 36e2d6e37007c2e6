"""`eager`: a decorator of functions that ``torch.compile`` must not trace, because they call NumPy and Numba."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function eagerly inside ``torch.compile``, with a graph break before it."""
    disabled = functools.cache(lambda: torch.compiler.disable(function))  # type: ignore[no-untyped-call]

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        chosen = disabled() if "torch._dynamo" in sys.modules else function
        return chosen(*args, **kwargs)

    called._torchdynamo_disable = True  # type: ignore[attr-defined]
    # Dynamo compiles a code object for at most 8 sets of arguments: each function has its own
    called.__code__ = called.__code__.replace()  # type: ignore[attr-defined]
    return called
