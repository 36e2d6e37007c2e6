"""``adjust``, ``datasets``, ``candidates`` and ``metrics``: published numbers, candidate counts, names of metrics."""

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from torchrankmetrics.cli import common
from torchrankmetrics.cli.common import opt
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.validation import ENTITY_SIDES, check_choice

_TASKS = ("dataset", "split", "side", "entities", "known")
_MOST_ENTITIES = 2**31  # sums over tasks then stay below 2^63


def adjust_command(
    context: typer.Context,
    metric: Annotated[str, opt("Published metric: mrr, mr, hits@10 ...", "--metric", "-m")],
    value: Annotated[str, opt("Published value with its digits; hits as a share.")],
    dataset: Annotated[str | None, opt("Dataset with known candidate counts.", "--dataset", "-d")] = None,
    counts: Annotated[Path | None, opt("Candidate counts: CSV file that candidates --histogram writes.")] = None,
    num_candidates: Annotated[int | None, opt("Number of candidates of every task.")] = None,
    view: Annotated[str, opt("Views: adjusted_index, normalized, z_score, p_value.")] = "adjusted_index",
    split: Annotated[str, opt("Split: train, valid or test.")] = "test",
    side: Annotated[str, opt("Side of the ranking tasks: both, head or tail.")] = "both",
    entities: common.EntitiesOption = "all",
    form: common.FormatOption = None,
    output: common.OutputOption = None,
) -> None:
    """Adjust a published number for chance, with the candidate counts of its test set.

    0 is random ranking and 1 the optimum; low and high are the ends of the interval that the rounding leaves.

    For example

    `torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`

    `torchrankmetrics adjust -d wn18rr -m hits@10 --value 0.55 --view adjusted_index,z_score --side tail`
    """
    from torchrankmetrics.cli.reading import SIDES, counts_of
    from torchrankmetrics.datasets.facts import ENTITIES, SPLITS
    from torchrankmetrics.metrics.adjust import adjust
    from torchrankmetrics.metrics.measure import Measure
    from torchrankmetrics.metrics.registry import base_definition
    from torchrankmetrics.metrics.views import VIEWS

    views = common.choices_of(view, "--view", VIEWS[1:])
    part = check_choice("--split", split, SPLITS), check_choice("--side", side, SIDES)
    if sum(source is not None for source in (dataset, counts, num_candidates)) != 1:
        raise ValueError("one of --dataset, --counts and --num-candidates must be given, for the candidate counts")
    if num_candidates is not None:
        common.require(context, "with --num-candidates", "split", "side", "entities")
    source = dataset if counts is None else common.input_path(counts)
    known: Any = num_candidates
    note = f"{num_candidates} candidates in every task"
    if source is not None:
        known, note = counts_of(source, *part, check_choice("--entities", entities, ENTITIES))
    rows: list[tuple[Cell, ...]] = []
    for one in views:
        result = adjust(value, metric, known, view=one)
        cells: tuple[float, ...] = (result.value, result.low, result.high)
        if result.log10_p is not None:
            cells = tuple(map(PValue, cells, result.log10_p))
        rows.append((Measure(base_definition(metric), one).key, *cells))
    common.emit(Tabular.named(("metric", "value", "low", "high"), rows, (note,)), form, output)


def datasets_command(
    names: Annotated[list[str] | None, typer.Argument(help="Names of datasets; default: all.")] = None,
    metrics: Annotated[
        str | None, opt("Metrics to print mean and variance of under random ranking.", "--metric", "-m")
    ] = None,
    split: Annotated[str, opt("Splits: train, valid, test.")] = "test",
    side: Annotated[str, opt("Sides: both, head, tail.")] = "both",
    entities: common.EntitiesOption = "all",
    form: common.FormatOption = None,
    output: common.OutputOption = None,
) -> None:
    """List the datasets with known filtered candidate counts, or mean and variance under random ranking on them.

    Each split is filtered by itself and the splits before it (column known).

    For example

    `torchrankmetrics datasets`

    `torchrankmetrics datasets --metric mrr,hits@10 --format csv --split valid,test --side both,head,tail`
    """
    from torchrankmetrics.cli.reading import SIDES, counts_of
    from torchrankmetrics.datasets import dataset_facts, dataset_names
    from torchrankmetrics.datasets.facts import ENTITIES, SPLITS
    from torchrankmetrics.metrics.registry import base_definition
    from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION

    definitions = [base_definition(name) for name in (common.split_list(metrics, "--metric") if metrics else ())]
    parts = list(
        product(
            common.choices_of(split, "--split", SPLITS),
            common.choices_of(side, "--side", SIDES),
            common.choices_of(entities, "--entities", ENTITIES),
        )
    )
    rows: list[tuple[Cell, ...]] = []
    for facts, part in product(map(dataset_facts, names or dataset_names()), parts):
        if part[0] not in facts.num_triples and not names:
            continue
        counts, _ = counts_of(facts.name, *part)
        task = (facts.name, *part, "+".join(facts.known[part[0]]))
        N, tasks = counts.num_candidates, counts.num_tasks
        if metrics is None:
            sizes = (facts.num_entities[part[2]], facts.num_relations, tasks, len(N))
            rows.append((*task, *sizes, int(N[0]), int((N * counts.count).sum()) / tasks, int(N[-1])))
        for definition in definitions:
            found = DEFAULT_EXPECTATION.moments(definition, counts)
            rows.append((*task, definition.name, found.mean, found.variance))
    columns: tuple[str, ...] = (*_TASKS, "entities_known", "relations", "tasks", "distinct", "min", "mean", "max")
    note = "distinct, min, mean, max: numbers of filtered candidates of the tasks"
    if metrics is not None:
        columns = (*_TASKS, "metric", "mean", "variance")
        note = "mean and variance of the metric if every rank is uniform among its candidates, independently"
    common.emit(Tabular.named(columns, rows, (note,), keys=len(_TASKS) + bool(metrics)), form, output)


def candidates_command(
    context: typer.Context,
    train: Annotated[Path, opt("File of triples: head TAB relation TAB tail, labels or ids.")],
    test: Annotated[Path, opt("File of test triples.")],
    valid: Annotated[Path | None, opt("File of validation triples.")] = None,
    entities: common.EntitiesOption = "all",
    num_entities: Annotated[int | None, opt("Number of entities, if some occur in no triple.")] = None,
    histogram: Annotated[bool, opt("Print every count, for adjust --counts.", "--histogram")] = False,
    form: common.FormatOption = None,
    output: common.OutputOption = None,
) -> None:
    """Count the filtered candidates of every ranking task of a graph.

    Test is filtered by all files, valid by train and valid, train by train: early stopping must not see test triples.

    For example

    `torchrankmetrics candidates --train train.tsv --valid valid.tsv --test test.tsv`

    `torchrankmetrics candidates --train train.tsv --test test.tsv --histogram -f csv -o counts.csv`
    """
    from torchrankmetrics.cli.reading import HISTOGRAM
    from torchrankmetrics.datasets.facts import ENTITIES, KNOWN, Split
    from torchrankmetrics.datasets.triple_files import number_triples, read_triples
    from torchrankmetrics.kg.known_triples import candidate_histogram

    kinds = common.choices_of(entities, "--entities", ENTITIES)
    if "all" not in kinds:
        common.require(context, "without --entities all", "num_entities")
    paths: dict[Split, Path | None] = {"train": train, "valid": valid, "test": test}
    files = {split: common.input_path(path) for split, path in paths.items() if path is not None}
    rows: list[tuple[Cell, ...]] = []
    with common.busy("candidates"):
        graph = number_triples({split: read_triples(path) for split, path in files.items()})
        found = len(graph.entities)
        number = found if num_entities is None else num_entities
        if not found <= number <= _MOST_ENTITIES:
            limits = f"at least {found}, which occur in the triples, and at most {_MOST_ENTITIES}"
            raise ValueError(f"--num-entities must be {limits}; got {number}")
        for split, kind, side in product(files, kinds, ENTITY_SIDES):
            known = [name for name in KNOWN[split] if name in files]
            total = number if kind == "all" else found  # entities of train are given by id
            N, count = candidate_histogram(graph.splits, split, known, side, entities=kind, num_entities=total)
            if histogram:
                rows += [(split, kind, side, int(n), int(c)) for n, c in zip(N, count, strict=True)]
            elif len(N):
                tasks = int(count.sum())
                counts = (tasks, len(N), int(N[0]), int((N * count).sum()) / tasks, int(N[-1]))
                rows.append((split, kind, side, "+".join(known), *counts))
    notes = [f"{number} entities, {len(graph.relations)} relations"]
    if all(label.isdecimal() for label in graph.entities) and (most := max(map(int, graph.entities))) >= number:
        notes.append(f"ids go up to {most}, but only {number} occur: if all are entities, --num-entities {most + 1}")
    summary = ("split", "entities", "side", "known", "tasks", "distinct", "min", "mean", "max")
    common.emit(Tabular.named(HISTOGRAM if histogram else summary, rows, notes, keys=3), form, output)


def metrics_command(form: common.FormatOption = None, output: common.OutputOption = None) -> None:
    """List the metrics of ranking tasks and of queries, with their views and synonyms.

    For example

    `torchrankmetrics metrics`
    """
    from torchrankmetrics.metrics.measure import VIEW_PREFIXES
    from torchrankmetrics.metrics.registry import all_names, as_measure

    rows: list[tuple[Cell, ...]] = []
    for name, synonyms in all_names().items():
        measure = as_measure(name.replace("<k>", "10").replace("<p>", "2"))
        kind = "queries" if measure.definition.of_tasks is None else "tasks"
        better = {True: "higher", False: "lower", None: ""}[measure.higher_is_better]
        views = zip(VIEW_PREFIXES, measure.with_views(*VIEW_PREFIXES), strict=True)
        rows.append((name, kind, better, " ".join(view for view, one in views if one), " ".join(synonyms)))
    note = (
        "A name may contain side, rank type and view: tail_pessimistic_z_mrr. Views: z_mrr, p_mrr, adjusted_mrr, "
        "normalized_mrr; amr and amri are the normalized and the adjusted mean rank"
    )
    common.emit(Tabular.named(("metric", "of", "better", "views", "also"), rows, (note,)), form, output)
