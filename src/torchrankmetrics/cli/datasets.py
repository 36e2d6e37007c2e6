"""``datasets``: what is known of the benchmark graphs, and the null moments of metrics on them."""

from itertools import product
from typing import Annotated

import typer

from torchrankmetrics.cli.counts import SIDES, Side, counts_of_dataset
from torchrankmetrics.cli.output import (
    Format,
    FormatOption,
    OutputOption,
    choices_of,
    emit,
    given,
    refuse,
    split_list,
    watch,
)
from torchrankmetrics.datasets import dataset_facts, dataset_names
from torchrankmetrics.datasets.facts import ENTITIES, KNOWN, SPLITS, Entities, Split
from torchrankmetrics.evaluation.names import base_definition
from torchrankmetrics.rendering import Cell, Tabular
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION

Task = tuple[str, Split, Side, Entities]
_TASKS = ("dataset", "split", "side", "entities", "known")


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
    entities: Annotated[
        str, typer.Option("--entities", help="Of all, train: only entities of train are candidates (as in PyKEEN).")
    ] = "all",
    provenance: Annotated[
        bool, typer.Option("--provenance", help="Source, licence, checksums of the triples.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Short for --format csv.")] = False,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """List the data sets whose filtered candidate counts are known, or the database of their null moments.

    Each split is filtered by itself and those before it (column known).

    For example

    `torchrankmetrics datasets`

    `torchrankmetrics datasets --moments --csv --split valid,test --side both,head,tail --entities all,train`
    """
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
        emit(_provenance(wanted), form, output)
        return
    tasks = list(
        product(
            wanted,
            choices_of(splits, "--split", SPLITS),
            choices_of(sides, "--side", SIDES),
            choices_of(entities, "--entities", ENTITIES),
        )
    )
    if moments:
        emit(_moments(tasks, split_list(metrics, "--metric")), form, output)
        return
    rows: list[tuple[Cell, ...]] = []
    for task in tasks:
        facts, counts = dataset_facts(task[0]), counts_of_dataset(*task)[0]
        mean = int((counts.num_candidates * counts.count).sum()) / counts.num_tasks
        low, high = int(counts.num_candidates[0]), int(counts.num_candidates[-1])
        sizes = (facts.num_entities[task[3]], facts.num_relations, counts.num_tasks)
        rows.append((*_task(task), *sizes, len(counts.num_candidates), low, mean, high))
    columns = (*_TASKS, "entities_known", "relations", "tasks", "distinct", "min", "mean", "max")
    note = "distinct, min, mean, max: of the filtered candidates of a task"
    emit(Tabular.named(columns, rows, (note,), keys=len(_TASKS)), form, output)


def _moments(tasks: list[Task], metrics: list[str]) -> Tabular:
    definitions = []
    for metric in metrics:
        definition = base_definition(metric)
        if not definition.has_null:
            raise ValueError(f"--metric must name metrics with an expectation, such as mrr or hits@10; got {metric!r}")
        definitions.append(definition)
    rows: list[tuple[Cell, ...]] = []
    pairs = list(product(tasks, definitions))
    for task, definition in watch(pairs, len(pairs), "null moments"):
        counts, _ = counts_of_dataset(*task)
        found = DEFAULT_EXPECTATION.moments(definition, counts)
        rows.append((*_task(task), definition.name, found.mean, found.variance))
    note = "of the metric over all tasks, if every rank is uniform among its candidates, independently"
    return Tabular.named((*_TASKS, "metric", "mean", "variance"), rows, (note,), keys=len(_TASKS) + 1)


def _provenance(names: list[str]) -> Tabular:
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        facts = dataset_facts(name)
        rows += [
            (name, split, facts.num_triples[split], facts.source, facts.licence, facts.checksum[split])
            for split in SPLITS
        ]
    note = "sha256: of the triples as lines of labels, head TAB relation TAB tail LF, sorted by code point"
    return Tabular.named(("dataset", "split", "triples", "source", "licence", "sha256"), rows, (note,), keys=2)


def _task(task: Task) -> tuple[str, ...]:
    return (*task, "+".join(KNOWN[task[1]]))
