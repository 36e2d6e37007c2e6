"""Files of ranks from the arguments of a command."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchrankmetrics.evaluation.rank_table import RankTable

SUFFIXES = (".npz", ".parquet")


def files_of(path: Path) -> list[Path]:
    """Give the tables of a folder, .npz or Parquet, by name; or the path itself, of a file or a folder of one table.

    Raises:
        ValueError: if the folder has none.
    """
    from torchrankmetrics.table.parquet import is_one_table

    if not path.is_dir() or is_one_table(path):
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not files:
        raise ValueError(f"{path} is a folder without .npz files or Parquet: expected one per training run")
    return files


def load(path: Path, max_bytes: int) -> "RankTable | list[RankTable]":
    """Load a table, or every table of a folder."""
    from torchrankmetrics.evaluation.rank_table import RankTable

    files = files_of(path)
    tables = [RankTable.load(file, max_bytes=max_bytes) for file in files]
    return tables[0] if files == [path] else tables
