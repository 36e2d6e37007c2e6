"""Plots of the ranks themselves: their distribution against chance, and what ties leave open."""

from typing import TYPE_CHECKING

import numpy as np

from torchrankmetrics.evaluation.analysis import Side
from torchrankmetrics.plots.canvas import CHANCE, MARKS, SMALL, Models, canvas, definition_of_ranks, samples_of
from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray
from torchrankmetrics.theory.sample import RankSample, RankType
from torchrankmetrics.theory.ties import has_expected
from torchrankmetrics.theory.values import base_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def rank_ecdf(
    models: Models, *, rank_type: RankType = "realistic", side: Side | None = None, ax: "Axes | None" = None
) -> "tuple[Figure, Axes]":
    """Share of the tasks with a rank of at most x, against chance: its height at x = k is hits at k.

    Chance is the mean of the uniform laws of the tasks, sum of v_i min(floor(x), N_i) / N_i. x is logarithmic.

    Args:
        models: a ``RankCollection``, ``RankTable`` or ``Ranks``, or a dict of name -> such; at most six.
        rank_type: "realistic", "optimistic" or "pessimistic".
        side: "head" or "tail": only those tasks; "both" or None: all.
        ax: axes to draw on; None: new ones.

    Raises:
        ImportError: without matplotlib.
        TypeError, ValueError: for models and options of another kind, and for models without tasks.
    """
    if rank_type not in ("realistic", "optimistic", "pessimistic"):
        raise ValueError(f'rank_type must be "realistic", "optimistic" or "pessimistic" here, got {rank_type!r}')
    samples = samples_of(models, side or "both")
    fig, ax = canvas(ax)
    laws: dict[bytes, tuple[list[str], CandidateCounts]] = {}
    for (name, sample), mark in zip(samples.items(), MARKS, strict=False):
        histogram = sample.histogram(rank_type)
        share = np.cumsum(histogram.mass) / sample.total
        counts = sample.candidate_counts
        laws.setdefault(counts.digest, ([], counts))[0].append(name)
        # from 0 at the left end to the last candidate at the right end, also where no rank lies there
        x = np.concatenate([[1.0], histogram.rank, [float(counts.num_candidates[-1])]])
        y = np.concatenate([[0.0], share, [share[-1]]])
        ax.step(x, y, where="post", color=mark.color, linestyle=mark.line, label=name or "ranks", linewidth=1.6)
    for names, counts in laws.values():
        x = _grid(int(counts.num_candidates[-1]))
        label = "chance" if len(laws) == 1 else f"chance ({', '.join(names)})"
        ax.step(x, _chance(counts, x), where="post", linestyle=(0, (1, 1)), label=label, **CHANCE)
    ax.set_xscale("log")
    ax.set_xlim(1, max(int(counts.num_candidates[-1]) for _, counts in laws.values()))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_ylim(0, 1.02)
    ax.set_xlabel(f"rank x ({rank_type}{f', {side} side' if side in ('head', 'tail') else ''})")
    ax.set_ylabel("share of tasks with rank ≤ x")
    ax.legend(frameon=False, fontsize=SMALL)
    return fig, ax


def ties(
    models: Models, metric: str = "mrr", *, side: Side | None = None, ax: "Axes | None" = None
) -> "tuple[Figure, Axes]":
    """Draw what ties leave open: a metric from pessimistic to optimistic ranks, and the share of tasks with a tie.

    The realistic rank, and where it is known the expectation over tie orders, lie between. A wide gap says that the
    number is made by how ties are broken.

    Args:
        models: as in ``rank_ecdf``.
        metric: a base metric that depends on ranks, by any name.
        side: "head" or "tail": only those tasks; "both" or None: all.
        ax: axes to draw on; None: new ones.

    Raises:
        ImportError: without matplotlib.
        TypeError, ValueError: for models and options of another kind, and for models without tasks.
    """
    definition = definition_of_ranks(metric)
    samples = samples_of(models, side or "both")
    kinds: dict[RankType, str] = {"pessimistic": "<", "realistic": "o", "optimistic": ">"}
    if has_expected(definition):
        kinds["expected"] = "|"
    fig, ax = canvas(ax, width=6.5, height=1.2 + 0.55 * len(samples))
    rows = np.arange(len(samples))
    values = {kind: np.array([base_value(definition, sample, kind) for sample in samples.values()]) for kind in kinds}
    ax.hlines(rows, values["pessimistic"], values["optimistic"], color="0.6", linewidth=3, zorder=1)
    for kind, marker in kinds.items():
        face = "white" if kind == "realistic" else "black"
        size = 12 if kind == "expected" else 5.5
        ax.plot(
            values[kind], rows, marker, color="black", markerfacecolor=face, markersize=size, label=kind, clip_on=False
        )
    ax.set_yticks(rows, [_tie_label(label, sample) for label, sample in samples.items()])
    ax.set_ylim(len(samples) - 0.5, -0.5)
    ax.set_xlabel(definition.name + (f" ({side} side)" if side in ("head", "tail") else ""))
    ax.legend(frameon=False, fontsize=SMALL, ncols=len(kinds), loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return fig, ax


def _tie_label(name: str, sample: RankSample) -> str:
    gap = float((sample.mass * (sample.rank("pessimistic") - sample.rank("optimistic"))).sum() / sample.total)
    label = f"{100 * sample.tie_mass / sample.total:.1f} % ties\nmean gap {gap:.3g} ranks"
    return f"{name}\n{label}" if name else label


def _grid(largest: int) -> FloatArray:
    """Every integer at first, then so densely that a logarithmic axis shows no step that is not there."""
    return np.unique(np.concatenate([np.arange(1, min(largest, 64) + 1), np.geomspace(1, largest, 1000).round()]))


def _chance(counts: CandidateCounts, x: FloatArray) -> FloatArray:
    """Mean over the tasks of P(rank <= x) when ranks are uniform; one column per distinct N."""
    share = np.minimum(x[:, None], counts.num_candidates) / counts.num_candidates
    return share @ (counts.weight * counts.count)
