"""Names of metrics: parsing, synonyms, and hints for names of other libraries."""

import difflib
import re
from dataclasses import dataclass, replace
from typing import Any

from torchrankmetrics.definitions import tasks as base
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.definitions.tasks import RankDefinition, exponent_name, hits_at, power_mean_rank
from torchrankmetrics.metrics.analysis import Average, Side
from torchrankmetrics.metrics.measure import VIEW_PREFIXES, Measure, Measured, has_measure, measure_of
from torchrankmetrics.metrics.query_names import (
    CUT,
    OF_TASKS,
    SYNONYMS as QUERY_SYNONYMS,
    WHOLE,
    needs_a_number,
    parse_query_metric,
)
from torchrankmetrics.metrics.views import View
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.queries.definitions import QueryDefinition
from torchrankmetrics.validation import shown

_PAGE = "docs/coming_from.md translates the words of other fields"
_LISTED = 'RankCollection.names() and the command "torchrankmetrics metrics" list all'
_LONGEST = 200  # characters of a name: patterns take quadratic time
_CUT = r"(?:(?:@|_at_|_cut_|_)?(?:\d+|k))?"
_OF_HOSTS = {
    "mrr": "rr",
    "map": "ap",
    "hitrate": "success_at_<k>",
    "hitratio": "success_at_<k>",
    "precision": "precision_at_<k>",
    "recall": "recall_at_<k>",
    "normalizeddcg": "ndcg",
    "ndcg": "ndcg",
    "rprecision": "r_precision",
    "auroc": "query_auc",
}
_TOLD = {
    r"d?cg|i?dcg|n?err|rbp": "is not computed here, where an answer is true or not; ndcg is, ir_measures has others",
    r"bpref|inf_?ap|inf_?ndcg": "asks which documents were judged, not at which ranks answers are; ir_measures has it",
    r"f1|f_?(?:1_)?(?:score|measure)|fall_?out": "is not computed here; precision_at_<k> and recall_at_<k> are",
    r"(?:item_|catalog_)?coverage|diversity|novelty|serendipity": "is of the items that are shown, not of ranks",
    r"g_?auc": "is query_auc here, the AUC of every query; weight= of update weighs queries",
    r"pr_?auc|au_?pr|auprc": "is ap here, the average precision of every query",
    r"r_?sum|mean_recall": "is a sum of several metrics: add success_at_1, success_at_5 and success_at_10",
}


def told_of(text: str) -> str | None:
    """What to say of a word, lower case with underscores, that other libraries know; None if it is none of theirs.

    >>> told_of("filtered_mrr")
    "; what is filtered is said by exclude= of update, not by a name: ask for 'mrr'"
    """
    if match := re.fullmatch(r"(?:filtered|filt|raw|unfiltered)_(.+)", text):
        return f"; what is filtered is said by exclude= of update, not by a name: ask for {shown(match[1])}"
    if (match := re.fullmatch(r"(?:retrieval|link_?pred)_?(\w+)", text)) and match[1] in _OF_HOSTS:
        return f": it is {_OF_HOSTS[match[1]]!r} here; {_PAGE}"
    for words, said in _TOLD.items():
        if re.fullmatch(f"(?:{words}){_CUT}", text):
            return f": it {said}; {_PAGE}"
    return None


SYNONYMS = {
    "mean_rank": "mr",
    "arithmetic_mean_rank": "mr",
    "average_rank": "mr",
    "avg_rank": "mr",
    "mean_reciprocal_rank": "mrr",
    "inverse_harmonic_mean_rank": "mrr",
    "ihmr": "mrr",
    "roc_auc": "auc",
    "rocauc": "auc",
    "auroc": "auc",
    "mean_auc": "auc",
    "mean_quantile": "auc",
    "inverse_mean_rank": "imr",
    "inverse_arithmetic_mean_rank": "imr",
    "iamr": "imr",
    "harmonic_mean_rank": "hmr",
    "geometric_mean_rank": "gmr",
    "inverse_geometric_mean_rank": "igmr",
    "median": "median_rank",
    "inverse_median": "inverse_median_rank",
    "variance": "rank_variance",
    "var": "rank_variance",
    "rank_var": "rank_variance",
    "std": "rank_std",
    "standard_deviation": "rank_std",
    "rank_standard_deviation": "rank_std",
    "mad": "rank_mad",
    "median_absolute_deviation": "rank_mad",
    "rank_median_absolute_deviation": "rank_mad",
    "rank_count": "count",
}
# names whose view is part of the word; AMR is the ratio to the expectation, AMRI the index
WITH_VIEW = {
    "amr": "normalized_mr",
    "aamr": "normalized_mr",
    "adjusted_mean_rank": "normalized_mr",
    "adjusted_arithmetic_mean_rank": "normalized_mr",
    "amri": "adjusted_mr",
    "aamri": "adjusted_mr",
    "amrr": "adjusted_mrr",
    "aihmr": "adjusted_mrr",
    "gmri": "adjusted_gmr",
    "agmri": "adjusted_gmr",
    "zamr": "z_mr",
}


Asked = str | Definition | Measure | Measured
"""What one metric is asked for by: a name, a definition, or what holds a measure, as a ``RankMetric`` does."""
_DEFINITIONS = {
    definition.name: definition
    for definition in (
        base.MEAN_RANK,
        base.MEAN_RECIPROCAL_RANK,
        base.MEAN_AUC,
        base.INVERSE_MEAN_RANK,
        base.HARMONIC_MEAN_RANK,
        base.GEOMETRIC_MEAN_RANK,
        base.INVERSE_GEOMETRIC_MEAN_RANK,
        base.MEDIAN_RANK,
        base.INVERSE_MEDIAN_RANK,
        base.RANK_VARIANCE,
        base.RANK_STANDARD_DEVIATION,
        base.RANK_MEDIAN_ABSOLUTE_DEVIATION,
        base.RANK_COUNT,
        base.TIE_RATE,
    )
}
_SIDES: dict[str, Side] = {
    "head": "head",
    "left": "head",
    "tail": "tail",
    "right": "tail",
    "relation": "relation",
    "both": "both",
}
_AVERAGES: dict[str, Average] = {"micro": "micro", "macro": "macro"}
_RANK_TYPES: dict[str, RankType] = {
    "realistic": "realistic",
    "avg": "realistic",
    "average": "realistic",
    "optimistic": "optimistic",
    "best": "optimistic",
    "pessimistic": "pessimistic",
    "worst": "pessimistic",
    "expected": "expected",
}


_QUALIFIERS: dict[str, dict[str, Any]] = {"side": _SIDES, "rank_type": _RANK_TYPES, "average": _AVERAGES}


@dataclass(frozen=True)
class MetricName:
    """What a name asks for: a measure of which ``view``, ``rank_type``, ``side`` and ``average`` may be not said."""

    definition: Definition
    view: View | None = None
    rank_type: RankType | None = None
    side: Side | None = None
    average: Average | None = None

    def measure(
        self,
        view: View = "base",
        rank_type: RankType = "realistic",
        side: Side = "both",
        average: Average = "micro",
        expectation: ExpectationProvider = DEFAULT_EXPECTATION,
        side_names: tuple[str, str] = ("head", "tail"),
    ) -> Measure:
        """Make the measure; the arguments are for what the name does not say.

        Raises:
            TypeError, ValueError: as ``Measure``.
        """
        said = self.view or view, self.rank_type or rank_type, self.side or side, self.average or average
        return Measure(self.definition, *said, expectation, side_names)


def parse_name(name: str) -> MetricName:
    """Read a metric name: canonical keys, synonyms, PyKEEN's ``side.rank_type.metric``; any case.

    Raises:
        TypeError: if it is not a string.
        ValueError: if it is unknown; the message names the nearest.

    >>> parse_name("hits@10").definition.name, parse_name("tail.best.zMRR").view
    ('hits_at_10', 'z_score')
    """
    if not isinstance(name, str):
        raise TypeError(f"a metric name must be a str, got {type(name).__name__}")
    if len(name) > _LONGEST:
        raise ValueError(f"unknown metric {shown(name)}; {_LISTED}")
    rest = re.sub(r"[\s\-]+", "_", name.strip().lower())
    result = _parse_qualified(rest.replace(".", "_") if re.match(r"[a-z]+\.", rest) else rest)
    if result is None:
        raise ValueError(f"unknown metric {shown(name)}{told_of(rest) or _nearest(rest)}")
    return result


def asked(
    metric: Asked | MetricName,
    expectation: ExpectationProvider | None = None,
    *,
    view: View | None = None,
    rank_type: RankType | None = None,
    side: Side | None = None,
    average: Average | None = None,
    called: str = "metric",
) -> Measure:
    """The measure that a name, a definition or what holds one says, completed by keywords, of which None says nothing.

    Args:
        metric: what is asked for.
        expectation: what gives moments by chance; None: that of the measure, else exact.
        view: of the measure, like what follows.
        rank_type: as there.
        side: as there.
        average: as there.
        called: what errors call it.

    Raises:
        TypeError, ValueError: as ``parse_name`` and ``Measure``; and if a keyword differs from what the name says.

    >>> asked("tail.zmrr", rank_type="optimistic").key
    'tail_optimistic_z_mrr'
    """
    name = parse_name(metric) if isinstance(metric, str) else measure_of(metric) if has_measure(metric) else metric
    given = {"view": view, "rank_type": rank_type, "side": side, "average": average}
    for keyword, value in given.items():
        said = getattr(name, keyword, None)
        if said is not None and value not in (None, said):
            called = metric if isinstance(metric, str) else asked(metric).key
            raise ValueError(
                f"{shown(called)} says {keyword}={said!r} itself, but {keyword}={shown(value)} was passed: "
                "leave one out"
            )
    definition = name.definition if isinstance(name, MetricName | Measure) else name
    if not isinstance(definition, RankDefinition | QueryDefinition):
        raise TypeError(
            f"{called} must be a RankDefinition, a QueryDefinition or a name such as 'mrr', "
            f"got {type(definition).__name__}"
        )
    if isinstance(name, Measure):
        return name if expectation is None else replace(name, expectation=expectation)
    name = name if isinstance(name, MetricName) else MetricName(definition)
    options: dict[str, Any] = {keyword: value for keyword, value in given.items() if value is not None}
    return name.measure(**options, expectation=DEFAULT_EXPECTATION if expectation is None else expectation)


def base_definition(metric: str | RankDefinition) -> RankDefinition:
    """Read a base metric of tasks: a name that says no view, rank type, side or average; or a definition as it is.

    Raises:
        TypeError, ValueError: as ``parse_name``, and for a name that says more or is of a metric of queries.
    """
    name = MetricName(metric) if isinstance(metric, RankDefinition) else parse_name(metric)
    if name != MetricName(name.definition):
        raise ValueError(f"metric must name a base metric, such as {shown(name.definition.name)}; got {shown(metric)}")
    if (definition := name.definition.of_tasks) is None:
        raise ValueError(
            f"metric must be of single tasks, such as 'mrr'; {shown(name.definition.name)} is one of queries"
        )
    return definition


def _parse_qualified(text: str) -> MetricName | None:
    """Side, rank type and average, each at most once, in any order, before the metric in its view."""
    said: dict[str, Any] = {}
    while (found := _parse_view(text)) is None:  # first: the average of average_precision is part of the word
        word, _, rest = text.partition("_")
        part = next((part for part, words in _QUALIFIERS.items() if part not in said and word in words), None)
        if part is None:
            return None
        said[part], text = _QUALIFIERS[part][word], rest
    return MetricName(*found, **said)


def _parse_view(text: str) -> tuple[Definition, View | None] | None:
    text = WITH_VIEW.get(text, text)
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
    if query_metric := parse_query_metric(text):
        return query_metric
    text = SYNONYMS.get(text, text)
    if text in _DEFINITIONS:
        return _DEFINITIONS[text]
    if match := re.fullmatch(r"h(?:its)?(?:@|_at_|_)?(\d+)", text):
        return hits_at(int(match[1]))
    if text == "hits":
        raise ValueError(needs_a_number(text, "hits_at_10"))
    if (match := re.fullmatch(r"(.+)(?:@|_at_)k", text)) and (definition := _parse_base(f"{match[1]}@10")):
        raise ValueError(needs_a_number(text, definition.name))
    if match := re.fullmatch(r"power_mean_rank_(minus_)?(\d+(?:[p.]\d+)?|inf)", text):
        return power_mean_rank(float(match[2].replace("p", ".")) * (-1 if match[1] else 1))
    return None


def all_names() -> list[str]:
    """Canonical names of all metrics without a view, ``<k>`` and ``<p>`` for their numbers."""
    cut = [f"{word}_at_<k>" for word in CUT]
    return [*_DEFINITIONS, "hits_at_<k>", "power_mean_rank_<p>", *cut, *WHOLE]


def synonyms_of(name: str) -> list[str]:
    """What else a metric of ``all_names`` is called, views apart."""
    word = name.removesuffix("_at_<k>")
    found = [synonym for synonym, known in SYNONYMS.items() if known == name]
    if word in CUT and word != name:
        cut = [word, *(synonym for synonym, known in QUERY_SYNONYMS.items() if known == word)]
        found += [f"{one}@<k>" for one in cut]
    elif name in WHOLE:
        found += [synonym for synonym, known in QUERY_SYNONYMS.items() if known == name and synonym not in OF_TASKS]
    return [*found, "hits@<k>", "h@<k>"] if word == "hits" else found


def _nearest(text: str) -> str:
    """The names that look like a text in the same view and with the same cut: others would mislead."""
    view = next((prefix for prefix in VIEW_PREFIXES.values() if prefix and text.startswith(prefix)), "")
    match = re.fullmatch(r"(.*?)(?:@|_at_|_cut_|_)*(\d*)", text.removeprefix(view))
    word, k = (match[1], match[2]) if match else (text, "")
    if k and word in (*_DEFINITIONS, *SYNONYMS, *WITH_VIEW):
        return f": {word!r} is of all ranks and takes no @{k}; hits_at_{k} and rr_at_{k} look at the first {k}"
    synonyms = {**QUERY_SYNONYMS, **{word: word for word in (*CUT, "hits")}, "h": "hits"}
    words = {word: f"{name}_at_{k or 10}" for word, name in synonyms.items() if name in (*CUT, "hits")}
    if not k:
        whole = {word: name for word, name in QUERY_SYNONYMS.items() if name in WHOLE and word not in OF_TASKS}
        words |= SYNONYMS | whole | {name: name for name in (*_DEFINITIONS, *WHOLE)} | ({} if view else WITH_VIEW)
    words["power_mean_rank"] = f"power_mean_rank_{exponent_name(2)}"
    turned = [near for near in words if sorted(near) == sorted(word)]  # ngcd
    close = turned or difflib.get_close_matches(word, words, n=3, cutoff=0.65)
    meant = dict.fromkeys(name for near in close if (name := _seen(view + words[near])))
    return f"; did you mean {' or '.join(map(repr, meant))}? {_LISTED}" if meant else f"; {_LISTED}"


def _seen(name: str) -> str | None:
    """The key of a name; None where its view has no meaning."""
    try:
        return parse_name(name).measure().key
    except ValueError:
        return None
