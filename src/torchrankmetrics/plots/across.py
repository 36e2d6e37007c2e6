"""Plots of many models on many data sets: values with intervals, differences with their averages, mean ranks."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from torchrankmetrics.plots.canvas import CHANCE, MARKS, SMALL, canvas, check_series
from torchrankmetrics.theory.inference.across import MeanRanks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ends = tuple[float, float, float]


def intervals_by_dataset(
    cells: Mapping[str, Mapping[str, Ends]],
    metric: str,
    *,
    chance: Mapping[str, float] | None = None,
    ax: "Axes | None" = None,
) -> "tuple[Figure, Axes]":
    """Draw a row per data set with a point and an interval per model; no line joins data sets, which have no order.

    Args:
        cells: dict of data set -> dict of model -> (value, low, high), NaN ends without an interval; at most 6 models.
        metric: what the axis is called.
        chance: value by chance of each data set, marked by a bar.
        ax: axes to draw on; None: new ones.

    Raises:
        ImportError: without matplotlib.
        ValueError: if there is nothing to draw, or more models than can be told apart.
    """
    models = list(dict.fromkeys(model for row in cells.values() for model in row))
    check_series(models)
    step = 0.7 / len(models)
    fig, ax = canvas(ax, width=4.6, height=1.1 + len(cells) * max(0.3, 0.14 * len(models)))
    for i, (model, mark) in enumerate(zip(models, MARKS, strict=False)):
        there = [(y, row[model]) for y, row in enumerate(cells.values()) if model in row]
        y = np.array([place for place, _ in there]) + (i - (len(models) - 1) / 2) * step
        value, low, high = np.array([ends for _, ends in there], dtype=np.float64).reshape(-1, 3).T
        ax.hlines(y, low, high, color=mark.color, linewidth=1.4)
        ax.plot(value, y, mark.marker, color=mark.color, markersize=4.5, label=model)
    if chance:
        rows = [(y, chance[name]) for y, name in enumerate(cells) if name in chance]
        ends = np.array([value for _, value in rows]), np.array([y for y, _ in rows])
        ax.plot(*ends, "|", markersize=12, label="chance", **CHANCE)
    ax.set_yticks(range(len(cells)), list(cells))
    ax.set_ylim(len(cells) - 0.5, -0.5)
    ax.tick_params(labelsize=SMALL)
    ax.tick_params(axis="y", length=0)
    for y in range(1, len(cells)):
        ax.axhline(y - 0.5, color="0.85", linewidth=0.6, zorder=0)
    ax.set_xlabel(metric)
    ax.legend(frameon=False, fontsize=SMALL, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), handletextpad=0.3)
    return fig, ax


def differences(
    rows: Mapping[str, Ends],
    averages: Mapping[str, Ends],
    label: str,
    *,
    ax: "Axes | None" = None,
) -> "tuple[Figure, Axes]":
    """Draw differences of two models by data set against a line at 0, and below them their averages as diamonds.

    Args:
        rows: dict of data set -> (difference, low, high).
        averages: dict of name -> such.
        label: of the axis: what was subtracted, and which direction is better for whom.
        ax: axes to draw on; None: new ones.

    Raises:
        ImportError: without matplotlib.
        ValueError: if there is nothing to draw.
    """
    check_series(rows, most=None)
    names = [*rows, *averages]
    fig, ax = canvas(ax, width=4.6, height=0.9 + 0.24 * len(names))
    for y, (value, low, high) in enumerate(rows.values()):
        ax.hlines(y, low, high, color="0.5", linewidth=2.5)
        ax.plot(value, y, "o", color="black", markersize=4)
    for y, (value, low, high) in enumerate(averages.values(), len(rows)):
        ax.fill([low, value, high, value], [y, y - 0.32, y, y + 0.32], color=MARKS[1].color)
    ax.axvline(0, linestyle=(0, (1, 1)), **CHANCE)
    if averages:
        ax.axhline(len(rows) - 0.5, color="0.6", linewidth=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(labelsize=SMALL)
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel(label, fontsize=SMALL + 0.5)
    return fig, ax


def critical_difference(models: Sequence[str], ranks: MeanRanks, *, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
    """Draw mean ranks on a line, best on the left; a bar joins models that are not told apart.

    Args:
        models: names, in the order of ``ranks.mean``.
        ranks: what ``RankStudy.mean_ranks`` found.
        ax: axes to draw on; None: new ones.

    Raises:
        ImportError: without matplotlib.

    Source: Demsar 2006 (https://jmlr.org/papers/v7/demsar06a.html), figure 1.
    """
    k = len(models)
    order = sorted(range(k), key=lambda i: ranks.mean[i])
    half, bars = (k + 1) // 2, len(ranks.cliques)
    fig, ax = canvas(ax, width=4.6, height=0.9 + 0.16 * bars + 0.24 * half)
    below = 0.35 + 0.3 * bars
    for place, i in enumerate(order):
        left = place < half
        y = -below - 0.5 * (place if left else k - 1 - place)
        end = 1 if left else k
        ax.plot([ranks.mean[i], ranks.mean[i], end], [0, y, y], color="black", linewidth=1)
        text = f"{models[i]}  {ranks.mean[i]:.2f}" if left else f"{ranks.mean[i]:.2f}  {models[i]}"
        ax.annotate(
            text,
            (end, y),
            (-4 if left else 4, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            ha="right" if left else "left",
            annotation_clip=False,
        )
    for level, clique in enumerate(ranks.cliques):
        ends = [ranks.mean[i] for i in clique]
        y = -0.25 - 0.3 * level
        ax.plot([min(ends) - 0.02, max(ends) + 0.02], [y, y], color=MARKS[1].color, linewidth=4, solid_capstyle="butt")
    top = 0.75
    ax.plot([1, 1 + ranks.critical_difference], [top, top], color="black", linewidth=1.4, marker="|", clip_on=False)
    ax.annotate(
        f"critical difference {ranks.critical_difference:.2f}",
        (1, top),
        (0, 4),
        fontsize=SMALL,
        textcoords="offset points",
        annotation_clip=False,
    )
    ax.set_xlim(1, k)
    ax.set_ylim(-below - 0.5 * half, 1.0)
    ax.spines[["left", "right", "top", "bottom"]].set_visible(False)
    ax.axhline(0, color="black", linewidth=1)
    for x in range(1, k + 1):
        ax.plot([x, x], [0, 0.12], color="black", linewidth=1, clip_on=False)
        ax.annotate(str(x), (x, 0.12), (0, 2), textcoords="offset points", ha="center", fontsize=SMALL)
    ax.set_xticks([])
    ax.set_yticks([])
    return fig, ax
