"""Arguments and options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

from torchrankmetrics.checks import check_choice


def input_path(path: Path | None) -> Path | None:
    """Read - as the standard input."""
    return Path("/dev/stdin") if path is not None and str(path) == "-" else path


def _cluster(name: str | None) -> str | None:
    return None if name is None else check_choice("--cluster", name, ("group", "sample_id"))


FirstArgument = Annotated[
    Path,
    typer.Argument(
        help="Ranks of the first model (.npz or .parquet), a folder with a file per training run, or -.",
        callback=input_path,
    ),
]
SecondArgument = Annotated[Path, typer.Argument(help="Ranks of the second, of the same tasks.", callback=input_path)]
MetricsOption = Annotated[str, typer.Option("--metric", "-m", help="Metrics, separated by commas.")]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="What is drawn together: group or sample_id (both sides of a triple).", callback=_cluster
    ),
]
EntitiesOption = Annotated[
    str, typer.Option("--entities", help="Of all, train: only entities of train are candidates (as in PyKEEN).")
]
MaxBytesOption = Annotated[
    int, typer.Option("--max-bytes", help="Refuse a file of ranks that would take more memory.", min=1)
]
