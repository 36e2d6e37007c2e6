"""Choose the backend that counts better, tied and NaN candidates of each task; all backends give the same counts.

Every backend has the interface of ``torch_backend``, which is the reference; ``choose`` selects it by device and by
what is installed.
"""

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking.counting import torch_backend as plain
from torchrankmetrics.validation import check_choice

Count = Callable[..., Tensor]


class Backend(NamedTuple):
    """The functions of ``torch_backend``, or the same compiled."""

    count_matrix: Count
    count_lists: Count


def choose(scores: Tensor, backend: str = "auto") -> Backend:
    """Choose how comparisons are counted; errors as ``chosen``."""
    module = plain if chosen(scores, backend) == "torch" else _compiled()
    return Backend(module.count, module.count_lists)


def chosen(scores: Tensor, backend: str = "auto") -> str:
    """Return the backend that counts these scores: "torch" or "numba".

    Args:
        scores: (B, N), the scores to count.
        backend: "torch", plain torch on any device; "numba", compiled, on the CPU only; "auto": numba where it is
            installed and the scores are on the CPU, otherwise torch.

    Raises:
        ValueError: if backend is none of these, or "numba" is requested on another device.
        ImportError: if "numba" is requested and not installed, or not usable; "auto" warns of that once.

    >>> import torch
    >>> chosen(torch.zeros(2, 3), "torch")
    'torch'
    """
    on_cpu = scores.is_cpu
    if backend == "torch" or (backend == "auto" and not (on_cpu and _has_numba())):
        return "torch"
    check_choice("backend", backend, ("auto", "torch", "numba"))
    if not on_cpu:
        raise ValueError(f'backend="numba" is for scores on the CPU, got {scores.device}; use "auto" or "torch"')
    if not _has_numba():
        raise ImportError(f'backend="numba" needs numba: pip install "torchrankmetrics[fast]"{_found_unusable() or ""}')
    return "numba"


@cache
def _compiled() -> Any:
    return importlib.import_module(f"{__name__}.numba_backend")  # imported late: numba takes half a second


@cache
def _has_numba() -> bool:
    if importlib.util.find_spec("numba") is None:
        return False
    if why := _found_unusable():
        warn(f"scores are counted by plain torch, which is slower{why}")
    return why is None


@cache
def _found_unusable() -> str | None:
    """Why Numba cannot be used although it is installed; None: it can, or is not there."""
    if importlib.util.find_spec("numba") is not None:
        try:
            _compiled()
        except Exception as error:  # torch counts as well, only slower
            return f"; numba is installed, but not usable: {error}"
    return None
