"""``plan``: how many tasks and training seeds a difference needs."""

import math
from typing import Annotated

import typer

from torchrankmetrics.cli.options import ClusterOption, FirstArgument, MaxBytesOption, SecondArgument
from torchrankmetrics.cli.output import FormatOption, OutputOption, emit
from torchrankmetrics.cli.tables import load
from torchrankmetrics.files import MAX_BYTES


def plan_command(
    a: FirstArgument,
    b: SecondArgument,
    difference: Annotated[
        float, typer.Option("--difference", "-d", help="That is to be found, in the units of the metric.")
    ],
    metric: Annotated[str, typer.Option("--metric", "-m", help="One metric.")] = "mrr",
    power: Annotated[float, typer.Option("--power", help="Probability to find it.")] = 0.8,
    confidence_level: Annotated[float, typer.Option("--confidence-level", help="Of the test to come.")] = 0.95,
    cluster: ClusterOption = None,
    max_bytes: MaxBytesOption = MAX_BYTES,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Plan a comparison from one at hand: tasks and seeds for a difference.

    Single runs plan tasks for two sets of weights, folders of runs plan seeds too. The difference is one that would
    matter, not the one observed.

    For example

    `torchrankmetrics plan runs_a runs_b -m mrr --difference 0.01`
    """
    from torchrankmetrics.evaluation.planning import plan
    from torchrankmetrics.rendering import Cell, Tabular

    if not 0 < power < 1:
        raise ValueError(f"--power must be between 0 and 1, got {power}")
    if not (difference and math.isfinite(difference)):
        raise ValueError(f"--difference must be a number other than 0, got {difference}")
    planned = plan(load(a, max_bytes), load(b, max_bytes), metric, confidence_level=confidence_level, cluster=cluster)
    rows: list[tuple[Cell, ...]] = []
    for seeds in (2, 3, 5, 10, 20) if planned.variance.seeds_known else (1,):
        needed = planned.tasks_for(difference, power, seeds)
        rows.append(
            (
                seeds,
                "none is enough" if math.isinf(needed) else int(needed),
                planned.power(difference, num_seeds=seeds),
                planned.detectable(power, num_seeds=seeds),
            )
        )
    columns = ("runs of each", f"{planned.unit} needed", "power now", "smallest found now")
    now = f"{planned.num_units} {planned.unit} and {planned.num_seeds} runs of each at hand"
    note = f"{planned.metric}, difference {difference:g}, power {power:g}, level {100 * confidence_level:g} %; {now}"
    emit(Tabular.named(columns, rows, (note,), keys=1), form, output)
