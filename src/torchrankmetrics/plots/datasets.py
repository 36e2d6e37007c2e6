"""Plots over datasets and groups: values with intervals, differences, mean ranks, breakdowns."""

from __future__ import annotations  # help() shows the names of types

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.protocol import View
from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.inference.sources import ClusteredSource
from torchrankmetrics.inference.standard_errors import estimate
from torchrankmetrics.metrics.breakdown import Breakdown
from torchrankmetrics.metrics.measure import Measure, affine_view
from torchrankmetrics.metrics.names import base_definition
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.plots import canvas as draw
from torchrankmetrics.rendering import paper_name
from torchrankmetrics.validation import check_choice, check_int, shorten

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure, Models

Ends = tuple[float, float, float]


def differences(
    rows: Mapping[str, Ends], averages: Mapping[str, Ends], label: str, *, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw differences of two models by dataset, and below them averages as diamonds.

    Args:
        rows (mapping): dict of dataset -> (difference, low, high).
        averages (mapping): dict of name -> such.
        label (str): of the axis: the subtracted model and the better direction for whom.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> from torchrankmetrics.plots import differences
    >>> rows = {"nations": (0.1, 0.02, 0.18)}
    >>> fig, ax = differences(rows, {"mean": (0.1, 0.0, 0.2)}, "difference of MRR")
    """
    draw.check_series(rows, most=None)
    names = [*rows, *averages]
    fig, ax = draw.canvas(ax, width=4.6, height=0.9 + 0.24 * len(names))
    for y, (value, low, high) in enumerate(rows.values()):
        ax.hlines(y, low, high, color="0.5", linewidth=2.5)
        ax.plot(value, y, "o", color=draw.ink(ax), markersize=4)
    for y, (value, low, high) in enumerate(averages.values(), len(rows)):
        ax.fill([low, value, high, value], [y, y - 0.32, y, y + 0.32], color=draw.MARKS[1][0])
    draw.zero_line(ax)
    if averages:
        ax.axhline(len(rows) - 0.5, color="0.6", linewidth=0.8)
    draw.label_rows(ax, names, label, fontsize=draw.SMALL + 0.5)
    ax.tick_params(labelsize=draw.SMALL)
    ax.locator_params(axis="x", nbins=5)
    return fig, ax


_VIEWS: tuple[View, ...] = ("base", "adjusted_index", "z_score")


def by_dataset(
    evaluations: Mapping[str, Models],
    metric: str = "mrr",
    *,
    confidence_level: float = 0.95,
    ax: Sequence[Axes] | None = None,
) -> tuple[Figure, list[Axes]]:
    """Draw base value, adjusted index and z-score of a metric by dataset.

    Random ranking is marked in every panel: its expectation on each dataset in the first, 0 in the
    others. z is drawn on a logarithmic axis where all are positive and span more than a factor of
    30. No line joins datasets, which have no order. Intervals, for means of f, describe other test
    tasks.

    Args:
        evaluations (mapping): dict of dataset -> evaluation, or of dataset -> dict of model ->
            evaluation. At most six models, on the same tasks within a dataset.
        metric (str, default "mrr"): a base metric that has an index and a z-score, by any name.
        confidence_level (float, default 0.95): of the intervals.
        ax (sequence of matplotlib Axes, default None): three axes to draw on; None: new ones.

    Returns:
        The figure and its three axes.

    Source: after Hoyt et al. 2022 (arXiv 2203.07544), figure 1.

    >>> from torchrankmetrics.plots import by_dataset
    >>> from torchrankmetrics import Ranks
    >>> nations = Ranks([1, 2, 5], None, 14)
    >>> kinships = Ranks([1, 9, 4], None, 104)
    >>> fig, axes = by_dataset({"nations": nations, "kinships": kinships})
    >>> len(axes)
    3
    """
    confidence_level = check_confidence_level(confidence_level)
    data = _datasets(evaluations, metric)
    models = list(dict.fromkeys(model for one in data for model in one.analyses))
    draw.check_series(models)
    if ax is not None and (hasattr(ax, "get_xlim") or len(ax) != 3):
        raise ValueError(
            f"ax must be 3 axes, as in fig, ax = plt.subplots(1, 3); got {shorten(ax)}"
        )
    axes: list[Axes] = list(draw.new_axes(8.7, 3.0, 3) if ax is None else ax)
    fig, _ = draw.canvas(axes[0])
    # (datasets, models, 3): value, low, high
    ends = np.array([one.intervals(models, confidence_level) for one in data])
    for panel, view in zip(axes, _VIEWS, strict=True):
        values = _draw_view(panel, data, models, ends.swapaxes(0, 1), view)
    _draw_random(axes, data, values[np.isfinite(values)])
    if ax is None:
        fig.legend(
            *axes[0].get_legend_handles_labels(),
            frameon=False,
            fontsize=draw.SMALL,
            ncols=4,
            loc="outside upper center",
        )
    else:
        draw.legend(axes[0])
    return fig, axes


def _datasets(evaluations: Mapping[str, Models], metric: str) -> list[_Dataset]:
    definition = base_definition(metric)
    if not definition.has_view("adjusted_index"):
        raise ValueError(
            f"metric must have an adjusted index, as 'mrr' or 'mr' have; {shorten(metric)} has none"
        )
    if not isinstance(evaluations, Mapping):
        raise TypeError(
            f"evaluations must be a dict of dataset -> evaluation, got {type(evaluations).__name__}"
        )
    return [_Dataset(str(name), given, definition) for name, given in evaluations.items()]


class _Dataset:
    """Evaluations of the models of a dataset, on the same candidates, and random ``moments``."""

    def __init__(self, name: str, given: Models, definition: RankDefinition) -> None:
        if isinstance(given, Mapping) and not given:
            raise ValueError(
                f"dataset {shorten(name)} has no evaluation: leave it out, or pass at least one"
            )
        self.name = name
        self.definition = definition
        self.analyses = draw.analyses_of(given, name)
        counts = [one.sample().candidate_counts for one in self.analyses.values()]
        if len({one.digest for one in counts}) > 1:
            remedy = (
                "so that random ranking differs between them; evaluate them on the same tasks with "
                "the same filter"
            )
            raise ValueError(
                f"the models of dataset {shorten(name)} were ranked among different candidates, "
                f"{remedy}"
            )
        self.moments = DEFAULT_EXPECTATION.moments(definition, counts[0])

    def intervals(self, models: list[str], confidence_level: float) -> list[list[float]]:
        """Values of models and the ends of their intervals."""
        return [self.interval(model, confidence_level) for model in models]

    def interval(self, model: str, confidence_level: float) -> list[float]:
        """Value of a model and the ends of its interval; NaN where there is none."""
        if model not in self.analyses:
            return [math.nan] * 3
        analysis = self.analyses[model]
        measure = Measure(self.definition)
        value = measure.value(analysis)
        if analysis.sample().num_tasks < 2 or not self.definition.is_function_of_mean():
            return [value, math.nan, math.nan]
        sample, clusters = ClusteredSource(analysis, "auto").sample(measure)
        found = estimate(self.definition, sample, "realistic", confidence_level, "normal", clusters)
        return [value, found.low, found.high]


def _draw_view(
    panel: Axes, data: list[_Dataset], models: list[str], ends: FloatArray, view: View
) -> FloatArray:
    """Draw a panel of values and intervals in a view; return the values (models, datasets)."""
    definition = data[0].definition
    x = np.arange(len(data))
    step = 0.62 / len(models)
    values = _in_view(data, ends, view)
    marks = zip(models, draw.marks_on(panel), strict=False)
    for i, (model, (color, _, marker)) in enumerate(marks):
        _draw_model(
            panel,
            x + (i - (len(models) - 1) / 2) * step,
            values[i],
            color,
            marker,
            model or definition.name,
        )
    turn: dict[str, Any] = {"rotation": 35, "ha": "right"} if len(data) > 3 else {}
    panel.set_xticks(x, [one.name for one in data], fontsize=draw.SMALL, **turn)
    panel.set_xlim(-0.5, len(data) - 0.5)
    panel.set_title(paper_name(Measure(definition, view).key), fontsize=10)
    return np.asarray(values[..., 0])


def _in_view(data: list[_Dataset], ends: FloatArray, view: View) -> FloatArray:
    """Base values (models, datasets, 3) in a view."""
    values = np.empty_like(ends)
    for j, one in enumerate(data):
        change = affine_view(one.definition, view, one.moments)[0]
        values[:, j] = np.vectorize(change, otypes=[float])(ends[:, j])
    return values


def _draw_model(
    panel: Axes, x: npt.NDArray[Any], values: FloatArray, color: str, marker: str, label: str
) -> None:
    """Draw values with their intervals, (datasets, 3): value and two ends in any order."""
    low, high = np.sort(values[:, 1:], axis=1).T
    panel.plot(x, values[:, 0], marker, label=label, color=color, markersize=5.5)
    panel.vlines(x, low, high, color=color, linewidth=1.3)


def _draw_random(axes: list[Axes], data: list[_Dataset], scores: FloatArray) -> None:
    """Mark the random baseline of each panel; z-scores far apart are on a log axis, without 0."""
    means = [one.moments.mean for one in data]
    axes[0].plot(range(len(data)), means, "_", markersize=16, label="random ranking", **draw.RANDOM)
    if data[0].definition.bounds("base")[0] == 0:
        axes[0].set_ylim(bottom=0)
    for panel, border in itertools.product(axes, range(1, len(data))):
        panel.axvline(border - 0.5, color=draw.RANDOM["color"], linewidth=0.4, alpha=0.5)
    is_log = scores.size and scores.min() > 0 and scores.max() > 30 * scores.min()
    if is_log:
        axes[2].set_yscale("log")
    for panel in axes[1:2] if is_log else axes[1:]:
        panel.axhline(0, linestyle=(0, (1, 1)), **draw.RANDOM)


def groups(
    breakdown: Breakdown, metric: str, *, most: int = 25, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw a bar per group, in the order of the breakdown, with its number of tasks.

    Args:
        breakdown (Breakdown): the result of ``RankCollection.breakdown``; ``sort`` it first for
            another order.
        metric (str): one of its columns, for example "mrr" or "adjusted_mrr".
        most (int, default 25): bars at most; of more groups the largest are drawn, with a note on
            the axis.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> from torchrankmetrics.plots import groups
    >>> from torchrankmetrics import Ranks, RankTable
    >>> table = RankTable.from_ranks(Ranks([1, 2, 5], None, 14), group=[0, 0, 1])
    >>> fig, ax = groups(table.breakdown(["mrr"]), "mrr")
    """
    if not isinstance(breakdown, Breakdown):
        raise TypeError(
            f"breakdown must come from RankCollection.breakdown(), got {type(breakdown).__name__}"
        )
    check_choice("metric", metric, breakdown.columns[2:])
    check_int("most", most, 1)
    draw.check_series(breakdown.rows, most=None)
    counts = np.array(breakdown["count"], dtype=np.int64)
    largest = np.sort(np.argsort(-counts, kind="stable")[:most])
    values = np.array([breakdown[metric][i] for i in largest], dtype=np.float64)
    fig, ax = draw.canvas(ax, height=0.9 + 0.27 * len(largest))
    ax.barh(
        range(len(largest)),
        np.nan_to_num(values),
        color="0.7",
        edgecolor=draw.ink(ax),
        linewidth=0.6,
        height=0.72,
    )
    for y, (value, count) in enumerate(zip(values, counts[largest], strict=True)):
        tasks = f"{count} tasks"
        draw.beside(ax, y, f"undefined, {tasks}" if math.isnan(value) else tasks)
    ax.axvline(0, color=draw.ink(ax), linewidth=0.8)
    note = ""
    if len(largest) < len(counts):
        note = f" (the {len(largest)} largest of {len(counts)} groups)"
    draw.label_rows(ax, [str(breakdown["group"][i]) for i in largest], paper_name(metric) + note)
    return fig, ax
