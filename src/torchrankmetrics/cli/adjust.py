"""``adjust``, ``datasets``, ``candidates`` and ``metrics``: published numbers, known and own graphs, metric names."""

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchrankmetrics.cli.output import (
    EntitiesOption,
    Format,
    FormatOption,
    OutputOption,
    choices_of,
    emit,
    given,
    input_path,
    refuse,
    split_list,
    watch,
)
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.validation import ENTITY_SIDES, check_choice

if TYPE_CHECKING:
    from torchrankmetrics.datasets.triple_files import Graph


def adjust_command(
    context: typer.Context,
    metric: Annotated[str, typer.Option("--metric", "-m", help="The published metric: mrr, mr, hits@10 ...")],
    value: Annotated[str, typer.Option("--value", help="Its value as printed, with its digits; hits as a share.")],
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", help="A known data set: see torchrankmetrics datasets.")
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            "--counts", help="Candidate counts of another: candidates --histogram -f csv.", callback=input_path
        ),
    ] = None,
    num_candidates: Annotated[
        int | None, typer.Option("--num-candidates", help="One number for all tasks, where nothing better is known.")
    ] = None,
    views: Annotated[
        str, typer.Option("--view", help="Of adjusted_index, normalized, z_score, p_value.")
    ] = "adjusted_index",
    split: Annotated[str, typer.Option("--split", help="train, valid or test.")] = "test",
    side: Annotated[str, typer.Option("--side", help="both, head or tail: the tasks of the value.")] = "both",
    entities: EntitiesOption = "all",
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Put a published number against chance.

    From the candidate counts of its test set: 0 is chance and 1 the optimum; low and high are what the rounding of the
    printed value leaves.

    For example

    `torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`

    `torchrankmetrics adjust -d wn18rr -m hits@10 --value 0.55 --view adjusted_index,z_score --side tail`
    """
    from torchrankmetrics.cli.reading import SIDES, counts_of_dataset, counts_of_file
    from torchrankmetrics.datasets.facts import ENTITIES, SPLITS
    from torchrankmetrics.definitions.candidates import CandidateCounts
    from torchrankmetrics.metrics.adjust import adjust
    from torchrankmetrics.metrics.measure import Measure
    from torchrankmetrics.metrics.registry import base_definition
    from torchrankmetrics.metrics.views import VIEWS

    asked = choices_of(views, "--view", VIEWS[1:])
    tasks = (
        check_choice("--split", split, SPLITS),
        check_choice("--side", side, SIDES),
        check_choice("--entities", entities, ENTITIES),
    )
    if sum(source is not None for source in (dataset, counts, num_candidates)) != 1:
        raise ValueError(
            "one of --dataset, --counts and --num-candidates must be given: what the value is compared with"
        )
    if num_candidates is not None:
        refuse(given(context, "split", "side", "entities"), "--num-candidates serves all tasks")
    known: CandidateCounts | int = num_candidates or 0
    words = f"{num_candidates} candidates in every task"
    if dataset is not None:
        known, words = counts_of_dataset(dataset, *tasks)
    elif counts is not None:
        known, words = counts_of_file(counts, *tasks)
    rows: list[tuple[Cell, ...]] = []
    for view in asked:
        result = adjust(value, metric, known, view=view)
        numbers: tuple[float, ...] = (result.value, result.low, result.high)
        if result.log10_p is not None:
            numbers = tuple(map(PValue, numbers, result.log10_p))
        rows.append((Measure(base_definition(metric), view).key, *numbers))
    emit(Tabular.named(("metric", "value", "low", "high"), rows, (words,)), form, output)


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
    from torchrankmetrics.cli import reading
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
        emit(reading.provenance(wanted), form, output)
        return
    tasks = list(
        product(
            wanted,
            choices_of(splits, "--split", SPLITS),
            choices_of(sides, "--side", reading.SIDES),
            choices_of(entities, "--entities", ENTITIES),
        )
    )
    if not names:  # of all that are known, those that have the split
        tasks = [task for task in tasks if task[1] in dataset_facts(task[0]).num_triples]
    if moments:
        emit(reading.null_moments(tasks, split_list(metrics, "--metric")), form, output)
        return
    emit(reading.listed(tasks), form, output)


MOST_ENTITIES = 2**31  # that sums over tasks stay far from the end of int64


def candidates_command(
    context: typer.Context,
    train: Annotated[
        Path, typer.Option("--train", help="Triples: head TAB relation TAB tail, labels or ids.", callback=input_path)
    ],
    test: Annotated[Path, typer.Option("--test", help="Triples, as --train.", callback=input_path)],
    valid: Annotated[Path | None, typer.Option("--valid", help="Triples, as --train.", callback=input_path)] = None,
    entities: EntitiesOption = "all",
    num_entities: Annotated[
        int | None, typer.Option("--num-entities", help="If there are entities that no triple has.")
    ] = None,
    histogram: Annotated[
        bool, typer.Option("--histogram", help="Every count, for adjust --counts; else their range and mean.")
    ] = False,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Count the filtered candidates of every task of a graph.

    Test is filtered by all files, valid by train and valid, train by train: early stopping must not look at the test.

    For example

    `torchrankmetrics candidates --train train.tsv --valid valid.tsv --test test.tsv`

    `torchrankmetrics candidates --train train.tsv --test test.tsv --histogram -f csv -o counts.csv`
    """
    from torchrankmetrics.cli.reading import HISTOGRAM
    from torchrankmetrics.datasets.facts import ENTITIES, KNOWN, Split
    from torchrankmetrics.datasets.triple_files import number_triples, read_triples
    from torchrankmetrics.kg.known_triples import candidate_histogram

    asked = choices_of(entities, "--entities", ENTITIES)
    if "all" not in asked:
        refuse(given(context, "num_entities"), "it is of --entities all")
    paths: dict[Split, Path | None] = {"train": train, "valid": valid, "test": test}
    files = {split: path for split, path in paths.items() if path is not None}
    graph = number_triples({split: read_triples(path) for split, path in watch(files.items(), len(files), "reading")})
    number = len(graph.entities)
    if num_entities is not None:
        if not number <= num_entities <= MOST_ENTITIES:
            raise ValueError(
                f"--num-entities must be at least {number}, which occur in the triples, and at most {MOST_ENTITIES}; "
                f"got {num_entities}"
            )
        number = num_entities
    rows: list[tuple[Cell, ...]] = []
    tasks = list(product(files, asked, ENTITY_SIDES))
    for split, kind, side in watch(tasks, len(tasks), "counting"):
        known = [name for name in KNOWN[split] if name in files]
        numbers, count = candidate_histogram(
            graph.splits,
            split,
            known,
            side,
            entities=kind,
            # candidates from train are given by id, and a mask of all entities would take memory for nothing
            num_entities=number if kind == "all" else len(graph.entities),
        )
        if histogram:
            rows += [(split, kind, side, int(n), int(c)) for n, c in zip(numbers, count, strict=True)]
        elif len(numbers):
            total = int(count.sum())
            mean = int((numbers * count).sum()) / total
            rows.append(
                (split, kind, side, "+".join(known), total, len(numbers), int(numbers[0]), mean, int(numbers[-1]))
            )
    summary = ("split", "entities", "side", "known", "tasks", "distinct", "min", "mean", "max")
    emit(Tabular.named(HISTOGRAM if histogram else summary, rows, tuple(_notes(graph, number)), keys=3), form, output)


def _notes(graph: "Graph", number: int) -> list[str]:
    notes = [f"{number} entities, {len(graph.relations)} relations"]
    if all(label.isdecimal() for label in graph.entities):
        largest = max(map(int, graph.entities))
        if largest >= number:
            notes.append(
                f"ids go up to {largest}, but only {number} occur: if all are entities, --num-entities {largest + 1}"
            )
    return notes


_EXAMPLE = {"<k>": "10", "<p>": "2"}


def metrics_command(form: FormatOption = None, output: OutputOption = None) -> None:
    """List the metrics: of tasks, one answer each, or of queries with several; which views each has; other names.

    For example

    `torchrankmetrics metrics`
    """
    from torchrankmetrics.metrics.measure import VIEW_PREFIXES
    from torchrankmetrics.metrics.registry import all_names, as_measure

    rows: list[tuple[Cell, ...]] = []
    for name, synonyms in all_names().items():
        known = name
        for mark, number in _EXAMPLE.items():
            known = known.replace(mark, number)
        measure = as_measure(known)
        views = zip(VIEW_PREFIXES, measure.seen_as(*VIEW_PREFIXES), strict=True)
        of = "queries" if measure.definition.of_tasks is None else "tasks"
        better = {True: "higher", False: "lower", None: ""}[measure.higher_is_better]
        seen = " ".join(view for view, found in views if found is not None)
        rows.append((name, of, better, seen, " ".join(synonyms)))
    notes = (
        "A name may say its side, rank type and view: tail_pessimistic_z_mrr. Views: z_mrr, p_mrr, adjusted_mrr, "
        "normalized_mrr; amr and amri are the normalized and the adjusted mean rank",
    )
    emit(Tabular.named(("metric", "of", "better", "views", "also"), rows, notes), form, output)
