"""Warnings of values that mislead: ties that decide, masks by -inf, nothing to evaluate."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.measure import Analysis, Measure

_LEAST_TIES = 0.05  # share of tasks whose target ties with another candidate
_LEAST_GAP = 0.05  # between the values of optimistic and of pessimistic ranks
_ROWS = 4  # of the first batch that are read: a mask is in every row


def warn_of_masked_scores(scores: Any, exclude: object) -> bool:
    """Warn if the first rows of scores (B, N) hold -inf, and nothing is excluded; whether it did.

    Only on the CPU: an accelerator would be waited for.
    """
    is_array = isinstance(scores, Tensor | np.ndarray) and scores.ndim == 2
    if not is_array or exclude is not None:
        return False
    rows = scores[:_ROWS]
    if isinstance(rows, np.ndarray):
        rows = torch.from_numpy(np.array(rows))
    number = int(rows.isneginf().sum()) if rows.is_cpu and rows.is_floating_point() else 0
    if number:
        warn(
            f"{number} of the first {rows.numel()} scores are -inf: masked candidates still count "
            "in num_candidates, so that chance-adjusted values, z-scores and p-values compare with "
            "too many candidates. Pass the mask as exclude=, True where a candidate is skipped"
        )
    return number > 0


def warn_of_ties(measures: Iterable[Measure], analysis: Analysis) -> bool:
    """Warn if the order of tied candidates decides about a value in [0, 1]; whether it does.

    Only metrics with the default rank type alone: other rank types show what ties do.
    """
    sample = analysis.sample()
    if not sample.tie_mass > _LEAST_TIES * sample.total:
        return False
    by_metric: dict[Any, list[Measure]] = {}
    for measure in measures:
        by_metric.setdefault((measure.definition, measure.side, measure.average), []).append(
            measure
        )
    for alike in by_metric.values():
        is_default = {measure.rank_type for measure in alike} == {"realistic"}
        if is_default and alike[0].definition.bounds("base")[1] == 1:
            base = replace(alike[0], view="base")
            low, high = _ends(base, analysis)
            if abs(high - low) > _LEAST_GAP:
                _warn_of_ties(base, low, high, analysis)
                return True
    return False


def _ends(base: Measure, analysis: Analysis) -> tuple[float, float]:
    """Values with pessimistic and with optimistic ranks."""
    worst = replace(base, rank_type="pessimistic")
    best = replace(base, rank_type="optimistic")
    return worst.value_or_nan(analysis), best.value_or_nan(analysis)


def _warn_of_ties(base: Measure, low: float, high: float, analysis: Analysis) -> None:
    sample = analysis.sample()
    values = f"{high:.4f} with optimistic and {low:.4f} with pessimistic ranks"
    if not base.definition.why_undefined("base", "expected"):
        expected = replace(base, rank_type="expected").value_or_nan(analysis)
        values += f" ({expected:.4f} expected over random orders of ties)"
    warn(
        f"{100 * sample.tie_mass / sample.total:.0f}% of the targets tie with another candidate, "
        f"so that their order decides about {base.key}: it is {values}. Find "
        "out why scores are equal (constant, rounded or low precision), and report rank_types="
        "'pessimistic' or 'expected'"
    )


def warn_of_nothing(analysis: Analysis) -> None:
    """Warn if there is no ranking task at all."""
    if not analysis.has_rows:
        warn(
            "0 ranking tasks were given, so that values are NaN: check that the dataset, its split "
            "or the loader is not empty"
        )
