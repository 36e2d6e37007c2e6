"""``adjust``: a published number put against chance."""

from pathlib import Path
from typing import Annotated

import typer

from torchrankmetrics.checks import check_choice
from torchrankmetrics.cli.options import EntitiesOption, input_path
from torchrankmetrics.cli.output import FormatOption, OutputOption, choices_of, emit, given, refuse
from torchrankmetrics.rendering import Cell, PValue, Tabular


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
    from torchrankmetrics.cli.counts import SIDES, counts_of_dataset, counts_of_file
    from torchrankmetrics.datasets.facts import ENTITIES, SPLITS
    from torchrankmetrics.evaluation.adjust import adjust
    from torchrankmetrics.evaluation.measure import Measure
    from torchrankmetrics.evaluation.names import base_definition
    from torchrankmetrics.theory.candidates import CandidateCounts
    from torchrankmetrics.theory.views import VIEWS

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
