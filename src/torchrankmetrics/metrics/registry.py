"""The registry: one table of all metrics with their names, synonyms and parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torchrankmetrics.definitions import tasks
from torchrankmetrics.definitions.protocol import Definition, View
from torchrankmetrics.definitions.tasks import RankDefinition


class Number(NamedTuple):
    """A parameter of metrics, which is a number at the end of their names."""

    symbol: str
    joint: str  # between word and number in canonical names
    short_joint: str  # in synonyms
    pattern: str  # joint and number in all spellings
    read: Callable[[str], float]
    meaning: str
    example: str

    def name(self, word: str, number: str = "") -> str:
        """Canonical name of a word with a number; without one, with a placeholder such as <k>."""
        return f"{word}{self.joint}{number or f'<{self.symbol}>'}"


def read_real(text: str) -> float:
    """Read a real number as names contain it: 2, 2.5, 2p5, minus_1, inf."""
    size = text.removeprefix("minus_")
    number = float(size.replace("p", "."))
    return number if size == text else -number


REAL = r"\d+(?:[p.]\d+)?"
PLACES = Number(
    "k", "_at_", "@", r"(?:@|_at_|_cut_|_)?(\d+)", int, "a number of first places", "10"
)
EXPONENT = Number("p", "_", "_", rf"_((?:minus_)?(?:{REAL}|inf))", read_real, "an exponent", "2")
PERSISTENCE = EXPONENT._replace(meaning="a persistence", example="0p8")
NUMBERS = (PLACES, EXPONENT, PERSISTENCE)


class Entry(NamedTuple):
    """A row of the table of metrics."""

    name: str  # canonical, without its number
    # a definition or a maker; or its name in queries
    made: "RankDefinition | Callable[..., Definition] | str"
    synonyms: str = ""  # lower case
    number: Number | None = None  # the parameter of the maker
    is_optional: bool = False  # whether there is a metric without the number, too

    @property
    def words(self) -> list[str]:
        """Name and synonyms."""
        return [self.name, *self.synonyms.split()]

    @property
    def has_whole_name(self) -> bool:
        """Whether its words without a number are names."""
        return self.number is None or self.is_optional

    @property
    def listed_name(self) -> str:
        """Canonical name, with a placeholder for a number that must be given."""
        return self.number.name(self.name) if self.number and not self.is_optional else self.name

    @property
    def is_of_queries(self) -> bool:
        """Whether it averages over queries, not over ranking tasks."""
        return isinstance(self.made, str)

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
    Entry("hits", tasks.hits_at, "h", number=PLACES),
    Entry("power_mean_rank", tasks.power_mean_rank, number=EXPONENT),
    # averages over queries; a synonym of two metrics is the first of them
    Entry("recall", "recall_at", number=PLACES),
    Entry("recall_cap", "capped_recall_at", "r_cap capped_recall", number=PLACES),
    Entry("precision", "precision_at", "p prec", number=PLACES),
    Entry("f1", "f1_at", "f1_score f1_measure f_score f_measure", number=PLACES),
    Entry("fall_out", "fall_out_at", "fallout fall_out_rate", number=PLACES),
    Entry(
        "success",
        "success_at",
        "hr hit hit_rate hit_ratio hitrate s accuracy acc top",
        number=PLACES,
    ),
    Entry(
        "rr",
        "first_reciprocal_rank",
        "mrr mean_reciprocal_rank reciprocal_rank first_reciprocal_rank recip_rank arhr",
        number=PLACES,
        is_optional=True,
    ),
    Entry(
        "ap",
        "average_precision",
        "map average_precision mean_average_precision",
        number=PLACES,
        is_optional=True,
    ),
    Entry("ap_cap", "capped_average_precision", "map_cap capped_map", number=PLACES),
    Entry(
        "ndcg",
        "normalized_dcg",
        "normalized_dcg normalizeddcg normalized_discounted_cumulative_gain",
        number=PLACES,
        is_optional=True,
    ),
    Entry(
        "ndcg_exp", "exponential_ndcg", "exp_ndcg exponential_ndcg", number=PLACES, is_optional=True
    ),
    Entry("dcg", "discounted_gain", "discounted_cumulative_gain", number=PLACES, is_optional=True),
    Entry(
        "rbp",
        "rank_biased_precision",
        "rank_biased_precision",
        number=PERSISTENCE,
        is_optional=True,
    ),
    Entry("r_precision", "R_PRECISION", "r_prec rprec rprecision"),
    Entry("query_auc", "QUERY_AUC", "auroc"),
    Entry("first_mr", "FIRST_MEAN_RANK", "meanr first_mean_rank mean_first_rank"),
    Entry("first_median_rank", "FIRST_MEDIAN_RANK", "medr median_first_rank"),
)


def _with_number(number: Number) -> dict[str, Entry]:
    return {word: one for one in reversed(METRICS) if one.number is number for word in one.words}


# by words without a number, and for each parameter by words before the number; a synonym of two
# metrics is the first of them
WHOLE: dict[str, Entry] = {
    word: one for one in reversed(METRICS) if one.has_whole_name for word in one.words
}
NUMBERED: dict[Number, dict[str, Entry]] = {number: _with_number(number) for number in NUMBERS}
# names that include the view; AMR is the ratio to the expectation, AMRI the index
WITH_VIEW = {
    word: name
    for name, words in {
        "normalized_mr": "amr aamr adjusted_mean_rank adjusted_arithmetic_mean_rank",
        "adjusted_mr": "amri aamri",
        "adjusted_mrr": "amrr aihmr",
        "adjusted_gmr": "gmri agmri",
        "z_mr": "zamr",
        # PyKEEN's keys do not contain k, which is 10
        "adjusted_hits_at_10": "ahk ah@k ah_at_k ahits@k ahits_at_k adjusted_hits_at_k "
        "adjusted_hits@k",
        "z_hits_at_10": "zahk z_hits_at_k z_hits@k",
    }.items()
    for word in words.split()
}
# compact forms of the papers, with the metric in a group: zmrr, ah@10
COMPACT: dict[str, View] = {r"z(.+)": "z_score", r"a(h(?:its)?[_@].*)": "adjusted_index"}
# spellings with the number inside, and what they are read as
SPELLINGS = {r"top_?(\d+)_acc(?:uracy)?": r"top_\1"}
# names that mean two metrics
AMBIGUOUS = {
    rf"r{PLACES.pattern}": (
        "'r@{k}' has two meanings: recall_at_{k}, the share of the relevant items among the first "
        "{k}, and success_at_{k}, whether one of them is there (R@{k} of image-text retrieval); "
        "use one of these names"
    )
}


def all_names() -> dict[str, list[str]]:
    """Return canonical names without a view, with their synonyms; ``<k>`` and ``<p>``: numbers."""
    names: dict[str, list[str]] = {}
    for entry in METRICS:
        number = entry.number
        if entry.has_whole_name:
            names[entry.name] = [word for word in entry.words[1:] if WHOLE[word] is entry]
        # an exponent that may be omitted is not listed
        if number is PLACES or (number is not None and not entry.is_optional):
            name = number.name(entry.name)
            words = [f"{word}{number.short_joint}<{number.symbol}>" for word in entry.words]
            names[name] = [word for word in words if word != name]
    return names
