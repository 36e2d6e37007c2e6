"""The warning category of the package, issued once per job, and errors for unexpected keywords."""

import difflib
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from torchrankmetrics.validation import truncate

P = ParamSpec("P")
R = TypeVar("R")
_LIBRARY = os.path.dirname(__file__) + os.sep
# between the library and its caller: frames of ``eager``, and of the host's ``compute``
_HOSTS = tuple(
    map(os.path.normpath, ("torch/_dynamo/eval_frame.py", "torchmetrics/metric.py", "torchmetrics/collections.py"))
)
# names in other libraries
_WORDS = {
    "exclude": "mask masks filter filters filter_mask filter_triples ignore padding_mask seen",
    "target": "relevance labels label qrels answers y_true",
    "preds": "scores y_pred y_score run",
    "scores": "preds y_pred y_score",
    "query": "qids query_id query_ids",
    "similarity": "metric distance norm",
    "num_candidates": "dataset side split corpus_size collection_size num_docs",
    "relevance_threshold": "relevance_level rel",
    "k": "top_k topk",
}
# after the name that was meant, by this name or the given one
_NOTES = {"exclude": " There True marks an excluded candidate"}
_NOTES |= dict.fromkeys(
    ("dataset", "side", "split"), " datasets.candidate_counts(dataset, split, side) returns those of one split or side"
)
_HINTS = {
    "k ks top_k": "a cut is part of a name: metrics=['hits@10', 'ndcg@10']",
    "higher_is_better distance distances": "of scores higher is better: pass the negative of distances",
    "y_pred_pos y_pred_neg": "pass Ranks.from_negatives(dict of y_pred_pos and y_pred_neg)",
    "num_candidates": "ranks go in with their number of candidates: Ranks(ranks, None, num_candidates)",
}
_TOO_MANY = {"compare": "pass more than two models as a dict: compare({'a': ..., 'b': ..., 'c': ...}, metric)"}


class RankMetricWarning(UserWarning):
    """Warning that a number is undefined or based on damaged input.

    Causes are NaN scores, repeats that differ, sample ids that repeat within one update, and a Numba that cannot be
    used. If a process group is initialized, only its first process warns.
    """


def warn(message: str, category: type[Warning] = RankMetricWarning) -> None:
    """Warn with the stack level of the library's caller, on the first process of the group."""
    distributed: Any = sys.modules.get("torch.distributed")  # without this import there is no process group
    if distributed and distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0:
        return
    level, frame = 3, sys._getframe(2)
    while (name := frame.f_code.co_filename).startswith(_LIBRARY) or name.endswith(_HOSTS):
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Add the keyword that was probably meant to errors of calls that do not fit; a call that fits costs nothing."""
    signature = inspect.signature(function)
    is_method = next(iter(signature.parameters)) == "self"
    known = [name for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD][is_method:]

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as misfit:
                hint = hint_for(kwargs, known) or (f"it takes {', '.join(known)}" if is_method and known else "")
                hint = hint or (_TOO_MANY.get(function.__name__, "") if str(misfit).startswith("too many") else "")
                name = f"{type(args[0]).__name__}." * is_method + function.__name__
                raise TypeError(f"{name}() {truncate(str(misfit), 200)}{hint and f'; {hint}'}") from None
            raise

    return called


def hint_for(given: Iterable[str], parameters: Iterable[str]) -> str:
    """Return the hint for the first keyword that a function does not have; "" without a similar one."""
    known = list(parameters)
    for key in given:
        if key not in known:
            hint = next((hint for words, hint in _HINTS.items() if key in words.split()), "")
            meant = [name for name, words in _WORDS.items() if key in words.split() and name in known]
            if meant := meant or ([] if hint else difflib.get_close_matches(key, known, n=1)):
                note = _NOTES.get(meant[0]) or _NOTES.get(key, "")
                return f"did you mean {meant[0]!r} instead of {key!r}?{note}"
            if hint:
                return hint
    return ""
