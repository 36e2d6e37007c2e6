"""Plots over datasets and groups: values with intervals, differences, mean ranks, breakdowns."""

from __future__ import annotations  # help() shows the names of types

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrankmetrics.definitions.protocol import View
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.inference.standard_errors import estimate
from torchrankmetrics.metrics.breakdown import Breakdown
from torchrankmetrics.metrics.measure import Measure, affine_view
from torchrankmetrics.metrics.registry import base_definition
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.plots import canvas as draw
from torchrankmetrics.rendering import paper_name
from torchrankmetrics.validation import check_choice, check_int, shorten

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure, Models
    from torchrankmetrics.study.across import Ranking

Ends = tuple[float, float, float]


def intervals_by_dataset(
    cells: Mapping[str, Mapping[str, Ends]],
    metric: str,
    *,
    chance: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw a row per dataset with a point and an interval per model; no line joins datasets, which have no order.

    Args:
        cells (mapping): dict of dataset -> dict of model -> (value, low, high), NaN ends without an
            interval; at most 6 models.
        metric (str): label of the axis.
        chance (mapping, default None): value by chance of each dataset, marked by a bar.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> fig, ax = intervals_by_dataset({"nations": {"model": (0.5, 0.4, 0.6)}}, "MRR")
    """
    models = list(dict.fromkeys(model for row in cells.values() for model in row))
    draw.check_series(models)
    step = 0.7 / len(models)
    fig, ax = draw.canvas(ax, width=4.6, height=1.1 + len(cells) * max(0.3, 0.14 * len(models)))
    for i, (model, (color, _, marker)) in enumerate(zip(models, draw.marks_on(ax), strict=False)):
        there = [(y, *row[model]) for y, row in enumerate(cells.values()) if model in row]
        row, value, low, high = np.array(there, dtype=np.float64).T
        y = row + (i - (len(models) - 1) / 2) * step
        ax.hlines(y, low, high, color=color, linewidth=1.4)
        ax.plot(value, y, marker, color=color, markersize=4.5, label=model)
    if bars := [(chance[name], y) for y, name in enumerate(cells) if chance and name in chance]:
        ax.plot(*zip(*bars, strict=True), "|", markersize=12, label="chance", **draw.CHANCE)
    draw.label_rows(ax, list(cells), metric, 0.5)
    ax.tick_params(labelsize=draw.SMALL)
    ax.tick_params(axis="y", length=0)
    for row in range(1, len(cells)):
        ax.axhline(row - 0.5, color="0.85", linewidth=0.6, zorder=0)
    draw.legend(ax, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), handletextpad=0.3)
    return fig, ax


def differences(
    rows: Mapping[str, Ends], averages: Mapping[str, Ends], label: str, *, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw differences of two models by dataset against a line at 0, and below them their averages as diamonds.

    Args:
        rows (mapping): dict of dataset -> (difference, low, high).
        averages (mapping): dict of name -> such.
        label (str): of the axis: the subtracted model and the better direction for whom.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> fig, ax = differences({"nations": (0.1, 0.02, 0.18)}, {"mean": (0.1, 0.0, 0.2)}, "difference of MRR")
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


def critical_difference(
    models: Sequence[str], ranks: Ranking, *, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw mean ranks on a line, best on the left; a bar joins models that do not differ significantly.

    Args:
        models (sequence of str): names, in the order of ``ranks.mean``.
        ranks (Ranking): the result of ``RankStudy.mean_ranks``.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    Source: Demsar 2006 (https://jmlr.org/papers/v7/demsar06a.html), figure 1.
    """
    k, mean = len(models), ranks.mean
    half, bars = (k + 1) // 2, len(ranks.cliques)
    fig, ax = draw.canvas(ax, width=4.6, height=0.9 + 0.16 * bars + 0.24 * half)
    color = draw.ink(ax)
    small: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": draw.SMALL,
        "annotation_clip": False,
    }
    below = 0.35 + 0.3 * bars
    for place, i in enumerate(sorted(range(k), key=lambda i: mean[i])):
        left = place < half
        y = -below - 0.5 * (place if left else k - 1 - place)
        end, text = (
            (1, f"{models[i]}  {mean[i]:.2f}") if left else (k, f"{mean[i]:.2f}  {models[i]}")
        )
        ax.plot([mean[i], mean[i], end], [0, y, y], color=color, linewidth=1)
        ax.annotate(
            text,
            (end, y),
            (-4 if left else 4, 0),
            va="center",
            ha="right" if left else "left",
            **small,
        )
    for level, clique in enumerate(ranks.cliques):
        ends = min(mean[i] for i in clique) - 0.02, max(mean[i] for i in clique) + 0.02
        y = -0.25 - 0.3 * level
        ax.plot(ends, [y, y], color=draw.MARKS[1][0], linewidth=4, solid_capstyle="butt")
    ax.plot(
        [1, 1 + ranks.critical_difference],
        [0.75] * 2,
        color=color,
        linewidth=1.4,
        marker="|",
        clip_on=False,
    )
    ax.annotate(f"critical difference {ranks.critical_difference:.2f}", (1, 0.75), (0, 4), **small)
    ax.set(xlim=(1, k), ylim=(-below - 0.5 * half, 1.0), xticks=[], yticks=[])
    ax.spines[["left", "right", "top", "bottom"]].set_visible(False)
    ax.axhline(0, color=color, linewidth=1)
    for x in range(1, k + 1):
        ax.plot([x, x], [0, 0.12], color=color, linewidth=1, clip_on=False)
        ax.annotate(
            str(x), (x, 0.12), (0, 2), textcoords="offset points", ha="center", fontsize=draw.SMALL
        )
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

    Chance is marked in every panel: the expectation on each dataset in the first, 0 in the others.
    z is drawn on a logarithmic axis where all are positive and span more than a factor of 30. No
    line joins datasets, which have no order. Intervals, for means of f, describe other test tasks.

    Args:
        evaluations (mapping): dict of dataset -> evaluation, or of dataset -> dict of model ->
            evaluation. At most six models, on the same tasks within a dataset.
        metric (str, default "mrr"): a base metric that has an index and a z-score, by any name.
        confidence_level (float, default 0.95): of the intervals.
        ax (sequence of matplotlib Axes, default None): three axes to draw on; None: new ones.

    Returns:
        The figure and its three axes.

    Source: after Hoyt et al. 2022 (arXiv 2203.07544), figure 1.

    >>> from torchrankmetrics import Ranks
    >>> fig, axes = by_dataset({"nations": Ranks([1, 2, 5], None, 14), "kinships": Ranks([1, 9, 4], None, 104)})
    >>> len(axes)
    3
    """
    confidence_level = check_confidence_level(confidence_level)
    definition = base_definition(metric)
    if not definition.has_view("adjusted_index"):
        raise ValueError(
            f"metric must have an adjusted index, as 'mrr' or 'mr' have; {shorten(metric)} has none"
        )
    if not isinstance(evaluations, Mapping):
        raise TypeError(
            f"evaluations must be a dict of dataset -> evaluation, got {type(evaluations).__name__}"
        )
    table, moments = dict[str, dict[str, RankSample]](), []
    for name, given in evaluations.items():
        if isinstance(given, Mapping) and not given:
            raise ValueError(
                f"dataset {shorten(name)} has no evaluation: leave it out, or pass at least one"
            )
        samples = draw.samples_of(given, str(name))
        counts = [sample.candidate_counts for sample in samples.values()]
        if len({one.digest for one in counts}) > 1:
            remedy = "so that chance differs between them; evaluate them on the same tasks with the same filter"
            raise ValueError(
                f"the models of dataset {shorten(name)} were ranked among different candidates, "
                f"{remedy}"
            )
        table[str(name)] = samples
        moments.append(DEFAULT_EXPECTATION.moments(definition, counts[0]))
    models = list(dict.fromkeys(model for samples in table.values() for model in samples))
    draw.check_series(models)
    if ax is not None and (hasattr(ax, "get_xlim") or len(ax) != 3):
        raise ValueError(
            f"ax must be 3 axes, as in fig, ax = plt.subplots(1, 3); got {shorten(ax)}"
        )
    axes: list[Axes] = list(draw.new_axes(8.7, 3.0, 3) if ax is None else ax)
    fig, _ = draw.canvas(axes[0])
    x, step = np.arange(len(table)), 0.62 / len(models)
    found = [
        [_interval(definition, samples.get(m), confidence_level) for samples in table.values()]
        for m in models
    ]
    for panel, view in zip(axes, _VIEWS, strict=True):
        in_view = [affine_view(definition, view, m)[0] for m in moments]
        z = np.array(
            [[list(map(f, ends)) for f, ends in zip(in_view, rows, strict=True)] for rows in found]
        )
        for i, (model, (color, _, marker)) in enumerate(
            zip(models, draw.marks_on(panel), strict=False)
        ):
            place = x + (i - (len(models) - 1) / 2) * step
            values, *interval = z[i].T
            panel.plot(
                place, values, marker, label=model or definition.name, color=color, markersize=5.5
            )
            panel.vlines(place, *np.sort(interval, axis=0), color=color, linewidth=1.3)
        turn: dict[str, Any] = {"rotation": 35, "ha": "right"} if len(table) > 3 else {}
        panel.set_xticks(x, list(table), fontsize=draw.SMALL, **turn)
        panel.set_xlim(-0.5, len(table) - 0.5)
        panel.set_title(paper_name(Measure(definition, view).key), fontsize=10)
    axes[0].plot(x, [m.mean for m in moments], "_", markersize=16, label="chance", **draw.CHANCE)
    if definition.bounds("base")[0] == 0:
        axes[0].set_ylim(bottom=0)
    for panel in axes:
        for border in x[1:] - 0.5:
            panel.axvline(border, color=draw.CHANCE["color"], linewidth=0.4, alpha=0.5)
    z = z[..., 0][np.isfinite(z[..., 0])]
    is_log = z.size and z.min() > 0 and z.max() > 30 * z.min()
    if is_log:
        axes[2].set_yscale("log")
    for panel in axes[1:2] if is_log else axes[1:]:
        panel.axhline(0, linestyle=(0, (1, 1)), **draw.CHANCE)
    if ax is None:
        entries = axes[0].get_legend_handles_labels()
        fig.legend(
            *entries, frameon=False, fontsize=draw.SMALL, ncols=4, loc="outside upper center"
        )
    else:
        draw.legend(axes[0])
    return fig, axes


def _interval(
    definition: RankDefinition, sample: RankSample | None, confidence_level: float
) -> list[float]:
    """Value of a model on a dataset and the ends of its interval; NaN where there is none."""
    ends = [math.nan] * 2
    if sample is not None and sample.num_tasks > 1 and definition.is_function_of_mean():
        found = estimate(definition, sample, "realistic", confidence_level, "normal", None, 100, 0)
        ends = [found.low, found.high]
    return [math.nan if sample is None else definition.value(sample), *ends]


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
        draw.beside(ax, y, "undefined, " * math.isnan(value) + f"{count} tasks")
    ax.axvline(0, color=draw.ink(ax), linewidth=0.8)
    note = f" (the {len(largest)} largest of {len(counts)} groups)" * (len(largest) < len(counts))
    draw.label_rows(ax, [str(breakdown["group"][i]) for i in largest], paper_name(metric) + note)
    return fig, ax
