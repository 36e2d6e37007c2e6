"""Names of metrics: one canonical key each, and every synonym of the papers and of PyKEEN on input."""

import difflib
import re
from dataclasses import dataclass, replace
from typing import Any

from torchrankmetrics.theory import definitions as base
from torchrankmetrics.theory.definitions import RankDefinition, exponent_name, hits_at, power_mean_rank
from torchrankmetrics.theory.sample import RankType
from torchrankmetrics.theory.views import View

_DEFINITIONS = {
    definition.name: definition
    for definition in (
        base.MEAN_RANK,
        base.MEAN_RECIPROCAL_RANK,
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
_SYNONYMS = {
    "mean_rank": "mr",
    "arithmetic_mean_rank": "mr",
    "mean_reciprocal_rank": "mrr",
    "inverse_harmonic_mean_rank": "mrr",
    "ihmr": "mrr",
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
_WITH_VIEW = {
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
_VIEW_PREFIXES: dict[str, View] = {
    "normalized_": "normalized",
    "adjusted_": "adjusted_index",
    "z_": "z_score",
    "p_": "p_value",
}
_SIDES = {"head": "head", "left": "head", "tail": "tail", "right": "tail", "both": None}
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


@dataclass(frozen=True)
class MetricName:
    """What a name asks for; ``view``, ``rank_type`` and ``side`` are None where the name does not say."""

    definition: RankDefinition
    view: View | None = None
    rank_type: RankType | None = None
    side: str | None = None
    says_side: bool = False


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
    rest = re.sub(r"[\s\-]+", "_", name.strip().lower())
    result = _parse_prefixed(rest.replace(".", "_") if re.match(r"[a-z]+\.", rest) else rest)
    if result is None:
        raise ValueError(f"unknown metric {name!r}{_nearest(rest)}")
    return result


@dataclass(frozen=True)
class Said:
    """A metric of which everything is said."""

    definition: RankDefinition
    view: View
    rank_type: RankType
    side: str | None


def said_by(
    metric: RankDefinition | str | MetricName, view: View | None, rank_type: RankType | None, side: str | None
) -> Said:
    """Complete what a name or a definition says by keywords, of which None says nothing.

    Raises:
        TypeError, ValueError: as ``parse_name``; and if a keyword differs from what the name says.

    >>> said_by("tail.zmrr", None, "optimistic", None).view
    'z_score'
    """
    name = metric if isinstance(metric, MetricName) else MetricName(metric)  # type: ignore[arg-type]
    if isinstance(metric, str):
        name = parse_name(metric)
    called = metric if isinstance(metric, str) else None
    view = _agreed(called, name, "view", name.view, view, name.view is not None)
    rank_type = _agreed(called, name, "rank_type", name.rank_type, rank_type, name.rank_type is not None)
    side = _agreed(called, name, "side", name.side, side, name.says_side)
    return Said(
        name.definition, "base" if view is None else view, "realistic" if rank_type is None else rank_type, side
    )


def _agreed(called: str | None, name: MetricName, keyword: str, said: Any, given: Any, says: bool) -> Any:
    if says and given is not None and given != said:
        called = called or key_of(name.definition, name.view or "base")
        raise ValueError(
            f"{called!r} says {keyword}={said!r} itself, but {keyword}={given!r} was passed: leave one out"
        )
    return said if says else given


def key_of(
    definition: RankDefinition, view: View = "base", rank_type: RankType = "realistic", side: str | None = None
) -> str:
    """Write the canonical key, ``[side_][rank_type_][view_]name``: ``mrr``, ``tail_z_mrr``; ``amr`` and ``amri``.

    >>> key_of(parse_name("mr").definition, "adjusted_index", side="head")
    'head_amri'
    """
    parts = [] if side is None else [side]
    if rank_type != "realistic":
        parts.append(rank_type)
    if definition.name == "mr" and view in ("normalized", "adjusted_index"):
        return "_".join([*parts, "amr" if view == "normalized" else "amri"])
    prefix = {view: prefix for prefix, view in _VIEW_PREFIXES.items()}.get(view, "")
    return "_".join([*parts, prefix + definition.name])


def _parse_prefixed(text: str) -> MetricName | None:
    head, _, tail = text.partition("_")
    if head in _SIDES and (inner := _parse_prefixed(tail)) is not None and not inner.says_side:
        return replace(inner, side=_SIDES[head], says_side=True)
    if head in _RANK_TYPES and (inner := _parse_prefixed(tail)) is not None and inner.rank_type is None:
        return replace(inner, rank_type=_RANK_TYPES[head]) if not inner.says_side else None
    return _parse_view(text)


def _parse_view(text: str) -> MetricName | None:
    text = _WITH_VIEW.get(text, text)
    definition = _parse_base(text)
    if definition is not None:
        return MetricName(definition)
    for prefix, view in _VIEW_PREFIXES.items():
        if text.startswith(prefix):
            inner = text.removeprefix(prefix)
            definition = _parse_base(inner) or (_parse_base(inner.removesuffix("_index")))
            if definition is not None:
                return MetricName(definition, view)
    # the compact forms of the papers: zmrr, ah@10
    if text[:1] == "z" and (definition := _parse_base(text[1:])) is not None:
        return MetricName(definition, "z_score")
    if re.fullmatch(r"ah(its)?[_@].*", text) and (definition := _parse_base(text[1:])) is not None:
        return MetricName(definition, "adjusted_index")
    return None


def _parse_base(text: str) -> RankDefinition | None:
    text = _SYNONYMS.get(text, text)
    if text in _DEFINITIONS:
        return _DEFINITIONS[text]
    if match := re.fullmatch(r"h(?:its)?(?:@|_at_|_)(\d+)", text):
        return hits_at(int(match[1]))
    if match := re.fullmatch(r"power_mean_rank_(minus_)?(\d+(?:[p.]\d+)?|inf)", text):
        return power_mean_rank(float(match[2].replace("p", ".")) * (-1 if match[1] else 1))
    return None


def _nearest(text: str) -> str:
    known = [*_DEFINITIONS, *_SYNONYMS, *_WITH_VIEW, "hits_at_10", f"power_mean_rank_{exponent_name(2)}"]
    known += [prefix + name for prefix in _VIEW_PREFIXES for name in (*_DEFINITIONS, "hits_at_10")]
    close = difflib.get_close_matches(text, known, n=3, cutoff=0.5)
    if not close:
        return "; known are mr, mrr, hits_at_<k>, amri, adjusted_mrr, z_mrr and their kin (see the docs)"
    return f"; did you mean {' or '.join(repr(name) for name in close)}?"
