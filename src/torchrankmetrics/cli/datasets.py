"""``datasets``: what is known of the benchmark graphs, and the null moments of metrics on them."""

from itertools import product
from typing import Annotated

import typer

from torchrankmetrics.cli.options import EntitiesOption
from torchrankmetrics.cli.output import Format, FormatOption, OutputOption, choices_of, emit, given, refuse, split_list


def datasets_command(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; none: all.", show_default=False)] = None,
    moments: Annotated[
        bool, typer.Option("--moments", help="Mean and variance of metrics under random ranking.")
    ] = False,
    metrics: Annotated[str, typer.Option("--metric", "-m", help="Base metrics of --moments.")] = (
        "mr,mrr,hits_at_1,hits_at_3,hits_at_10,imr,hmr,gmr,igmr"
    ),
    splits: Annotated[str, typer.Option("--split", help="Of train, valid, test.")] = "test",
    sides: Annotated[str, typer.Option("--side", help="Of both, head, tail.")] = "both",
    entities: EntitiesOption = "all",
    provenance: Annotated[
        bool, typer.Option("--provenance", help="Source, licence, protocol, checksums of the triples.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Short for --format csv.")] = False,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """List known data sets, or mean and variance by chance on them.

    Known are their filtered candidate counts. Each split is filtered by itself and those before it (column known).

    For example

    `torchrankmetrics datasets`

    `torchrankmetrics datasets --moments --csv --split valid,test --side both,head,tail --entities all,train`
    """
    from torchrankmetrics.cli import catalogue
    from torchrankmetrics.cli.counts import SIDES
    from torchrankmetrics.datasets import dataset_facts, dataset_names
    from torchrankmetrics.datasets.facts import ENTITIES, SPLITS

    if as_csv and form not in (None, Format.csv):
        raise ValueError(f"--csv and --format {form} are two formats: ask for one")
    form = Format.csv if as_csv else form
    if not moments and not provenance:
        refuse(given(context, "metrics"), "it is of --moments")
    wanted = [dataset_facts(name).name for name in names or dataset_names()]
    if provenance:
        if moments:
            raise ValueError("--provenance and --moments are two tables: ask for one")
        refuse(given(context, "metrics", "splits", "sides", "entities"), "--provenance tells all of a data set")
        emit(catalogue.provenance(wanted), form, output)
        return
    tasks = list(
        product(
            wanted,
            choices_of(splits, "--split", SPLITS),
            choices_of(sides, "--side", SIDES),
            choices_of(entities, "--entities", ENTITIES),
        )
    )
    if not names:  # of all that are known, those that have the split
        tasks = [task for task in tasks if task[1] in dataset_facts(task[0]).num_triples]
    if moments:
        emit(catalogue.null_moments(tasks, split_list(metrics, "--metric")), form, output)
        return
    emit(catalogue.listed(tasks), form, output)
