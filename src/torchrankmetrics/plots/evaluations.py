"""Plots of evaluations: ranks and random ranking, ties, intervals, and differences of models."""

from __future__ import annotations  # help() shows the names of types

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrankmetrics.definitions.sample import (
    CandidateCounts,
    FloatArray,
    IntArray,
    RankSample,
    RankType,
)
from torchrankmetrics.inference.compare import paired
from torchrankmetrics.inference.comparison import Comparison, Comparisons, PairwiseComparisons
from torchrankmetrics.inference.intervals import Interval, Intervals, check_confidence_level
from torchrankmetrics.inference.paired import PairedMeasure
from torchrankmetrics.inference.pairing import Evaluation, as_table, check_evaluation, known_measure
from torchrankmetrics.inference.testing import holm
from torchrankmetrics.metrics.names import MetricLike, base_definition
from torchrankmetrics.plots import canvas as draw
from torchrankmetrics.rendering.tabular import Names, name_of, paper_name
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_choice, check_int, shorten

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure, Models

_VIEWS = {
    "z_score": "standard deviations",
    "normalized": "ratios to random ranking",
    "adjusted_index": "shares",
}
Line = tuple[str, Interval | Comparison]  # with the name of its result
Result = Intervals | Comparison | Comparisons | PairwiseComparisons


def rank_ecdf(
    models: Models, *, rank_type: RankType = "realistic", ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw the share of tasks with a rank of at most x: at x = k it is hits at k.

    The random baseline is the mean of the uniform distributions of the tasks, sum of v_i
    min(floor(x), N_i) / N_i. x is logarithmic.

    Args:
        models (Ranks, RankTable, RankCollection or dict): an evaluation, or a dict of at most six
            by name.
        rank_type (str, default "realistic"): "realistic", "optimistic" or "pessimistic".
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> from torchrankmetrics.plots import rank_ecdf
    >>> from torchrankmetrics import Ranks
    >>> fig, ax = rank_ecdf({"model": Ranks([1, 2, 5, 3], None, 14)})
    """
    check_choice("rank_type", rank_type, ("realistic", "optimistic", "pessimistic"))
    samples = draw.samples_of(models)
    own = ax is None
    fig, ax = draw.canvas(ax, 5.5 if len(samples) < 2 else 6.8)
    for (name, sample), (color, line, _) in zip(samples.items(), draw.marks_on(ax), strict=False):
        ax.step(
            *_ecdf(sample, rank_type),
            where="post",
            color=color,
            linestyle=line,
            label=name or "ranks",
            linewidth=1.6,
        )
    most = _draw_random_ecdf(ax, samples)
    ax.set(xscale="log", xlim=(1, most), ylim=(0, 1.02))
    ax.set(xlabel=f"rank x ({rank_type})", ylabel="share of tasks with rank ≤ x")
    ax.xaxis.set_major_formatter("{x:g}")
    if most <= 10:  # less than a decade has labels between, by default as 2 x 10^0
        ax.xaxis.set_minor_formatter("{x:g}")
    draw.legend(ax, own)
    return fig, ax


def _ecdf(sample: RankSample, rank_type: RankType) -> tuple[FloatArray, FloatArray]:
    """Ranks and the shares of tasks up to them, from 0 at rank 1 to 1 at the largest N."""
    ranks, mass, _ = sample.histogram(rank_type, by_candidates=False)
    share = np.cumsum(mass) / sample.total
    last = float(sample.candidate_counts.num_candidates[-1])
    return np.concatenate([[1.0], ranks, [last]]), np.concatenate([[0.0], share, [share[-1]]])


def _draw_random_ecdf(ax: Axes, samples: Mapping[str, RankSample]) -> int:
    """Draw the random baseline of models with equal candidates once; return the largest N."""
    by_counts: dict[bytes, tuple[list[str], CandidateCounts]] = {}
    for name, sample in samples.items():
        counts = sample.candidate_counts
        by_counts.setdefault(counts.digest, ([], counts))[0].append(name)
    for names, counts in by_counts.values():
        N = counts.num_candidates
        # all small integers, then so many that no step is visible on a logarithmic axis
        small = np.arange(1, min(N[-1], 64) + 1)
        x = np.unique(np.concatenate([small, np.geomspace(1, N[-1], 1000).round()]))
        # P(rank <= x) of uniform ranks
        share = np.minimum(x[:, None], N) / N @ (counts.weight * counts.count)
        label = "random ranking" if len(by_counts) == 1 else f"random ranking ({', '.join(names)})"
        ax.step(x, share, where="post", linestyle=(0, (1, 1)), label=label, **draw.RANDOM)
    return max(int(counts.num_candidates[-1]) for _, counts in by_counts.values())


def calibration(
    models: Models, *, confidence_level: float = 0.95, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw how far models are from random ranking: the share of tasks with a target in the best x.

    Under random ranking that is x, however many candidates each task has: r / N is uniform, and a
    tied rank is spread evenly over its places. The band contains the whole curve of a model without
    skill with probability ``confidence_level``, if its tasks are independent and weigh the same
    (Dvoretzky, Kiefer and Wolfowitz). Below the diagonal is worse than random ranking.

    Args:
        models (Ranks, RankTable, RankCollection or dict): one evaluation, or a dict of name ->
            evaluation.
        confidence_level (float, default 0.95): of the band.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    Source: Massart 1990 (doi:10.1214/aop/1176990746) for the constant of the band.

    >>> from torchrankmetrics.plots import calibration
    >>> from torchrankmetrics import Ranks
    >>> fig, ax = calibration({"model": Ranks([1, 2, 5, 3], None, 14)})
    """
    confidence_level = check_confidence_level(confidence_level)
    samples = draw.samples_of(models)
    own = ax is None
    fig, ax = draw.canvas(ax, 4.6 if len(samples) < 2 else 5.8)
    grid = np.linspace(0, 1, 1001)
    half = _half_width(samples, confidence_level)
    ax.fill_between(
        grid,
        np.clip(grid - half, 0, 1),
        np.clip(grid + half, 0, 1),
        color=draw.RANDOM["color"],
        alpha=0.22,
        linewidth=0,
    )
    for (name, sample), (color, line, _) in zip(samples.items(), draw.marks_on(ax), strict=False):
        ax.plot(
            grid,
            _relative_ecdf(sample, grid),
            color=color,
            linestyle=line,
            label=name or "ranks",
            linewidth=1.6,
        )
    ax.plot(
        grid,
        grid,
        linestyle=(0, (1, 1)),
        label=f"random ranking, {100 * confidence_level:g}%",
        **draw.RANDOM,
    )
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1.02),
        xlabel="share x of the candidates",
        ylabel="tasks answered in the best x",
    )
    draw.legend(ax, own)
    return fig, ax


def _half_width(samples: Mapping[str, RankSample], confidence_level: float) -> float:
    """Half the height of the band, for the model with the smallest effective number of tasks."""
    fewest = min(
        sample.total**2 / float((sample.count * sample.weight**2).sum())
        for sample in samples.values()
    )
    return math.sqrt(math.log(2 / (1 - confidence_level)) / (2 * fewest))


def ties(models: Models, metric: str = "mrr", *, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw a metric from pessimistic to optimistic ranks, and the share of tasks with a tie.

    The realistic rank lies between, and so does the expectation over tie orders if it is known. If
    the gap is wide, the value depends on how ties are broken.

    Args:
        models (Ranks, RankTable, RankCollection or dict): one evaluation, or a dict of name ->
            evaluation.
        metric (str, default "mrr"): a base metric that depends on ranks, by any name.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> from torchrankmetrics.plots import ties
    >>> from torchrankmetrics import Ranks
    >>> fig, ax = ties({"model": Ranks([1, 2], [3, 2], 14)})
    """
    definition = base_definition(metric)
    if definition.aggregation in ("count", "tie_rate"):
        raise ValueError(
            f"metric must name a base metric of ranks, such as 'mrr' or 'mr'; got {shorten(metric)}"
        )
    samples = draw.samples_of(models)
    kinds: dict[RankType, str] = {"pessimistic": "<", "realistic": "o", "optimistic": ">"}
    if definition.has_expected:
        kinds["expected"] = "|"
    fig, ax = draw.canvas(ax, 6.5, height=1.2 + 0.55 * len(samples))
    rows = range(len(samples))
    values = {}
    for kind in kinds:
        values[kind] = [definition.value(sample, kind) for sample in samples.values()]
    ax.hlines(rows, values["pessimistic"], values["optimistic"], color="0.6", linewidth=3, zorder=1)
    for kind, marker in kinds.items():
        face: Any = ax.get_facecolor() if kind == "realistic" else draw.ink(ax)
        ax.plot(
            values[kind],
            rows,
            marker,
            markersize=12 if kind == "expected" else 5.5,
            label=kind,
            color=draw.ink(ax),
            markerfacecolor=face,
            clip_on=False,
        )
    draw.label_rows(
        ax, [_tie_label(*one) for one in samples.items()], paper_name(definition.name), 0.5
    )
    draw.legend(ax, ncols=len(kinds), loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return fig, ax


def _tie_label(name: str, sample: RankSample) -> str:
    """Name of a model, its share of tasks with ties, and its mean number of tied places."""
    widths = sample.rank("pessimistic") - sample.rank("optimistic")
    gap = float((sample.mass * widths).sum() / sample.total)
    label = f"{100 * sample.tie_mass / sample.total:.1f}% ties\nmean gap {gap:.3g} ranks"
    return f"{name}\n{label}" if name else label


def _relative_ecdf(sample: RankSample, x: FloatArray) -> FloatArray:
    """Share of the tasks with r / N at most x, ranks spread over (optimistic - 1, pessimistic]."""
    N = sample.known_candidates
    low = (sample.optimistic - 1) / N
    high = sample.pessimistic / N
    at = np.concatenate([low, high])
    slope = sample.mass / (high - low) / sample.total
    order = np.argsort(at)
    slopes = np.concatenate([slope, -slope])[order].cumsum()  # of the sum between two ends
    shares: FloatArray = np.interp(
        x, at[order], np.r_[0.0, (slopes[:-1] * np.diff(at[order])).cumsum()]
    )
    return shares


def forest(
    results: Result | Mapping[str, Result],
    metrics: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw intervals below each other, with their numbers; differences around a line at 0.

    The axis of differences names the better model of each side.

    Args:
        results (Result or mapping): the result of ``RankCollection.confidence_intervals`` or
            ``compare``, or a dict of model or name -> result.
        metrics (sequence of str, default None): keys of the metrics to draw; None: all.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    Raises:
        TypeError, ValueError: for results of another kind, metrics that they do not have, and
            metrics that cannot be read on one axis (a mean rank of 300 next to an MRR of 0.3).

    >>> from torchrankmetrics.plots import forest
    >>> from torchrankmetrics import Ranks, compare
    >>> a = Ranks([1, 2, 5] * 9, None, 14)
    >>> b = Ranks([2, 2, 3] * 9, None, 14)
    >>> fig, ax = forest(compare(a, b, "mrr"))
    """
    named = results if isinstance(results, Mapping) else {"": results}
    lines = _lines(named, metrics)
    differences = [row for _, row in lines if isinstance(row, Comparison)]
    fig, ax = draw.canvas(ax, 7.0, 0.9 + 0.3 * len(lines))
    _draw_lines(ax, lines)
    levels = {row.interval_level for row in differences}
    levels |= {one.confidence_level for one in named.values() if isinstance(one, Intervals)}
    label = " and ".join(f"{100 * level:g}" for level in sorted(levels)) + "% interval"
    if differences:
        draw.zero_line(ax)
        label = f"difference, {label}{_about_tests(differences)}"
    else:
        label = f"value, {label}"
    draw.label_rows(ax, [_line_label(*line) for line in lines], label)
    return fig, ax


def _draw_lines(ax: Axes, lines: Sequence[Line]) -> None:
    rows = range(len(lines))
    lows = [row.low for _, row in lines]
    highs = [row.high for _, row in lines]
    centers = [_center(row) for _, row in lines]
    ax.hlines(rows, lows, highs, color="0.55", linewidth=5)
    ax.plot(centers, rows, "|", color=draw.ink(ax), markersize=10, markeredgewidth=1.8)
    for y, (_, row) in enumerate(lines):
        draw.beside(ax, y, _numbers(row))


def _center(row: Interval | Comparison) -> float:
    return row.difference if isinstance(row, Comparison) else row.value


def _lines(named: Mapping[str, Result], metrics: Sequence[str] | None) -> list[Line]:
    """Rows of all results with the names of these, models of one metric below each other."""
    lines = []
    for name, one in named.items():
        lines += [(str(name), row) for row in _rows(str(name), one, metrics)]
    draw.check_series(lines, most=None)
    if len({isinstance(row, Comparison) for _, row in lines}) > 1:
        raise ValueError(
            "intervals of values and of differences cannot be read on one axis; draw them in two "
            "plots"
        )
    keys = list(dict.fromkeys(row.metric for _, row in lines))
    _check_scales(keys)
    return sorted(lines, key=lambda line: keys.index(line[1].metric))


def _numbers(row: Interval | Comparison) -> str:
    """The center of a line with its interval, and the adjusted p-value of a difference."""
    if isinstance(row, Interval):
        return f"{row.value:.4f} [{row.low:.4f}, {row.high:.4f}]"
    text = f"{row.difference:+.4f} [{row.low:+.4f}, {row.high:+.4f}]"
    return text if row.p_adjusted is None else f"{text}  p = {row.p_adjusted:.2g}"


def _line_label(name: str, row: Interval | Comparison) -> str:
    pair = " − ".join(row.models or ()) if isinstance(row, Comparison) else ""
    return " ".join(filter(None, (paper_name(row.metric), pair, name)))


def _about_tests(differences: Sequence[Comparison]) -> str:
    """Correction of the p-values, the better side, and the sizes of the samples."""
    corrections = {row.correction for row in differences if row.p_adjusted is not None}
    correction = f", p by {' and '.join(sorted(corrections))}" if corrections else ""
    sizes = dict.fromkeys(str(row.size) for row in differences)
    return f"{correction}{_direction(differences)}\n{', '.join(sizes)}"


def group_differences(
    a: Evaluation,
    b: Evaluation,
    metric: MetricLike = "mrr",
    *,
    names: Names = None,
    models: tuple[str, str] = ("a", "b"),
    most: int = 20,
    confidence_level: float = 0.95,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw the difference of two models in each group, for example in each relation.

    The largest groups are first.

    ``compare`` computes intervals and tests in each group. A filled point is a significant
    difference after Holm's correction over the groups drawn; a hollow one is not significant.

    Args:
        a (Ranks, RankTable or RankCollection): a ``RankTable`` or ``RankCollection`` with groups
            and sample ids.
        b (Ranks, RankTable or RankCollection): the other model, of the same tasks.
        metric (str, RankDefinition or RankMetric, default "mrr"): the metric, by any name or as a
            definition.
        names (mapping or sequence of str, default None): of the groups: dict of id -> name, or a
            sequence by id.
        models (tuple, default ("a", "b")): what to call the two.
        most (int, default 20): groups at most, among groups with two tasks or more; the axis label
            has their total number.
        confidence_level (float, default 0.95): in (0, 1).
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> import torch
    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.plots import group_differences
    >>> facts = {"group": torch.arange(40) % 2, "sample_id": torch.arange(40)}
    >>> a = RankTable.from_ranks(Ranks([1, 2, 1, 4] * 10, None, 9), **facts)
    >>> b = RankTable.from_ranks(Ranks([3, 2, 5, 4] * 10, None, 9), **facts)
    >>> fig, ax = group_differences(a, b, "mrr", names=["born_in", "capital_of"])
    """
    confidence_level = check_confidence_level(confidence_level)
    check_int("most", most, 1)
    one = _grouped(a, "a")
    other = _grouped(b, "b")
    drawn, number = _largest_groups(one.group.numpy(), most)
    pairs = [
        paired(one.select(group=group), other.select(group=group), [metric])[0] for group in drawn
    ]
    fig, ax = draw.canvas(ax, height=1.3 + 0.27 * len(drawn))
    _draw_pairs(ax, pairs, confidence_level)
    draw.zero_line(ax)
    ax.tick_params(axis="y", labelsize=draw.SMALL)
    measure = pairs[0].measure
    label = f"{paper_name(measure.key)}: {models[0]} − {models[1]}, "
    label += f"{100 * confidence_level:g}% interval"
    label += _better(measure.higher_is_better, models)
    label += f"\nfilled: p ≤ {1 - confidence_level:.2g} by Holm"
    if len(drawn) < number:
        label += f"\n{len(drawn)} largest of {number} groups"
    draw.label_rows(
        ax, [str(name_of(group, names)) for group in drawn], label, fontsize=draw.SMALL + 0.5
    )
    return fig, ax


def _grouped(model: Evaluation, name: str) -> RankTable:
    """The table of a model whose tasks have groups."""
    check_evaluation(model, name)
    table = as_table(model).compact()
    if not len(table) or not table.has_groups():
        raise ValueError(f"{name} needs a group for every task: pass group= to every update")
    return table


def _largest_groups(group: IntArray, most: int) -> tuple[list[int], int]:
    """The largest groups with two tasks or more, at most ``most``, and the number of all groups."""
    ids, counts = np.unique(group, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    found = [int(ids[i]) for i in order if counts[i] > 1][:most]
    if not found:
        raise ValueError("no group has two tasks to compare the models on")
    return found, len(ids)


def _draw_pairs(ax: Axes, pairs: Sequence[PairedMeasure], confidence_level: float) -> None:
    """Draw a difference with its interval per row, filled if significant after Holm."""
    found = [pair.comparison(confidence_level) for pair in pairs]
    p = holm(np.array([one.p_value for one in found], dtype=np.float64))  # None becomes NaN
    lows = [one.low for one in found]
    highs = [one.high for one in found]
    ax.hlines(range(len(pairs)), lows, highs, color="0.55", linewidth=2.2)
    for y, (pair, one, adjusted) in enumerate(zip(pairs, found, p, strict=True)):
        face = draw.ink(ax) if adjusted <= 1 - confidence_level else ax.get_facecolor()
        ax.plot(pair.a - pair.b, y, "o", color=draw.ink(ax), markerfacecolor=face, markersize=5)
        draw.beside(ax, y, str(one.size))


def _direction(rows: Sequence[Comparison]) -> str:
    """Which side of zero is better for whom, if it is the same for all."""
    measures = [known_measure(row.metric.rpartition("/")[2]) for row in rows]
    directions = {getattr(one, "higher_is_better", None) for one in measures}
    direction = directions.pop() if len(directions) == 1 else None
    models = {row.models or ("a", "b") for row in rows}
    return _better(direction, models.pop()) if len(models) == 1 else _better(direction)


def _better(higher: bool | None, models: tuple[str, str] = ("the first", "")) -> str:
    if higher is None:
        return ""
    side = "right" if higher else "left"
    return f"\n{side} is better for {models[0]}"


def _rows(name: str, result: object, metrics: Sequence[str] | None) -> list[Interval | Comparison]:
    """The rows of a result, of some metrics or of all."""
    if not isinstance(result, Result):
        expected = (
            "come from RankCollection.confidence_intervals() or compare(), or be a dict of "
            "name -> such"
        )
        raise TypeError(
            f"the result{f' of {name!r}' if name else ''} must {expected}; got "
            f"{type(result).__name__}"
        )
    rows: Sequence[Interval | Comparison] = (
        (result,) if isinstance(result, Comparison) else result.rows
    )
    known = [row.metric for row in rows]
    if missing := [metric for metric in metrics or () if metric not in known]:
        raise ValueError(
            f"metrics {', '.join(map(repr, missing))} are missing; available: {', '.join(known)}"
        )
    return [row for row in rows if metrics is None or row.metric in metrics]


def _check_scales(keys: Sequence[str]) -> None:
    """Raise a ValueError unless one axis has one scale for all metrics; own keys are unknown."""
    scales: dict[str, list[str]] = {}
    for key in keys:
        if measure := known_measure(key.rpartition("/")[2]):  # after any prefix
            definition = measure.definition
            is_share = definition.higher_is_better or definition.aggregation == "tie_rate"
            plain = "shares" if is_share else "ranks"
            if definition.name == "rank_variance":
                plain = "squared ranks"
            scales.setdefault(_VIEWS.get(measure.view, plain), []).append(key)
    if len(scales) > 1:
        kinds = "; ".join(
            f"{kind}: {', '.join(map(repr, members))}" for kind, members in scales.items()
        )
        raise ValueError(
            "metrics of different scales cannot be read on one axis; pick some by metrics=[...]. "
            f"{kinds}"
        )
