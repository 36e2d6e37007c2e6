"""``compare``: two models on the same tasks."""

from pathlib import Path
from typing import Annotated

import typer

from torchrankmetrics.checks import check_choice
from torchrankmetrics.cli.output import FormatOption, OutputOption, busy, emit, split_list
from torchrankmetrics.cli.tables import MaxBytesOption, input_path, load
from torchrankmetrics.evaluation.compare import compare
from torchrankmetrics.rendering import Tabular
from torchrankmetrics.table.table_io import MAX_BYTES


def compare_command(
    a: Annotated[
        Path,
        typer.Argument(
            help="Ranks of the first model (.npz), a folder with a file per training run, or -.", callback=input_path
        ),
    ],
    b: Annotated[Path, typer.Argument(help="Ranks of the second, of the same tasks.", callback=input_path)],
    metrics: Annotated[str, typer.Option("--metric", "-m", help="Metrics, separated by commas.")] = "mrr",
    level: Annotated[float, typer.Option("--level", help="Of the interval of the difference.")] = 0.95,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="What is drawn together: group or sample_id (both sides of a triple)."),
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", help="Of the bootstrap.")] = 2000,
    permutations: Annotated[int, typer.Option("--permutations", help="Of the sign-flip test.")] = 9999,
    seed: Annotated[int, typer.Option("--seed", help="Of both.")] = 0,
    max_bytes: MaxBytesOption = MAX_BYTES,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Compare two models on the same tasks: difference, interval, p-value.

    Tasks are matched by side and sample id, else by order. With folders, training seeds are told apart from test tasks;
    p_adjusted is by Holm over the metrics.

    For example

    `torchrankmetrics compare a.npz b.npz -m mrr,hits@10,amri --cluster sample_id`
    """
    if cluster is not None:
        check_choice("--cluster", cluster, ("group", "sample_id"))
    runs = [load(path, max_bytes) for path in (a, b)]
    names = split_list(metrics, "--metric")
    with busy("resampling"):
        results = compare(
            runs[0],
            runs[1],
            names,
            level=level,
            cluster=cluster,
            resamples=resamples,
            permutations=permutations,
            seed=seed,
        ).rows
    rows = [
        (one.metric, one.a, one.b, one.difference, one.low, one.high, one.p_value, one.p_adjusted, one.test)
        for one in results
    ]
    note = f"{results[0].num_tasks} tasks, intervals at {100 * level:g} %; a: {a}, b: {b}"
    if results[0].num_clusters is not None:
        note += f"; {results[0].num_clusters} clusters"
    columns = ("metric", "a", "b", "a - b", "low", "high", "p", "p_adjusted", "test")
    emit(Tabular.named(columns, rows, (note,)), form, output)
