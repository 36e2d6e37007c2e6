"""``adjust``, ``datasets``, ``candidates`` and ``metrics``: published numbers, candidate counts, names of metrics."""

import csv
import io
from collections.abc import Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from torchrankmetrics.cli.options import AdjustCommand, CandidatesCommand, Command, DatasetsCommand
from torchrankmetrics.cli.output import busy, choices_of, emit, input_path, split_list
from torchrankmetrics.datasets import candidate_counts, dataset_facts, dataset_names
from torchrankmetrics.datasets.facts import ENTITIES, KNOWN, SPLITS, Entities, Split
from torchrankmetrics.datasets.triple_files import number_triples, read_text, read_triples
from torchrankmetrics.definitions.candidates import CandidateCounts
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.validation import ENTITY_SIDES, EntitySide, check_choice

Side = Literal["both", EntitySide]
SIDES: tuple[Side, ...] = get_args(Side)
_HISTOGRAM = ("split", "entities", "side", "num_candidates", "count")  # what --counts reads
_TASKS = ("dataset", "split", "side", "entities", "known")
_COUNTS = ("tasks", "distinct", "min", "mean", "max")
_MOST_ENTITIES = 2**31  # sums over tasks then stay below 2^63


def adjust_value(options: AdjustCommand) -> int:
    """Adjust a published number in every view."""
    from torchrankmetrics.definitions.protocol import VIEWS
    from torchrankmetrics.metrics.adjust import adjust
    from torchrankmetrics.metrics.measure import Measure
    from torchrankmetrics.metrics.registry import base_definition

    views = choices_of(options.view, "--view", VIEWS[1:])
    split, side = check_choice("--split", options.split, SPLITS), check_choice("--side", options.side, SIDES)
    number = options.num_candidates
    if sum(source is not None for source in (options.dataset, options.counts, number)) != 1:
        raise ValueError("one of --dataset, --counts and --num-candidates must be given, for the candidate counts")
    if number is not None:
        options.require("with --num-candidates", "split", "side", "entities")
        known: Any = number
        note = f"{number} candidates in every task"
    else:
        entities = check_choice("--entities", options.entities, ENTITIES)
        if options.counts is not None:
            title, known = str(options.counts), _read_counts(input_path(options.counts), split, side, entities)
        else:
            title = dataset_facts(str(options.dataset)).title
            known = candidate_counts(str(options.dataset), split, None if side == "both" else side, entities)
        sides = "both sides" if side == "both" else f"{side} side"
        kind = "all entities" if entities == "all" else "entities of train only"
        low, high = known.num_candidates[0], known.num_candidates[-1]
        note = f"{title}: {split} split, {sides}, {kind}: {known.num_tasks} tasks among {low} to {high} candidates"
    rows: list[tuple[Cell, ...]] = []
    for view in views:
        result = adjust(options.value, options.metric, known, view=view)
        cells: tuple[float, ...] = (result.value, result.low, result.high)
        if result.log10_p is not None:
            cells = tuple(map(PValue, cells, result.log10_p))
        rows.append((Measure(base_definition(options.metric), view).key, *cells))
    emit(options, Tabular.named(("metric", "value", "low", "high"), rows, (note,)))
    return 0


def _read_counts(path: Path, split: Split, side: Side, entities: Entities) -> CandidateCounts:
    """Read the CSV that ``candidates --histogram`` writes."""
    expected = ",".join(_HISTOGRAM)
    try:
        lines = list(csv.reader(io.StringIO(read_text(path, f"expected {expected}"))))
    except csv.Error as error:
        raise ValueError(f"{path} is not a CSV file with the columns {expected}: {error}") from error
    if not lines or tuple(lines[0]) != _HISTOGRAM:
        raise ValueError(f"{path} must start with the columns {expected} (candidates --histogram -f csv)")
    found = []
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(_HISTOGRAM) or not all(cell.isdecimal() and len(cell) < 19 for cell in line[3:]):
            raise ValueError(f"{path} line {number}: expected {expected}, the last two integers below 10^18")
        if line[:2] == [split, entities] and line[2] in (ENTITY_SIDES if side == "both" else (side,)):
            found.append((int(line[3]), int(line[4])))
    if not found:
        raise ValueError(f"{path} has no tasks of split {split!r}, side {side!r}, entities {entities!r}")
    return CandidateCounts.of([n for n, _ in found], count=[count for _, count in found])


def datasets(options: DatasetsCommand) -> int:
    """List datasets, or mean and variance of metrics on them."""
    parts = list(
        product(
            choices_of(options.split, "--split", SPLITS),
            choices_of(options.side, "--side", SIDES),
            choices_of(options.entities, "--entities", ENTITIES),
        )
    )
    metrics = [] if options.metrics is None else split_list(options.metrics, "--metric")
    rows: list[tuple[Cell, ...]] = []
    for facts, part in product(map(dataset_facts, options.names or dataset_names()), parts):
        split, side, entities = part
        if split not in facts.num_triples and not options.names:
            continue
        counts = candidate_counts(facts.name, split, None if side == "both" else side, entities)
        task = (facts.name, *part, "+".join(facts.known[split]))
        if metrics:
            rows += [(*task, *row) for row in _moments(metrics, counts)]
        else:
            rows.append((*task, facts.num_entities[entities], facts.num_relations, *_summary(counts)))
    if metrics:
        columns: tuple[str, ...] = (*_TASKS, "metric", "mean", "variance")
        note = "mean and variance of the metric if every rank is uniform among its candidates, independently"
    else:
        columns = (*_TASKS, "entities_known", "relations", *_COUNTS)
        note = "distinct, min, mean, max: numbers of filtered candidates of the tasks"
    emit(options, Tabular.named(columns, rows, (note,), keys=len(_TASKS) + bool(metrics)))
    return 0


def _moments(metrics: Sequence[str], counts: CandidateCounts) -> list[tuple[Cell, ...]]:
    from torchrankmetrics.metrics.registry import base_definition
    from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION

    definitions = [base_definition(name) for name in metrics]
    found = [DEFAULT_EXPECTATION.moments(definition, counts) for definition in definitions]
    return [(one.name, moments.mean, moments.variance) for one, moments in zip(definitions, found, strict=True)]


def _summary(counts: CandidateCounts) -> tuple[int | float, ...]:
    N, tasks = counts.num_candidates, counts.num_tasks
    return tasks, len(N), int(N[0]), int((N * counts.count).sum()) / tasks, int(N[-1])


def candidates(options: CandidatesCommand) -> int:
    """Count the candidates of a graph given as files."""
    from torchrankmetrics.kg.known_triples import candidate_histogram

    kinds = choices_of(options.entities, "--entities", ENTITIES)
    if "all" not in kinds:
        options.require("without --entities all", "num_entities")
    paths: dict[Split, Path | None] = {"train": options.train, "valid": options.valid, "test": options.test}
    given = {split: input_path(path) for split, path in paths.items() if path is not None}
    rows: list[tuple[Cell, ...]] = []
    with busy("candidates"):
        graph = number_triples({split: read_triples(path) for split, path in given.items()})
        found = len(graph.entities)
        number = found if options.num_entities is None else options.num_entities
        if not found <= number <= _MOST_ENTITIES:
            limits = f"at least {found}, which occur in the triples, and at most {_MOST_ENTITIES}"
            raise ValueError(f"--num-entities must be {limits}; got {number}")
        for split, kind, side in product(given, kinds, ENTITY_SIDES):
            known = [name for name in KNOWN[split] if name in given]
            total = number if kind == "all" else found  # entities of train are given by id
            N, count = candidate_histogram(graph.splits, split, known, side, entities=kind, num_entities=total)
            if options.histogram:
                rows += [(split, kind, side, int(n), int(c)) for n, c in zip(N, count, strict=True)]
            elif len(N):
                rows.append((split, kind, side, "+".join(known), *_summary(CandidateCounts.of(N, count=count))))
    notes = [f"{number} entities, {len(graph.relations)} relations"]
    if all(label.isdecimal() for label in graph.entities) and (most := max(map(int, graph.entities))) >= number:
        notes.append(f"ids go up to {most}, but only {number} occur: if all are entities, --num-entities {most + 1}")
    columns = _HISTOGRAM if options.histogram else ("split", "entities", "side", "known", *_COUNTS)
    emit(options, Tabular.named(columns, rows, notes, keys=3))
    return 0


def metrics(options: Command) -> int:
    """List names, views and synonyms, from the file that docs/metric_names.py writes: the registry imports torch."""
    text = (files("torchrankmetrics.cli") / "metrics.csv").read_text(encoding="utf-8")
    columns, *rows = csv.reader(text.splitlines())
    note = (
        "A name may contain side, rank type and view: tail_pessimistic_z_mrr. Views: z_mrr, p_mrr, adjusted_mrr, "
        "normalized_mrr; amr and amri are the normalized and the adjusted mean rank"
    )
    emit(options, Tabular.named(columns, rows, (note,)))
    return 0
