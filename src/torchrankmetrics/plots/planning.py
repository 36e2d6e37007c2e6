"""Plot of the smallest detectable difference against the number of queries."""

from __future__ import annotations  # help() shows the names of types

from typing import TYPE_CHECKING

import numpy as np

from torchrankmetrics.inference.planning import Differences, detectable_difference
from torchrankmetrics.plots import canvas as draw

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure


def detectable_differences(
    values: Differences,
    label: str = "difference",
    *,
    power: float = 0.8,
    confidence_level: float = 0.95,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw the smallest detectable difference against the number of queries; the pilot is marked.

    Args:
        values (dict or array-like): differences of single pilot queries, as in
            ``inference.sample_size``.
        label (str, default "difference"): name of the difference on the axis, such as "difference
            of MRR".
        power (float, default 0.8): probability that the test detects it.
        confidence_level (float, default 0.95): 1 - the size of the test.
        ax (matplotlib Axes, default None): axes to draw on; None: new ones.

    Returns:
        The figure and its axes.

    >>> from torchrankmetrics.plots import detectable_differences
    >>> fig, ax = detectable_differences([0.1, -0.3, 0.5, 0.0, 0.2], "difference of MRR")
    """
    options = {"power": power, "confidence_level": confidence_level}
    own = detectable_difference(values, **options)  # type: ignore[arg-type]
    number = len(values)  # type: ignore[arg-type]
    sizes = np.unique(np.geomspace(max(number / 10, 5), max(number * 50, 100), 60).astype(int))
    found = [detectable_difference(values, int(size), **options) for size in sizes]
    fig, ax = draw.canvas(ax, 4.6, 3.2)
    ax.loglog(sizes, found, color=draw.ink(ax))
    ax.plot([number], [own], "o", color=draw.MARKS[1][0])
    ax.annotate(
        f"pilot: {number} queries, {own:.2g}",
        (number, own),
        (6, 4),
        textcoords="offset points",
        fontsize=draw.SMALL,
    )
    ax.set_xlabel("number of queries")
    test = f"{100 * power:g}% power, test at {100 * (1 - confidence_level):.3g}%"
    ax.set_ylabel(f"smallest {label}\n({test})")
    ax.grid(visible=True, which="both", color="0.92", linewidth=0.5)
    ax.set_axisbelow(True)
    return fig, ax
