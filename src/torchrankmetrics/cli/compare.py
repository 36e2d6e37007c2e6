"""``compare``: two models on the same tasks."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from torchrankmetrics.cli.options import ClusterOption, FirstArgument, MaxBytesOption, MetricsOption, SecondArgument
from torchrankmetrics.cli.output import FormatOption, OutputOption, busy, emit, given, refuse, split_list
from torchrankmetrics.cli.tables import SUFFIXES, load
from torchrankmetrics.files import MAX_BYTES


def compare_command(
    context: typer.Context,
    a: FirstArgument,
    b: SecondArgument,
    others: Annotated[
        list[Path] | None, typer.Argument(help="Of more models: then every pair is compared.", show_default=False)
    ] = None,
    metrics: MetricsOption = "mrr",
    confidence_level: Annotated[
        float, typer.Option("--confidence-level", help="Of the interval of the difference.")
    ] = 0.95,
    cluster: ClusterOption = None,
    n_resamples: Annotated[int, typer.Option("--n-resamples", help="Of the bootstrap.")] = 2000,
    permutations: Annotated[int, typer.Option("--permutations", help="Of the sign-flip test.")] = 9999,
    seed: Annotated[int, typer.Option("--seed", help="Of both.")] = 0,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", help="Of three models and more, the one to compare with the others: its name, or best."
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option("--margin", help="Of two models: are they equal to within it, in the units of the metrics?"),
    ] = None,
    max_bytes: MaxBytesOption = MAX_BYTES,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Compare models on the same tasks: difference, interval, p.

    Tasks are matched by side and sample id, else by order. With folders, training seeds are told apart from test tasks.
    Of two models p_adjusted is by Holm over the metrics; three and more are called by their files, and are one family
    with the metrics (max-T, or Holm for folders).

    For example

    `torchrankmetrics compare a.npz b.npz -m mrr,hits@10,amri --cluster sample_id`

    `torchrankmetrics compare ours.npz theirs.npz old.npz -m mrr,hits@10 --baseline best`

    `torchrankmetrics compare new.npz old.npz -m mrr --margin 0.01`
    """
    from torchrankmetrics.evaluation.compare import compare
    from torchrankmetrics.evaluation.equivalence import equivalence, equivalences

    paths = [a, b, *(others or [])]
    if len(paths) == 2:
        refuse(given(context, "baseline"), "of two models there is one pair")
    elif margin is not None:
        raise ValueError("--margin is of two models")
    names = split_list(metrics, "--metric")
    models = [load(path, max_bytes) for path in paths]
    options: dict[str, Any] = {"n_resamples": n_resamples, "permutations": permutations, "seed": seed}
    options |= {"confidence_level": confidence_level, "cluster": cluster}
    with busy("resampling"):
        if margin is not None:
            table = equivalences([equivalence(models[0], models[1], name, margin=margin, **options) for name in names])
            table = replace(table, notes=("; ".join([*table.notes, f"a: {a}, b: {b}"]),))
        elif len(models) == 2:
            table = compare(models[0], models[1], names, **options).tabular()
            table = replace(table, notes=("; ".join([*table.notes, f"a: {a}, b: {b}"]),))
        else:
            table = compare(
                dict(zip(_names(paths), models, strict=True)), names, baseline=baseline, **options
            ).tabular()
    emit(table, form, output)


def _names(paths: list[Path]) -> list[str]:
    """Names of models: of their files, where these differ, else the whole paths.

    Raises:
        ValueError: if a path comes twice.
    """
    names = [path.name.removesuffix(path.suffix if path.suffix in SUFFIXES else "") for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise ValueError(f"models must be different files; got {', '.join(names)}")
    return names
