"""Decorators of public functions: hints for keywords, and no tracing by ``torch.compile``."""

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from torchrankmetrics.validation import truncate

P = ParamSpec("P")
R = TypeVar("R")
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
    ("dataset", "side", "split"),
    " datasets.candidate_counts(dataset, split, side) returns those of one split or side",
)
_HINTS = {
    "k ks": "a cut is part of a name: metrics=['hits@10', 'ndcg@10']",
    "top_k": (
        "a cut is part of a name: metrics=['hits@10', 'ndcg@10']; the best candidates of each "
        "query are returned by rank_triples, rank_facts, rank_complex_queries, rank_alignment and "
        "rank_embeddings with top_k="
    ),
    "higher_is_better distance distances": (
        "of scores higher is better: pass the negative of distances"
    ),
    "y_pred_pos y_pred_neg": "pass Ranks.from_negatives(dict of y_pred_pos and y_pred_neg)",
    "num_candidates": (
        "ranks go in with their number of candidates: Ranks(ranks, None, num_candidates)"
    ),
}
_TOO_MANY = {
    "compare": (
        "pass more than two models as a dict: compare({'a': ..., 'b': ..., 'c': ...}, metric)"
    )
}
_MISSING = {
    "known": "pass KnownTriples(train, valid, test) for filtered ranks, or None for raw ranks",
}

_REASON = "ranks are computed eagerly: leave metrics out of programs that are exported"


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function eagerly inside ``torch.compile``, with a graph break before it.

    Errors as ``suggest_keywords``.
    """

    @functools.cache
    def disabled() -> Callable[P, R]:
        import torch  # commands that only print do not import it

        return torch.compiler.disable(function)  # type: ignore[no-untyped-call, no-any-return]

    check = _check_of_calls(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        chosen = disabled() if "torch._dynamo" in sys.modules else function
        try:
            return chosen(*args, **kwargs)
        except TypeError:
            check(*args, **kwargs)
            raise

    called._torchdynamo_disable = True  # type: ignore[attr-defined]
    called._torchdynamo_disable_msg = _REASON  # type: ignore[attr-defined]  # of torch.export
    # Dynamo compiles a code object for at most 8 sets of arguments: each function has its own
    called.__code__ = called.__code__.replace()  # type: ignore[attr-defined]
    return called


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Add the keyword that was probably meant to errors of calls that do not fit.

    A call that fits costs nothing.
    """
    check = _check_of_calls(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            check(*args, **kwargs)
            raise

    return called


def _check_of_calls(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that raises TypeError for arguments that do not fit.

    The error names the keyword that was meant.
    """
    signature = inspect.signature(function)
    is_method = next(iter(signature.parameters)) == "self"
    known = [name for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD][
        is_method:
    ]

    def check(*args: Any, **kwargs: Any) -> None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as misfit:
            hint = _hint_for(kwargs, known) or (
                f"it takes {', '.join(known)}" if is_method and known else ""
            )
            if not hint and str(misfit).startswith("too many"):
                hint = _TOO_MANY.get(function.__name__, "")
            if not hint and (
                missing := re.match("missing a required argument: '(.*)'", str(misfit))
            ):
                hint = _MISSING.get(missing[1], "")
            name = f"{type(args[0]).__name__}." * is_method + function.__name__
            raise TypeError(
                f"{name}() {truncate(str(misfit), 200)}{hint and f'; {hint}'}"
            ) from None

    return check


def _hint_for(given: Iterable[str], parameters: Iterable[str]) -> str:
    """Return the hint for the first unknown keyword of a function; "" without a similar one."""
    known = list(parameters)
    for key in given:
        if key not in known:
            hint = next((hint for words, hint in _HINTS.items() if key in words.split()), "")
            meant = [
                name for name, words in _WORDS.items() if key in words.split() and name in known
            ]
            if meant := meant or ([] if hint else difflib.get_close_matches(key, known, n=1)):
                note = _NOTES.get(meant[0]) or _NOTES.get(key, "")
                return f"did you mean {meant[0]!r} instead of {key!r}?{note}"
            if hint:
                return hint
    return ""
