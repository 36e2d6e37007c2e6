"""The warning category of the package, issued once per job, and errors for unexpected keywords."""

import difflib
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from torchrankmetrics.validation import shortened

P = ParamSpec("P")
R = TypeVar("R")
_LIBRARY = os.path.dirname(__file__) + os.sep
_DYNAMO = os.path.join("torch", "_dynamo", "eval_frame.py")
# what other libraries call it
_WORDS = {
    "exclude": (
        "mask",
        "masks",
        "filter",
        "filters",
        "filter_mask",
        "filter_triples",
        "ignore",
        "padding_mask",
        "seen",
    ),
    "target": ("relevance", "labels", "label", "qrels", "answers", "y_true"),
    "preds": ("scores", "y_pred", "y_score", "run"),
    "scores": ("preds", "y_pred", "y_score"),
    "query": ("qids", "query_id", "query_ids"),
    "similarity": ("metric", "distance", "norm"),
    "num_candidates": ("dataset",),
}
_CUT = "a cut is part of a name: metrics=['hits@10', 'ndcg@10']"
_HIGHER = "of scores higher is better: pass the negative of distances"
_NEGATIVES = "pass Ranks.from_negatives(dict of y_pred_pos and y_pred_neg)"
_SAID = {
    "k": _CUT,
    "ks": _CUT,
    "top_k": _CUT,
    "higher_is_better": _HIGHER,
    "distance": _HIGHER,
    "distances": _HIGHER,
    "y_pred_pos": _NEGATIVES,
    "y_pred_neg": _NEGATIVES,
    "num_candidates": "ranks go in with their number of candidates: Ranks(ranks, None, num_candidates)",
}


class RankMetricWarning(UserWarning):
    """Told when a number is undefined or rests on damaged input.

    Such are NaN scores, repeats that differ, sample ids that repeat within one update, and a Numba that cannot be used.
    Where a process group is initialised, its first process alone tells it.
    """


def warn(message: str, category: type[Warning] = RankMetricWarning) -> None:
    """Give a warning to whoever called the library."""
    if is_told_here():
        level, frame = 3, sys._getframe(2)
        # ``eager`` puts a frame of Dynamo between the library and its caller
        while (name := frame.f_code.co_filename).startswith(_LIBRARY) or name.endswith(_DYNAMO):
            if frame.f_back is None:
                break
            level, frame = level + 1, frame.f_back
        warnings.warn(message, category, stacklevel=level)


def is_told_here() -> bool:
    """Whether this process speaks for its job: the first of the process group, or one without a group."""
    distributed: Any = sys.modules.get("torch.distributed")  # who has not imported it is in no process group
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return True
    return bool(distributed.get_rank() == 0)


def told(function: Callable[P, R]) -> Callable[P, R]:
    """Add the keyword that was probably meant to errors of calls that do not fit; a call that fits costs nothing."""
    signature = inspect.signature(function)
    is_method = next(iter(signature.parameters)) == "self"
    known = list(signature.parameters)[is_method:]

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as misfit:
                hint = hint_of(kwargs, known) or (f"it takes {', '.join(known)}" if is_method else "")
                name = f"{type(args[0]).__name__}." * is_method + function.__name__
                raise TypeError(f"{name}() {shortened(str(misfit), 200)}{hint and f'; {hint}'}") from None
            raise

    return called


def hint_of(given: Iterable[str], parameters: Iterable[str]) -> str:
    """What to write in the place of the first keyword that a function does not have; "" where nothing is near."""
    known = list(parameters)
    for key in given:
        if key not in known:
            meant = [name for name, words in _WORDS.items() if key in words and name in known]
            if meant := meant or ([] if key in _SAID else difflib.get_close_matches(key, known, n=1)):
                return f"did you mean {meant[0]!r}?{' True excludes the candidate.' * (meant[0] == 'exclude')}"
            if key in _SAID:
                return _SAID[key]
    return ""
