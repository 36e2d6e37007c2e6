"""Ends of error messages for names that are unknown: foreign names, and similar names."""

import difflib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.metrics.measure import VIEW_PREFIXES
from torchrankmetrics.metrics.registry import METRICS, NUMBERED, PLACES, WHOLE, WITH_VIEW
from torchrankmetrics.metrics.unavailable import reason_for
from torchrankmetrics.validation import shorten

# metrics of other libraries that have another name here
_FOREIGN = {
    r"g_?auc": "is query_auc, the AUC of every query; weight= of update weights queries",
    r"pr_?auc|au_?pr|auprc": "is ap, the average precision of every query",
    r"r_?sum|mean_recall": "is a sum of several metrics: add success_at_1, success_at_5 and "
    "success_at_10",
}
# classes of torchmetrics that differ from the words of a metric
_CLASSES = {
    "RetrievalMRR": "rr",
    "RetrievalNormalizedDCG": "ndcg",
    "RetrievalHitRate": "success",
    "RetrievalRPrecision": "r_precision",
    "RetrievalFallOut": "fall_out",
    "RetrievalAUROC": "query_auc",
}
LISTED = 'RankCollection.names() and the command "torchrankmetrics metrics" list all'
_SHORT = 5  # letters of a word, below which another letter is another metric


def hint_for(text: str) -> str | None:
    """Return the end of an error message for a metric of another library; None for others."""
    if match := re.fullmatch(r"(?:filtered|filt|raw|unfiltered)_(.+)", text):
        return f"; a filter is passed as exclude= of update, not in a name: use {shorten(match[1])}"
    if match := re.fullmatch(r"(?:retrieval|link_?pred)_?(.+)", text):
        for entry in reversed(METRICS):  # query metrics
            if match[1] in entry.words:
                return f": it is {entry.listed_name!r}"
    if match := re.fullmatch(r"(.+)_([pz])_?(?:value|score)", text):
        return f"; write {match[2] + '_' + match[1]!r}"
    if match := re.fullmatch(r"(.+?)(\d+(?:,\d+)+)", text):
        return f"; pass a list: {[match[1] + k for k in match[2].split(',')]}"
    for words, hint in _FOREIGN.items():
        if re.fullmatch(rf"(?:{words})(?:(?:@|_at_|_cut_|_)?(?:\d+|k))?", text):
            return f": it {hint}; {LISTED}"
    reason = reason_for(text)
    return reason and f": it {reason}; {LISTED}"


def hint_for_class(metric: object, definition_of: Callable[[str], Definition]) -> str:
    """Return the end of an error message for a metric of torchmetrics.

    ``definition_of`` returns the definition of a name; ValueError if it is unknown.
    """
    name = type(metric).__name__
    k = getattr(metric, "top_k", None)
    text = "; put it next to a RankCollection into a torchmetrics.MetricCollection"
    with suppress(ValueError):
        word = _CLASSES.get(name) or name.removeprefix("Retrieval").lower()
        definition = definition_of(word if k is None else f"{word}@{k}")
        text = f": its name here is {definition.name!r}{text.replace('put it', 'or put it')}"
    return text


def nearest(text: str, key_of: Callable[[str], str]) -> str:
    """Return the names that are similar to a text, in the same view and with the same k.

    ``key_of`` returns the key of a name; ValueError if its view is undefined.
    """
    prefixes = [prefix for prefix in VIEW_PREFIXES.values() if prefix and text.startswith(prefix)]
    view = prefixes[0] if prefixes else ""
    match = re.fullmatch(r"(.*?)(?:@|_at_|_cut_|_)*(\d*)", text.removeprefix(view))
    word, k = (match[1], match[2]) if match else (text, "")
    if k and (word in WHOLE or word in WITH_VIEW):
        return (
            f": {word!r} uses all ranks and takes no @{k}; hits_at_{k} and rr_at_{k} use the first "
            f"{k}"
        )
    names = _names_of_words(k, has_view=bool(view))
    meant: dict[str, None] = {}
    for near in _misspelled(word, names):
        with suppress(ValueError):
            meant[key_of(view + names[near])] = None
    return f"; did you mean {' or '.join(map(repr, meant))}? {LISTED}" if meant else f"; {LISTED}"


def _names_of_words(places: str, has_view: bool) -> dict[str, str]:
    """A name for each word of the registry, with a number of places if it is not ""."""
    names: dict[str, str] = {}
    for number, entries in NUMBERED.items():
        # digits alone are ambiguous: 1 of minus_1, 5 of 2p5
        digits = places if places and number is PLACES else number.example
        for word, entry in entries.items():
            names.setdefault(word, number.name(entry.name, digits))
    if places:
        return names
    names |= {word: entry.name for word, entry in WHOLE.items()}
    return names if has_view else names | WITH_VIEW


def _misspelled(word: str, names: Mapping[str, str]) -> list[str]:
    """Find names that a word is likely to be misspelled from.

    A short word with another letter is another metric (rbo, rbp), unless its letters are in another
    order (ngcd) or one is doubled (mrrr).
    """
    anagrams = [near for near in names if sorted(near) == sorted(word)]
    single = re.sub(r"(.)\1", r"\1", word, count=1)
    doubled = [near for near in names if single in (near, re.sub(r"(.)\1", r"\1", near, count=1))]
    if anagrams or doubled or len(word) < _SHORT:
        return anagrams or doubled
    return difflib.get_close_matches(word, names, n=3, cutoff=0.8)
