"""Plots of the ranks themselves: their distribution against chance, and what ties leave open."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray
from torchrankmetrics.definitions.protocol import Side
from torchrankmetrics.definitions.sample import RankSample, RankType
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.plots.canvas import (
    CHANCE,
    SMALL,
    Models,
    canvas,
    definition_of_ranks,
    draw_legend,
    ink,
    label_rows,
    marks_on,
    samples_of,
)
from torchrankmetrics.rendering import paper_name
from torchrankmetrics.validation import TASK_SIDES, check_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def rank_ecdf(
    models: Models, *, rank_type: RankType = "realistic", side: Side | None = None, ax: "Axes | None" = None
) -> "tuple[Figure, Axes]":
    """Share of the tasks with a rank of at most x, against chance: its height at x = k is hits at k.

    The random baseline is the mean of the uniform distributions of the tasks, sum of v_i min(floor(x), N_i) / N_i.
    x is logarithmic.

    Args:
        models (Ranks, RankTable, RankCollection or list): a ``RankCollection``, ``RankTable`` or ``Ranks``, or a dict
            of name -> such; at most six.
        rank_type (str, default "realistic"): "realistic", "optimistic" or "pessimistic".
        side (str, default None): "head" or "tail": only those tasks; "both" or None: all.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    Raises:
        TypeError, ValueError: for models and options of another kind, and for models without tasks.

    >>> from torchrankmetrics import Ranks
    >>> fig, ax = rank_ecdf({"model": Ranks([1, 2, 5, 3], None, 14)})
    """
    check_choice("rank_type", rank_type, ("realistic", "optimistic", "pessimistic"))
    samples = samples_of(models, side or "both")
    own = ax is None
    fig, ax = canvas(ax, 5.5 if len(samples) < 2 else 6.8)
    lines: dict[bytes, tuple[list[str], CandidateCounts]] = {}
    for (name, sample), (color, line, _) in zip(samples.items(), marks_on(ax), strict=False):
        ranks, mass, _ = sample.histogram(rank_type)
        share = np.cumsum(mass) / sample.total
        counts = sample.candidate_counts
        lines.setdefault(counts.digest, ([], counts))[0].append(name)
        # from 0 at the left end to the last candidate at the right end, also where no rank lies there
        x = np.concatenate([[1.0], ranks, [float(counts.num_candidates[-1])]])
        y = np.concatenate([[0.0], share, [share[-1]]])
        ax.step(x, y, where="post", color=color, linestyle=line, label=name or "ranks", linewidth=1.6)
    for names, counts in lines.values():
        N = counts.num_candidates
        # every integer at first, then so densely that a logarithmic axis shows no step that is not there
        x = np.unique(np.concatenate([np.arange(1, min(N[-1], 64) + 1), np.geomspace(1, N[-1], 1000).round()]))
        chance = np.minimum(x[:, None], N) / N @ (counts.weight * counts.count)  # P(rank <= x) of uniform ranks
        label = "chance" if len(lines) == 1 else f"chance ({', '.join(names)})"
        ax.step(x, chance, where="post", linestyle=(0, (1, 1)), label=label, **CHANCE)
    ax.set_xscale("log")
    most = max(int(counts.num_candidates[-1]) for _, counts in lines.values())
    ax.set_xlim(1, most)
    ax.xaxis.set_major_formatter("{x:g}")
    if most <= 10:  # less than a decade has labels between, by default as 2 x 10^0
        ax.xaxis.set_minor_formatter("{x:g}")
    ax.set_ylim(0, 1.02)
    ax.set_xlabel(f"rank x ({rank_type}{_of_side(', {} side', side)})")
    ax.set_ylabel("share of tasks with rank ≤ x")
    draw_legend(ax, own)
    return fig, ax


def calibration(
    models: Models, *, side: Side | None = None, confidence_level: float = 0.95, ax: "Axes | None" = None
) -> "tuple[Figure, Axes]":
    """Draw how far models are from chance: the share of tasks whose answer is in the best x of its candidates.

    By chance that is x, however many candidates each task has: r / N is uniform, a tied rank spread evenly over its
    places. The band holds the whole curve of a model without skill with probability ``confidence_level``, if its
    tasks are independent and weigh the same (Dvoretzky, Kiefer and Wolfowitz). Below the diagonal is worse than chance.

    Args:
        models (Ranks, RankTable, RankCollection or list): as in ``rank_ecdf``.
        side (str, default None): "head" or "tail": only those tasks; "both" or None: all.
        confidence_level (float, default 0.95): of the band.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    Raises:
        TypeError, ValueError: for models and options of another kind, and for models without tasks.

    Source: Massart 1990 (doi:10.1214/aop/1176990746) for the constant of the band.

    >>> from torchrankmetrics import Ranks
    >>> fig, ax = calibration({"model": Ranks([1, 2, 5, 3], None, 14)})
    """
    confidence_level = check_confidence_level(confidence_level)
    samples = samples_of(models, side or "both")
    own = ax is None
    fig, ax = canvas(ax, 4.6 if len(samples) < 2 else 5.8)
    grid = np.linspace(0, 1, 1001)
    fewest = min(sample.total**2 / float((sample.count * sample.weight**2).sum()) for sample in samples.values())
    half = math.sqrt(math.log(2 / (1 - confidence_level)) / (2 * fewest))
    band: dict[str, Any] = {"color": CHANCE["color"], "alpha": 0.22, "linewidth": 0}
    ax.fill_between(grid, np.clip(grid - half, 0, 1), np.clip(grid + half, 0, 1), **band)
    for (name, sample), (color, line, _) in zip(samples.items(), marks_on(ax), strict=False):
        y = _relative_ecdf(sample, grid)
        ax.plot(grid, y, color=color, linestyle=line, label=name or "ranks", linewidth=1.6)
    ax.plot(grid, grid, linestyle=(0, (1, 1)), label=f"chance, {100 * confidence_level:g}%", **CHANCE)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("share x of the candidates" + _of_side(" ({} side)", side))
    ax.set_ylabel("tasks answered in the best x")
    draw_legend(ax, own)
    return fig, ax


def ties(
    models: Models, metric: str = "mrr", *, side: Side | None = None, ax: "Axes | None" = None
) -> "tuple[Figure, Axes]":
    """Draw the effect of ties: a metric from pessimistic to optimistic ranks, and the share of tasks with a tie.

    The realistic rank lies between, and so does the expectation over tie orders if it is known. If the gap is wide,
    the value depends on how ties are broken.

    Args:
        models (Ranks, RankTable, RankCollection or list): as in ``rank_ecdf``.
        metric (str, default "mrr"): a base metric that depends on ranks, by any name.
        side (str, default None): "head" or "tail": only those tasks; "both" or None: all.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    Raises:
        TypeError, ValueError: for models and options of another kind, and for models without tasks.

    >>> from torchrankmetrics import Ranks
    >>> fig, ax = ties({"model": Ranks([1, 2], [3, 2], 14)})
    """
    definition = definition_of_ranks(metric)
    samples = samples_of(models, side or "both")
    kinds: dict[RankType, str] = {"pessimistic": "<", "realistic": "o", "optimistic": ">"}
    if definition.has_expected:
        kinds["expected"] = "|"
    fig, ax = canvas(ax, 6.5, height=1.2 + 0.55 * len(samples))
    rows = range(len(samples))
    values = {kind: [definition.value(sample, kind) for sample in samples.values()] for kind in kinds}
    ax.hlines(rows, values["pessimistic"], values["optimistic"], color="0.6", linewidth=3, zorder=1)
    for kind, marker in kinds.items():
        face: Any = ax.get_facecolor() if kind == "realistic" else ink(ax)
        look: dict[str, Any] = {"color": ink(ax), "markerfacecolor": face, "clip_on": False}
        ax.plot(values[kind], rows, marker, markersize=12 if kind == "expected" else 5.5, label=kind, **look)
    labels = []
    for name, sample in samples.items():
        gap = float((sample.mass * (sample.rank("pessimistic") - sample.rank("optimistic"))).sum() / sample.total)
        label = f"{100 * sample.tie_mass / sample.total:.1f}% ties\nmean gap {gap:.3g} ranks"
        labels.append(f"{name}\n{label}" if name else label)
    label_rows(ax, labels, 0.5)
    ax.set_xlabel(paper_name(definition.name) + _of_side(" ({} side)", side))
    ax.legend(frameon=False, fontsize=SMALL, ncols=len(kinds), loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return fig, ax


def _relative_ecdf(sample: RankSample, x: FloatArray) -> FloatArray:
    """Share of the tasks with r / N at most x, each rank spread evenly over (optimistic - 1, pessimistic] / N."""
    N = sample.known_candidates
    low, high = (sample.optimistic - 1) / N, sample.pessimistic / N
    at, slope = np.concatenate([low, high]), sample.mass / (high - low) / sample.total
    order = np.argsort(at)
    slopes = np.concatenate([slope, -slope])[order].cumsum()  # of the sum between two ends
    shares: FloatArray = np.interp(x, at[order], np.r_[0.0, (slopes[:-1] * np.diff(at[order])).cumsum()])
    return shares


def _of_side(text: str, side: str | None) -> str:
    """A label of tasks of one side; it does not describe all tasks together."""
    return text.format(side) if side in TASK_SIDES else ""
