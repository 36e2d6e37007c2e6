"""The registry: one table of all metrics with their names and synonyms, parsing of names, hints for foreign names."""

import difflib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from torchrankmetrics.definitions import tasks
from torchrankmetrics.definitions.protocol import (
    VIEWS,
    Average,
    Definition,
    EmptyQueries,
    MetricDefinition,
    Side,
    View,
)
from torchrankmetrics.definitions.sample import RANK_TYPES, RankType
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.metrics.measure import (
    AVERAGES,
    SIDES,
    VIEW_PREFIXES,
    Measure,
    Measured,
    measure_of,
)
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.validation import check_choice, check_key, shorten

MetricLike = str | Definition | Measure | Measured
"""A metric: a name, a definition, or an object with a measure, such as a ``RankMetric``."""
Metrics = MetricLike | Sequence[MetricLike] | Mapping[str, MetricLike]
"""One, several, or by keys of one's own."""
DEFAULT_METRICS = (
    "mrr",
    "mr",
    "hits_at_1",
    "hits_at_3",
    "hits_at_10",
    "amri",
    "adjusted_mrr",
    "z_mrr",
)


class Entry(NamedTuple):
    """A row of the table of metrics."""

    name: str  # canonical, without its number
    # a definition or a maker; or its name in queries
    made: "RankDefinition | Callable[..., Definition] | str"
    synonyms: str = ""  # lower case
    # k, the number of first places, may be optional; p: an exponent
    number: Literal["", "k", "[k]", "p"] = ""

    @property
    def words(self) -> list[str]:
        """Name and synonyms."""
        return [self.name, *self.synonyms.split()]

    def definition(self, *number: float) -> "Definition":
        """Return the definition, for metrics with a number the one of that number."""
        made: Any = self.made
        if isinstance(made, str):
            from torchrankmetrics.queries import definitions as queries

            made = getattr(queries, made)
        return made(*number) if callable(made) else made  # type: ignore[no-any-return]


METRICS = (
    # averages over ranking tasks
    Entry("mr", tasks.MEAN_RANK, "mean_rank arithmetic_mean_rank average_rank avg_rank"),
    Entry(
        "mrr", tasks.MEAN_RECIPROCAL_RANK, "mean_reciprocal_rank inverse_harmonic_mean_rank ihmr"
    ),
    Entry("auc", tasks.MEAN_AUC, "roc_auc rocauc auroc mean_auc mean_quantile"),
    Entry("imr", tasks.INVERSE_MEAN_RANK, "inverse_mean_rank inverse_arithmetic_mean_rank iamr"),
    Entry("hmr", tasks.HARMONIC_MEAN_RANK, "harmonic_mean_rank"),
    Entry("gmr", tasks.GEOMETRIC_MEAN_RANK, "geometric_mean_rank"),
    Entry("igmr", tasks.INVERSE_GEOMETRIC_MEAN_RANK, "inverse_geometric_mean_rank"),
    Entry("median_rank", tasks.MEDIAN_RANK, "median"),
    Entry("inverse_median_rank", tasks.INVERSE_MEDIAN_RANK, "inverse_median"),
    Entry("rank_variance", tasks.RANK_VARIANCE, "variance var rank_var"),
    Entry(
        "rank_std", tasks.RANK_STANDARD_DEVIATION, "std standard_deviation rank_standard_deviation"
    ),
    Entry(
        "rank_mad",
        tasks.RANK_MEDIAN_ABSOLUTE_DEVIATION,
        "mad median_absolute_deviation rank_median_absolute_deviation",
    ),
    Entry("count", tasks.RANK_COUNT, "rank_count"),
    Entry("tie_rate", tasks.TIE_RATE),
    Entry("hits", tasks.hits_at, "h", number="k"),
    Entry("power_mean_rank", tasks.power_mean_rank, number="p"),
    # averages over queries; a synonym of two metrics is the first of them
    Entry("recall", "recall_at", number="k"),
    Entry("recall_cap", "capped_recall_at", "r_cap capped_recall", number="k"),
    Entry("precision", "precision_at", "p prec", number="k"),
    Entry("f1", "f1_at", "f1_score f1_measure f_score f_measure", number="k"),
    Entry("fall_out", "fall_out_at", "fallout fall_out_rate", number="k"),
    Entry(
        "success", "success_at", "hr hit hit_rate hit_ratio hitrate s accuracy acc top", number="k"
    ),
    Entry(
        "rr",
        "first_reciprocal_rank",
        "mrr mean_reciprocal_rank reciprocal_rank first_reciprocal_rank recip_rank arhr",
        number="[k]",
    ),
    Entry("ap", "average_precision", "map average_precision mean_average_precision", number="[k]"),
    Entry("ap_cap", "capped_average_precision", "map_cap capped_map", number="k"),
    Entry(
        "ndcg",
        "normalized_dcg",
        "normalized_dcg normalizeddcg normalized_discounted_cumulative_gain",
        number="[k]",
    ),
    Entry("ndcg_exp", "exponential_ndcg", "exp_ndcg exponential_ndcg", number="[k]"),
    Entry("dcg", "discounted_gain", "discounted_cumulative_gain", number="[k]"),
    Entry("rbp", "rank_biased_precision", "rank_biased_precision"),
    Entry("r_precision", "R_PRECISION", "r_prec rprec rprecision"),
    Entry("query_auc", "QUERY_AUC", "auroc"),
    Entry("first_mr", "FIRST_MEAN_RANK", "meanr first_mean_rank mean_first_rank"),
    Entry("first_median_rank", "FIRST_MEDIAN_RANK", "medr median_first_rank"),
)
# names that include the view; AMR is the ratio to the expectation, AMRI the index
_WITH_VIEW = {
    word: name
    for name, words in {
        "normalized_mr": "amr aamr adjusted_mean_rank adjusted_arithmetic_mean_rank",
        "adjusted_mr": "amri aamri",
        "adjusted_mrr": "amrr aihmr",
        "adjusted_gmr": "gmri agmri",
        "z_mr": "zamr",
        # PyKEEN's keys do not contain k, which is 10
        "adjusted_hits_at_10": "ahk ah@k ah_at_k ahits@k ahits_at_k adjusted_hits_at_k adjusted_hits@k",
        "z_hits_at_10": "zahk z_hits_at_k z_hits@k",
    }.items()
    for word in words.split()
}
# words before the metric, including PyKEEN's
_QUALIFIERS: dict[str, dict[str, str]] = {
    "side": {"left": "head", "right": "tail"} | {side: side for side in SIDES},
    "rank_type": {
        "avg": "realistic",
        "average": "realistic",
        "best": "optimistic",
        "worst": "pessimistic",
    }
    | {rank_type: rank_type for rank_type in RANK_TYPES},
    "average": {average: average for average in AVERAGES},
}
# synonyms of options, which are those that names accept
_OPTION_WORDS: dict[str, dict[str, Any]] = {
    "views": {prefix.rstrip("_"): view for view, prefix in VIEW_PREFIXES.items() if prefix},
    "rank_types": _QUALIFIERS["rank_type"],
    "sides": _QUALIFIERS["side"],
}
# metrics of other libraries that have another name here
_FOREIGN = {
    r"g_?auc": "is query_auc, the AUC of every query; weight= of update weights queries",
    r"pr_?auc|au_?pr|auprc": "is ap, the average precision of every query",
    r"r_?sum|mean_recall": "is a sum of several metrics: add success_at_1, success_at_5 and success_at_10",
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
_LISTED = 'RankCollection.names() and the command "torchrankmetrics metrics" list all'
_SHORT = 5  # letters of a word, below which another letter is another metric
_LONGEST = 200  # characters of a name: patterns take quadratic time

# by words without a number, and by words before one; a synonym of two metrics is the first of them
_WHOLE: dict[str, Entry] = {
    word: one for one in reversed(METRICS) if one.number in ("", "[k]") for word in one.words
}
_CUT: dict[str, Entry] = {
    word: one for one in reversed(METRICS) if one.number in ("k", "[k]") for word in one.words
}


def all_names() -> dict[str, list[str]]:
    """Return canonical names without a view, with their synonyms; ``<k>`` and ``<p>`` are placeholders of numbers."""
    names: dict[str, list[str]] = {}
    for entry in METRICS:
        if entry.number in ("", "[k]"):
            names[entry.name] = [word for word in entry.words[1:] if _WHOLE[word] is entry]
        if entry.number in ("k", "[k]"):
            names[f"{entry.name}_at_<k>"] = [f"{word}@<k>" for word in entry.words]
        elif entry.number == "p":
            names[f"{entry.name}_<p>"] = []
    return names


@dataclass(frozen=True)
class MetricName:
    """A parsed name: a definition and its qualifiers; None: not in the name."""

    definition: Definition
    view: View | None = None
    rank_type: RankType | None = None
    side: Side | None = None
    average: Average | None = None

    def measure(self, **options: Any) -> Measure:
        """Return the measure; options of ``Measure`` replace qualifiers that are not in the name."""
        return Measure(
            **options | {one: value for one, value in vars(self).items() if value is not None}
        )


def parse_name(name: object) -> MetricName:
    """Parse a metric name: canonical keys, synonyms, PyKEEN's ``side.rank_type.metric``, any case; or a definition."""
    if isinstance(name, MetricName | MetricDefinition):
        return name if isinstance(name, MetricName) else MetricName(name)
    if not isinstance(name, str):
        own = "; write RankDefinition('my_metric', f=function)" if inspect.isroutine(name) else ""
        if hasattr(name, "compute"):
            own = _instead_of_metric(name)
        kinds = "a RankDefinition, a QueryDefinition or a name such as 'mrr'"
        raise TypeError(f"a metric must be {kinds}, got {type(name).__name__}{own}")
    if len(name) > _LONGEST:
        raise ValueError(f"unknown metric {shorten(name)}; {_LISTED}")
    if listed := _several(name):
        raise ValueError(f"{shorten(name)} looks like several metrics: pass {listed}")
    rest = re.sub(r"[\s\-]+", "_", name.strip().lower())
    rest = re.sub(r"\(rel=(\d+)\)(.*)", r"\2_rel_\1", rest)  # ir_measures: AP(rel=2)@10
    result = _parse_qualified(rest.replace(".", "_") if re.match(r"[a-z_]+\.", rest) else rest)
    if result is None:
        raise ValueError(f"unknown metric {shorten(name)}{hint_for(rest) or _nearest(rest)}")
    return result


def _several(text: str) -> list[str]:
    """Return the names of a text such as "mrr, hits@10"; none if a part is not a name."""
    parts = re.split(r"[,;\s]+", text.strip(" ,;"))
    if len(parts) < 2:
        return []
    try:
        for part in parts:
            parse_name(part)
    except ValueError:
        return []
    return parts


def _instead_of_metric(metric: object) -> str:
    """Return the end of the message for a metric of torchmetrics."""
    name, k = type(metric).__name__, getattr(metric, "top_k", None)
    text = "; put it next to a RankCollection into a torchmetrics.MetricCollection"
    with suppress(ValueError):
        word = _CLASSES.get(name) or name.removeprefix("Retrieval").lower()
        definition = parse_name(word if k is None else f"{word}@{k}").definition
        text = f": its name here is {definition.name!r}{text.replace('put it', 'or put it')}"
    return text


def _parsed(metric: MetricLike | MetricName, relevance_threshold: float) -> Any:
    """Measure or parsed name of a metric, at another threshold than 1 if it is given."""
    name: Any = measure_of(metric) or parse_name(metric)
    if relevance_threshold == 1:
        return name
    return replace(name, definition=name.definition.at_threshold(relevance_threshold))


def as_measure(
    metric: MetricLike | MetricName,
    expectation: ExpectationProvider | None = None,
    relevance_threshold: float = 1.0,
    empty_queries: EmptyQueries | None = None,
    **qualifiers: Any,
) -> Measure:
    """Return the measure of a metric, completed by view, rank type, side and average; None: not given."""
    if empty_queries is not None:
        measure = as_measure(metric, expectation, relevance_threshold, **qualifiers)
        return replace(measure, empty_queries=empty_queries)
    name = _parsed(metric, relevance_threshold)
    qualifiers = {one: value for one, value in qualifiers.items() if value is not None}
    for one, value in qualifiers.items():
        if (own := getattr(name, one)) not in (None, value):
            key = metric if isinstance(metric, str) else as_measure(metric).key
            raise ValueError(
                f"{shorten(key)} has {one}={own!r}, but {one}={shorten(value)} was passed; omit one"
            )
    if isinstance(name, MetricName):
        return name.measure(**qualifiers, expectation=expectation)
    return name if expectation is None else replace(name, expectation=expectation)  # type: ignore[no-any-return]


def base_definition(metric: str | RankDefinition) -> RankDefinition:
    """Return the definition of a base metric of ranking tasks: a name without qualifiers, or a definition."""
    name = parse_name(metric)
    definition = name.definition
    if name != MetricName(definition):
        raise ValueError(
            f"metric must be a base metric, such as {shorten(definition.name)}; got "
            f"{shorten(metric)}"
        )
    if (of_tasks := definition.of_tasks) is None:
        raise ValueError(
            f"metric must be of tasks, such as 'mrr'; {shorten(definition.name)} is a query metric"
        )
    return of_tasks


def _parse_qualified(text: str) -> MetricName | None:
    """Parse side, rank type and average, each at most once, in any order, before the metric in its view."""
    qualifiers: dict[str, Any] = {}
    # first: the average of average_precision is part of the word
    while (found := _parse_view(text)) is None:
        word, _, rest = text.partition("_")
        kind = next(
            (
                kind
                for kind, words in _QUALIFIERS.items()
                if kind not in qualifiers and word in words
            ),
            None,
        )
        if kind is None:
            return None
        qualifiers[kind], text = _QUALIFIERS[kind][word], rest
    return MetricName(*found, **qualifiers)


def _parse_view(text: str) -> tuple[Definition, View | None] | None:
    text = _WITH_VIEW.get(text, text)
    if definition := _parse_base(text):
        return definition, None
    for view, prefix in VIEW_PREFIXES.items():
        if prefix and text.startswith(prefix):
            inner = text.removeprefix(prefix)
            if definition := _parse_base(inner) or _parse_base(inner.removesuffix("_index")):
                return definition, view
    # the compact forms of the papers: zmrr, ah@10
    if text[:1] == "z" and (definition := _parse_base(text[1:])):
        return definition, "z_score"
    if re.fullmatch(r"ah(its)?[_@].*", text) and (definition := _parse_base(text[1:])):
        return definition, "adjusted_index"
    return None


def _parse_base(text: str) -> Definition | None:
    if text in _WHOLE:
        return _WHOLE[text].definition()
    text = re.sub(r"^(top_?\d+)_acc(uracy)?$", r"\1", text)
    if match := re.fullmatch(r"(.+?)(?:@|_at_|_cut_|_)?(\d+)", text):
        word, k = match[1], int(match[2])
        if word == "r":
            raise ValueError(
                f"'r@{k}' has two meanings: recall_at_{k}, the share of the relevant items among "
                f"the first {k}, and success_at_{k}, whether one of them is there (R@{k} of "
                "image-text retrieval); use one of these names"
            )
        if word in _CUT:
            return _CUT[word].definition(k)
    if match := re.fullmatch(r"(power_mean_rank|rbp)_(minus_)?(\d+(?:[p.]\d+)?|inf)", text):
        number = float(match[3].replace("p", ".")) * (-1 if match[2] else 1)
        return (
            tasks.power_mean_rank(number)
            if match[1] == "power_mean_rank"
            else _WHOLE["rbp"].definition(number)
        )
    if match := re.fullmatch(r"(.+)_rel_(\d+(?:[p.]\d+)?)", text):
        definition = _parse_base(match[1])
        return definition and definition.at_threshold(float(match[2].replace("p", ".")))
    if entry := _CUT.get(re.sub("(@|_at_)k$", "", text)):
        raise ValueError(
            f"{shorten(text)} needs a number of first places, for example {entry.name}_at_10"
        )
    return None


def hint_for(text: str) -> str | None:
    """Return the end of an error message for a metric of another library; None if the text is not one."""
    if match := re.fullmatch(r"(?:filtered|filt|raw|unfiltered)_(.+)", text):
        return f"; a filter is passed as exclude= of update, not in a name: use {shorten(match[1])}"
    if match := re.fullmatch(r"(?:retrieval|link_?pred)_?(.+)", text):
        for entry in reversed(METRICS):  # query metrics
            if match[1] in entry.words:
                return f": it is {entry.name + '_at_<k>' * (entry.number == 'k')!r}"
    if match := re.fullmatch(r"(.+)_([pz])_?(?:value|score)", text):
        return f"; write {match[2] + '_' + match[1]!r}"
    if match := re.fullmatch(r"(.+?)(\d+(?:,\d+)+)", text):
        return f"; pass a list: {[match[1] + k for k in match[2].split(',')]}"
    for words, hint in _FOREIGN.items():
        if re.fullmatch(rf"(?:{words})(?:(?:@|_at_|_cut_|_)?(?:\d+|k))?", text):
            return f": it {hint}; {_LISTED}"
    from torchrankmetrics.metrics.unavailable import reason_for

    reason = reason_for(text)
    return reason and f": it {reason}; {_LISTED}"


def _nearest(text: str) -> str:
    """Return the names that are similar to a text, in the same view and with the same k."""
    view = next(
        (prefix for prefix in VIEW_PREFIXES.values() if prefix and text.startswith(prefix)), ""
    )
    match = re.fullmatch(r"(.*?)(?:@|_at_|_cut_|_)*(\d*)", text.removeprefix(view))
    word, k = (match[1], match[2]) if match else (text, "")
    if k and (word in _WHOLE or word in _WITH_VIEW):
        return f": {word!r} uses all ranks and takes no @{k}; hits_at_{k} and rr_at_{k} use the first {k}"
    words = {near: f"{entry.name}_at_{k or 10}" for near, entry in _CUT.items()}
    if not k:
        words |= {near: entry.name for near, entry in _WHOLE.items()} | ({} if view else _WITH_VIEW)
    words["power_mean_rank"] = "power_mean_rank_2"
    meant: dict[str, None] = {}
    for near in _misspelled(word, words):
        with suppress(ValueError):  # its view is undefined
            meant[parse_name(view + words[near]).measure().key] = None
    return f"; did you mean {' or '.join(map(repr, meant))}? {_LISTED}" if meant else f"; {_LISTED}"


def _read_option(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Read a view, a rank type or a side, or a synonym of it that names of metrics accept, in any case."""
    if isinstance(value, str):
        word = value.lower()
        value = _OPTION_WORDS[name].get(word, word)
    return check_choice(name, value, choices)


def _misspelled(word: str, names: Mapping[str, str]) -> list[str]:
    """Find names that a word is likely to be misspelled from.

    A short word with another letter is another metric (rbo, rbp), unless its letters are in another
    order (ngcd) or one is doubled (mrrr).
    """
    anagrams = [near for near in names if sorted(near) == sorted(word)]
    doubled = [near for near in names if near == re.sub(r"(.)\1", r"\1", word, count=1)]
    if anagrams or doubled or len(word) < _SHORT:
        return anagrams or doubled
    return difflib.get_close_matches(word, names, n=3, cutoff=0.8)


@dataclass
class Selection:
    """Options that turn names into measures."""

    views: Any = "base"  # one or several, as are the next two
    rank_types: Any = "realistic"
    sides: Any = "both"
    expectation: ExpectationProvider | None = None
    average: Average = "micro"
    relevance_threshold: float = 1.0
    empty_queries: EmptyQueries = "skip"

    def __post_init__(self) -> None:
        self._options: dict[str, Any] = {
            "average": self.average,
            "expectation": self.expectation,
            "empty_queries": self.empty_queries,
        }
        for name, choices in (("views", VIEWS), ("rank_types", RANK_TYPES), ("sides", SIDES)):
            given = getattr(self, name)
            # a set in the same order on every process
            values = (
                [given]
                if isinstance(given, str)
                else sorted(given, key=str)
                if isinstance(given, Set)
                else given
            )
            if not isinstance(values, Sequence) or not values:
                raise ValueError(
                    f"{name} must be a string or several, not none; got {shorten(given)}"
                )
            setattr(
                self,
                name,
                tuple(dict.fromkeys(_read_option(name, value, choices) for value in values)),
            )

    def entries(self, metrics: Any) -> Iterator[tuple[str, Any]]:
        """Yield keys with measures for names, and entries that have a measure unchanged; repeated names are dropped."""
        threshold = self.relevance_threshold
        if isinstance(metrics, Mapping):
            for key, entry in metrics.items():
                check_key("a key", key)
                yield (
                    key,
                    entry
                    if measure_of(entry)
                    else _parsed(entry, threshold).measure(**self._options),
                )
            return
        if isinstance(metrics, str) or measure_of(metrics) or hasattr(metrics, "compute"):
            metrics = [metrics]
        if not isinstance(metrics, Sequence):
            got = f"{type(metrics).__name__}: pass a list"
            raise TypeError(f"metrics must be names, RankMetric instances or a dict, got {got}")
        seen: set[str] = set()
        for entry in metrics:
            own = measure_of(entry)
            for measure in [own] if own else self._product(_parsed(entry, threshold)):
                if own or measure.key not in seen:
                    seen.add(measure.key)
                    yield measure.key, entry if own else measure
        if metrics and not seen:  # every combination is undefined: raise the reason of the first
            _parsed(metrics[0], threshold).measure(view=self.views[0], rank_type=self.rank_types[0])

    def measures(self, metrics: Metrics | None) -> dict[str, Measure]:
        """The measures of ``entries`` by key; None: the default metrics."""
        entries = self.entries(DEFAULT_METRICS if metrics is None else metrics)
        return {key: measure for key, entry in entries if (measure := measure_of(entry))}

    def _product(self, name: MetricName) -> Iterator[Measure]:
        views = self.views if name.view is None else (name.view,)
        rank_types = self.rank_types if name.rank_type is None else (name.rank_type,)
        sides = self.sides if name.side is None else (name.side,)
        # a name that is undefined raises; undefined combinations with options are left out
        defined = (
            name.definition.why_undefined(name.view or "base", name.rank_type or "realistic")
            is None
        )
        for side, rank_type, view in itertools.product(sides, rank_types, views):
            if not (defined and name.definition.why_undefined(view, rank_type)):
                yield name.measure(**self._options, view=view, rank_type=rank_type, side=side)
