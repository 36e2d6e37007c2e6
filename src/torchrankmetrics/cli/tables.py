"""Files of ranks from the arguments of a command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torchrankmetrics.table.rank_table import RankTable

MaxBytesOption = Annotated[
    int, typer.Option("--max-bytes", help="Refuse a file of ranks that would take more memory.", min=1)
]


def input_path(path: Path | None) -> Path | None:
    """Read - as the standard input."""
    return Path("/dev/stdin") if path is not None and str(path) == "-" else path


def files_of(path: Path) -> list[Path]:
    """Give the .npz files of a folder, by name, or the file itself.

    Raises:
        ValueError: if the folder has none.
    """
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.npz"))
    if not files:
        raise ValueError(f"{path} is a folder without .npz files: expected one per training run")
    return files


def load(path: Path, max_bytes: int) -> "RankTable | list[RankTable]":
    """Load a file, or every file of a folder."""
    from torchrankmetrics.table.rank_table import RankTable

    tables = [RankTable.load(file, max_bytes=max_bytes) for file in files_of(path)]
    return tables if path.is_dir() else tables[0]
