"""``candidates``: the filtered candidate counts of one's own graph."""

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchrankmetrics.cli.options import EntitiesOption, input_path
from torchrankmetrics.cli.output import FormatOption, OutputOption, choices_of, emit, given, refuse, watch
from torchrankmetrics.rendering import Cell, Tabular
from torchrankmetrics.sides import ENTITY_SIDES

if TYPE_CHECKING:
    from torchrankmetrics.datasets.triple_files import Graph

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
    from torchrankmetrics.cli.counts import HISTOGRAM
    from torchrankmetrics.datasets.facts import ENTITIES, KNOWN, Split
    from torchrankmetrics.datasets.triple_files import number_triples, read_triples
    from torchrankmetrics.protocols.histograms import candidate_histogram

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
