"""Plots of values: a metric across data sets and views, intervals, and groups."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrankmetrics.checks import check_int
from torchrankmetrics.evaluation.breakdown import Breakdown
from torchrankmetrics.evaluation.comparison import Comparison, Comparisons
from torchrankmetrics.evaluation.intervals import Interval, Intervals
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.names import parse_name
from torchrankmetrics.plots.canvas import (
    CHANCE,
    MARKS,
    SMALL,
    Models,
    canvas,
    check_series,
    definition_of_ranks,
    panels,
    sample_of_model,
)
from torchrankmetrics.theory.candidates import CandidateCounts
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.values import base_value
from torchrankmetrics.theory.views import View, apply_view, has_view

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = Intervals | Comparison | Comparisons
_VIEWS: tuple[View, ...] = ("base", "adjusted_index", "z_score")


def by_dataset(
    evaluations: Mapping[str, Models], metric: str = "mrr", *, ax: "Sequence[Axes] | None" = None
) -> "tuple[Figure, list[Axes]]":
    """Draw base value, adjusted index and z-score of a metric by data set: what changes when only the view does.

    Chance is marked in every panel: the expectation on each data set in the first, 0 in the others. z is drawn on a
    logarithmic axis where all are positive and span more than a factor of 30.

    Args:
        evaluations: dict of data set -> evaluation, or of data set -> dict of model -> evaluation (at most six
            models, on the same tasks within a data set).
        metric: a base metric that has an index and a z-score, by any name.
        ax: three axes to draw on; None: new ones.

    Raises:
        ImportError: without matplotlib.
        TypeError, ValueError: for arguments of another kind, and for evaluations without tasks.

    Source: after Hoyt et al. 2022 (arXiv 2203.07544), figure 1.
    """
    definition = definition_of_ranks(metric)
    if not has_view(definition, "adjusted_index"):
        raise ValueError(f"metric must have an adjusted index, as 'mrr' or 'mr' have; {metric!r} has none")
    if not isinstance(evaluations, Mapping):
        raise TypeError(f"evaluations must be a dict of data set -> evaluation, got {type(evaluations).__name__}")
    table = {str(name): _samples(str(name), models) for name, models in evaluations.items()}
    models = list(dict.fromkeys(model for samples in table.values() for model in samples))
    check_series(models)
    moments = {
        name: DEFAULT_EXPECTATION.moments(definition, _shared_counts(name, samples)) for name, samples in table.items()
    }
    fig, axes = panels(ax, 3)
    x = np.arange(len(table))
    for panel, view in zip(axes, _VIEWS, strict=True):
        for model, mark in zip(models, MARKS, strict=False):
            y = [
                apply_view(definition, view, base_value(definition, samples[model]), moments[name])
                if model in samples
                else math.nan
                for name, samples in table.items()
            ]
            look: dict[str, Any] = {
                "color": mark.color,
                "linestyle": mark.line,
                "marker": mark.marker,
                "markersize": 5.5,
            }
            panel.plot(x, y, label=model or definition.name, **look)
        if view == "base":
            panel.plot(x, [m.mean for m in moments.values()], "_", markersize=16, label="chance", **CHANCE)
        many = len(table) > 3
        panel.set_xticks(x, list(table), rotation=35 if many else 0, ha="right" if many else "center", fontsize=SMALL)
        panel.set_xlim(-0.4, len(table) - 0.6)
        panel.set_title(Measure(definition, view).key, fontsize=10)
    z = np.array([line.get_ydata() for line in axes[2].lines])
    if np.nanmin(z) > 0 and np.nanmax(z) > 30 * np.nanmin(z):
        axes[2].set_yscale("log")
    for panel in axes[1:] if axes[2].get_yscale() == "linear" else axes[1:2]:
        panel.axhline(0, linestyle=(0, (1, 1)), **CHANCE)
    handles, labels = axes[0].get_legend_handles_labels()
    # lines of categories fill a panel: outside, unless the figure is the user's
    if ax is None:
        fig.legend(handles, labels, frameon=False, fontsize=SMALL, ncols=4, loc="outside upper center")
    else:
        axes[0].legend(handles, labels, frameon=False, fontsize=SMALL)
    return fig, axes


def forest(
    results: Result | Mapping[str, Result], metrics: Sequence[str] | None = None, *, ax: "Axes | None" = None
) -> "tuple[Figure, Axes]":
    """Draw intervals below each other, with their numbers; differences of two models against a line at 0.

    Args:
        results: what ``RankCollection.confidence_intervals`` gives, or a dict of model -> such; or what ``compare``
            gives, or a dict of name -> such.
        metrics: the metrics to draw, as they are called there; None: all.
        ax: axes to draw on; None: new ones.

    Raises:
        ImportError: without matplotlib.
        TypeError, ValueError: for results of another kind, metrics that they do not have, and metrics that cannot be
            read on one axis (a mean rank of 300 beside an MRR of 0.3).
    """
    named = results if isinstance(results, Mapping) else {"": results}
    lines = [(str(name), row) for name, one in named.items() for row in _rows(str(name), one)]
    if metrics is not None:
        for name in named:
            there = [row.metric for model, row in lines if model == str(name)]
            if missing := [metric for metric in metrics if metric not in there]:
                raise ValueError(f"metrics {', '.join(map(repr, missing))} are not there; there are {', '.join(there)}")
        lines = [line for line in lines if line[1].metric in metrics]
    check_series(lines, most=None)
    compared = {isinstance(row, Comparison) for _, row in lines}
    if len(compared) > 1:
        raise ValueError("intervals of values and of differences cannot be read on one axis; draw them in two plots")
    keys = list(dict.fromkeys(row.metric for _, row in lines))
    _check_scales(keys)
    lines.sort(key=lambda line: keys.index(line[1].metric))  # models of one metric below each other
    rows = np.arange(len(lines))
    center = np.array([row.difference if isinstance(row, Comparison) else row.value for _, row in lines])
    low, high = np.array([row.low for _, row in lines]), np.array([row.high for _, row in lines])
    fig, ax = canvas(ax, width=7.0, height=0.9 + 0.3 * len(lines))
    ax.hlines(rows, low, high, color="0.55", linewidth=5)
    ax.plot(center, rows, "|", color="black", markersize=10, markeredgewidth=1.8)
    sign = "+" if compared == {True} else ""
    for y, (value, left, right, (_, row)) in enumerate(zip(center, low, high, lines, strict=True)):
        text = f"{value:{sign}.4f} [{left:{sign}.4f}, {right:{sign}.4f}]"
        if isinstance(row, Comparison) and row.p_adjusted is not None:
            text += f"  p = {row.p_adjusted:.2g}"
        ax.annotate(text, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL)
    ax.set_yticks(rows, [" ".join(part for part in (row.metric, name) if part) for name, row in lines])
    ax.set_ylim(len(lines) - 0.4, -0.6)
    levels = {_level(one) for one in named.values()}
    share = " and ".join(f"{100 * level:g}" for level in sorted(levels))
    if compared == {True}:
        ax.axvline(0, linestyle=(0, (1, 1)), **CHANCE)
        holm = ", p by Holm" if any(isinstance(one, Comparisons) for one in named.values()) else ""
        ax.set_xlabel(f"difference, {share} % interval{holm}")
    else:
        ax.set_xlabel(f"value, {share} % interval")
    return fig, ax


def groups(breakdown: Breakdown, metric: str, *, most: int = 25, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
    """Draw a bar per group, in the order of the breakdown, with its number of tasks.

    Args:
        breakdown: what ``RankCollection.breakdown`` gives; ``sort`` it first for another order.
        metric: one of its columns, for example "mrr" or "adjusted_mrr".
        most: bars at most; of more groups the largest are kept, and the axis says so.
        ax: axes to draw on; None: new ones.

    Raises:
        ImportError: without matplotlib.
        TypeError, ValueError: for arguments of another kind, columns that are not there, and an empty breakdown.
    """
    if not isinstance(breakdown, Breakdown):
        raise TypeError(f"breakdown must come from RankCollection.breakdown(), got {type(breakdown).__name__}")
    columns = breakdown.columns[2:]
    if metric not in columns:
        raise ValueError(f"metric must be one of the columns {', '.join(columns)}; got {metric!r}")
    check_int("most", most, 1)
    check_series(breakdown.rows, most=None)
    counts = np.array(breakdown["count"], dtype=np.int64)
    kept = np.sort(np.argsort(-counts, kind="stable")[:most])
    names = [str(breakdown["group"][i]) for i in kept]
    values = np.array([breakdown[metric][i] for i in kept], dtype=np.float64)
    fig, ax = canvas(ax, height=0.9 + 0.27 * len(kept))
    rows = np.arange(len(kept))
    ax.barh(rows, np.nan_to_num(values), color="0.7", edgecolor="black", linewidth=0.6, height=0.72)
    for y, (value, count) in enumerate(zip(values, counts[kept], strict=True)):
        text = f"{count} tasks" if not math.isnan(value) else f"undefined, {count} tasks"
        ax.annotate(text, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(rows, names)
    ax.set_ylim(len(kept) - 0.4, -0.6)
    left_out = len(counts) - len(kept)
    ax.set_xlabel(metric + (f" (the {len(kept)} largest of {len(counts)} groups)" if left_out else ""))
    return fig, ax


def _samples(name: str, models: Models) -> dict[str, RankSample]:
    if isinstance(models, Mapping):
        if not models:
            raise ValueError(f"data set {name!r} has no evaluation: leave it out, or pass at least one")
        return {str(model): sample_of_model(one, f"{name}, {model}") for model, one in models.items()}
    return {"": sample_of_model(models, name)}


def _shared_counts(name: str, samples: Mapping[str, RankSample]) -> CandidateCounts:
    counts = [sample.candidate_counts for sample in samples.values()]
    if len({one.digest for one in counts}) > 1:
        raise ValueError(
            f"the models of data set {name!r} were ranked among different candidates, so that chance is not the same "
            "for all; evaluate them on the same tasks with the same filter"
        )
    return counts[0]


def _rows(name: str, result: Any) -> Sequence[Interval | Comparison]:
    if isinstance(result, Comparison):
        return (result,)
    if isinstance(result, Intervals | Comparisons):
        return result.rows
    about = f" of {name!r}" if name else ""
    raise TypeError(
        f"the result{about} must come from RankCollection.confidence_intervals() or compare(), or be a dict of name -> "
        f"such; got {type(result).__name__}"
    )


def _level(result: Any) -> float:
    level: float = result.rows[0].level if isinstance(result, Comparisons) else result.level
    return level


def _check_scales(keys: Sequence[str]) -> None:
    scales: dict[str, list[str]] = {}
    for key in keys:
        scales.setdefault(_scale(key), []).append(key)
    scales.pop("", None)
    if len(scales) > 1:
        kinds = "; ".join(f"{kind}: {', '.join(map(repr, members))}" for kind, members in scales.items())
        raise ValueError(f"metrics of different scales cannot be read on one axis; pick some by metrics=[...]. {kinds}")


def _scale(key: str) -> str:
    """What an axis of a metric counts; nothing is known of a user's own keys."""
    try:
        name = parse_name(key.rpartition("/")[2])
    except ValueError:
        return ""
    if name.view == "z_score":
        return "standard deviations"
    if name.view in ("normalized", "adjusted_index"):
        return "shares" if name.view == "adjusted_index" else "ratios to chance"
    if name.definition.name == "rank_variance":
        return "squared ranks"
    return "shares" if name.definition.higher_is_better or name.definition.aggregation == "tie_rate" else "ranks"
