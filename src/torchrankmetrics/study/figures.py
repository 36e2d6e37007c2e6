"""Figures of a study: values by dataset with intervals, and the critical difference diagram."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.plots import canvas as draw

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure
    from torchrankmetrics.study.mean_ranks import Ranking

Ends = tuple[float, float, float]


def intervals_by_dataset(
    cells: Mapping[str, Mapping[str, Ends]],
    metric: str,
    *,
    random_values: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw a row per dataset with a point and an interval per model.

    No line joins datasets, which have no order.

    Args:
        cells (mapping): dict of dataset -> dict of model -> (value, low, high), NaN ends without an
            interval; at most 6 models.
        metric (str): label of the axis.
        random_values (mapping, default None): value under random ranking of each dataset, marked by
            a bar.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> from torchrankmetrics.study import intervals_by_dataset
    >>> fig, ax = intervals_by_dataset({"nations": {"model": (0.5, 0.4, 0.6)}}, "MRR")
    """
    models = list(dict.fromkeys(model for row in cells.values() for model in row))
    draw.check_series(models)
    step = 0.7 / len(models)
    fig, ax = draw.canvas(ax, width=4.6, height=1.1 + len(cells) * max(0.3, 0.14 * len(models)))
    for i, (model, (color, _, marker)) in enumerate(zip(models, draw.marks_on(ax), strict=False)):
        points = _points(cells, model)
        points[:, 0] += (i - (len(models) - 1) / 2) * step
        _draw_intervals(ax, points, color, marker, model)
    _draw_random(ax, list(cells), random_values or {})
    draw.label_rows(ax, list(cells), metric, 0.5)
    ax.tick_params(labelsize=draw.SMALL)
    ax.tick_params(axis="y", length=0)
    for row in range(1, len(cells)):
        ax.axhline(row - 0.5, color="0.85", linewidth=0.6, zorder=0)
    draw.legend(ax, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), handletextpad=0.3)
    return fig, ax


def _points(cells: Mapping[str, Mapping[str, Ends]], model: str) -> FloatArray:
    """Row, value and the ends of the interval of a model on each of its datasets, (datasets, 4)."""
    found = [(y, *row[model]) for y, row in enumerate(cells.values()) if model in row]
    return np.array(found, dtype=np.float64)


def _draw_intervals(ax: Axes, points: FloatArray, color: str, marker: str, label: str) -> None:
    """Draw the rows of points: place, value and the ends of its interval."""
    y, value, low, high = points.T
    ax.hlines(y, low, high, color=color, linewidth=1.4)
    ax.plot(value, y, marker, color=color, markersize=4.5, label=label)


def _draw_random(ax: Axes, names: Sequence[str], random_values: Mapping[str, float]) -> None:
    rows = [y for y, name in enumerate(names) if name in random_values]
    if rows:
        values = [random_values[names[y]] for y in rows]
        ax.plot(values, rows, "|", markersize=12, label="random ranking", **draw.RANDOM)


def critical_difference(
    models: Sequence[str], ranks: Ranking, *, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw mean ranks on a line, best on the left; bars join models that are not different.

    Args:
        models (sequence of str): names, in the order of ``ranks.mean``.
        ranks (Ranking): the result of ``RankStudy.mean_ranks``.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    Source: Demsar 2006 (https://jmlr.org/papers/v7/demsar06a.html), figure 1.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy, critical_difference
    >>> study = RankStudy()
    >>> for dataset in ("nations", "kinships", "umls"):
    ...     for model, ranks in {"a": [1, 2, 1, 4], "b": [3, 2, 5, 4]}.items():
    ...         study.add(RankTable.from_ranks(Ranks(ranks, None, 9)), model=model, dataset=dataset)
    ...
    >>> ranking = study.mean_ranks("mrr")
    >>> fig, ax = critical_difference(study.models, ranking)
    """
    k = len(models)
    bars = len(ranks.cliques)
    half = (k + 1) // 2  # labels on the left
    fig, ax = draw.canvas(ax, width=4.6, height=0.9 + 0.16 * bars + 0.24 * half)
    below = 0.35 + 0.3 * bars
    _draw_axis(ax, k)
    _draw_models(ax, models, ranks.mean, below)
    bar: dict[str, Any] = {"color": draw.MARKS[1][0], "linewidth": 4, "solid_capstyle": "butt"}
    for level, clique in enumerate(ranks.cliques):
        ends = [ranks.mean[i] for i in clique]
        y = -0.25 - 0.3 * level
        ax.plot([min(ends) - 0.02, max(ends) + 0.02], [y, y], **bar)
    _draw_scale(ax, ranks.critical_difference)
    ax.set(xlim=(1, k), ylim=(-below - 0.5 * half, 1.0), xticks=[], yticks=[])
    ax.spines[["left", "right", "top", "bottom"]].set_visible(False)
    return fig, ax


_SMALL: dict[str, Any] = {
    "textcoords": "offset points",
    "fontsize": draw.SMALL,
    "annotation_clip": False,
}


def _draw_axis(ax: Axes, k: int) -> None:
    """Line of mean ranks with a tick at 1, ..., k."""
    color = draw.ink(ax)
    ax.axhline(0, color=color, linewidth=1)
    for x in range(1, k + 1):
        ax.plot([x, x], [0, 0.12], color=color, linewidth=1, clip_on=False)
        ax.annotate(str(x), (x, 0.12), (0, 2), ha="center", **_SMALL)


def _draw_models(ax: Axes, models: Sequence[str], mean: Sequence[float], below: float) -> None:
    """Line from each mean rank to its label, the better half on the left."""
    k = len(models)
    for place, i in enumerate(sorted(range(k), key=lambda i: mean[i])):
        if place < (k + 1) // 2:
            x = 1
            y = -below - 0.5 * place
            text = f"{models[i]}  {mean[i]:.2f}"
            shift = -4
            align = "right"
        else:
            x = k
            y = -below - 0.5 * (k - 1 - place)
            text = f"{mean[i]:.2f}  {models[i]}"
            shift = 4
            align = "left"
        ax.plot([mean[i], mean[i], x], [0, y, y], color=draw.ink(ax), linewidth=1)
        ax.annotate(text, (x, y), (shift, 0), va="center", ha=align, **_SMALL)


def _draw_scale(ax: Axes, critical_difference: float) -> None:
    """Bar of the length of the critical difference."""
    ends = [1, 1 + critical_difference]
    bar: dict[str, Any] = {"color": draw.ink(ax), "linewidth": 1.4, "marker": "|", "clip_on": False}
    ax.plot(ends, [0.75] * 2, **bar)
    ax.annotate(f"critical difference {critical_difference:.2f}", (1, 0.75), (0, 4), **_SMALL)
