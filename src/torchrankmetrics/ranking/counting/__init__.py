"""Count better, tied and NaN candidates of each task, in plain torch or compiled by Numba, with the same counts."""

import importlib
import importlib.util
from functools import cache
from typing import Any

from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking.counting import torch_backend as plain
from torchrankmetrics.ranking.exclude import NOTHING, Excluded
from torchrankmetrics.validation import check_choice


def count(
    scores: Tensor,
    true: Tensor | None = None,
    row: Tensor | None = None,
    column: Tensor | None = None,
    excluded: Excluded = NOTHING,
    borders: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """Count the other candidates of each task that are better, that are not worse, all, and NaN: int64 (4, P).

    A NaN candidate is better than any true score, and any candidate is better than a NaN; a NaN true score counts too.

    Args:
        scores: (B, N), any real dtype and strides; or lists of different lengths, flat (T,). Only read.
        true: (P,) the true score of each task, same dtype; None: the score in its own column.
        row: (P,) int64, the row or list each task belongs to; None: task i is row i (P = B).
        column: (P,) int64, its own column, which is left out, negative if it is not in the matrix; None: in none.
        excluded: candidates that are not counted; of lists only ``cells``, bool (T,).
        borders: (B + 1,) int64, of lists: list i is scores[borders[i] : borders[i + 1]], and ``row`` is given.
        backend: as in ``chosen``.
    """
    module = plain if chosen(scores, backend) == "torch" else _compiled()
    counts: Tensor = module.count(scores, true, row, column, excluded, borders)
    return counts


def chosen(scores: Tensor, backend: str = "auto") -> str:
    """Return the backend that counts these scores: "torch" (any device) or "numba" (on the CPU, if it is installed)."""
    if backend == "torch" or (backend == "auto" and not (scores.is_cpu and _numba_problem() is None)):
        return "torch"
    check_choice("backend", backend, ("auto", "torch", "numba"))
    if not scores.is_cpu:
        raise ValueError(f'backend="numba" is for scores on the CPU, got {scores.device}; use "auto" or "torch"')
    if problem := _numba_problem():
        raise ImportError(f'backend="numba" needs numba: pip install "torchrankmetrics[fast]"; {problem}')
    return "numba"


@cache
def _compiled() -> Any:
    return importlib.import_module(f"{__name__}.numba_backend")  # imported late: numba takes half a second


@cache
def _numba_problem() -> str | None:
    """Why Numba cannot be used; None: it can."""
    if importlib.util.find_spec("numba") is None:
        return "it is not installed"
    try:
        _compiled()
    except Exception as error:  # torch counts as well, only slower
        problem = f"numba is installed, but not usable: {error}"
        warn(f"scores are counted by plain torch, which is slower; {problem}")
        return problem
    return None
