"""Read and write rank files: the content distinguishes .npz, Parquet and CSV."""

import os
from pathlib import Path

from torch import Tensor

from torchrankmetrics.table import csv_files, parquet, table_io


def write(path: str | os.PathLike[str], rows: Tensor) -> None:
    """Write rows as Parquet if the path ends in .parquet, else as .npz."""
    (parquet if Path(path).suffix == ".parquet" else table_io).write(path, rows)


def read(path: str | os.PathLike[str], max_bytes: int) -> Tensor:
    """Read the rows of a file or a pipe of either kind, or of a folder of Parquet."""
    if parquet.is_folder(path):
        return parquet.read(path, max_bytes)
    with Path(path).open("rb") as file:
        if file.peek(len(parquet.MAGIC)).startswith(parquet.MAGIC):
            return parquet.read_opened(file, path, max_bytes)
        if csv_files.is_csv(path, file.peek()):
            return csv_files.read(file, path, max_bytes)
        return table_io.read(file, path, max_bytes)


def read_length(path: str | os.PathLike[str]) -> int:
    """Number of rows, from headers and footers alone.

    Raises:
        OSError: if there is no such file to open.
        ValueError: if it is not one of ranks.
    """
    if parquet.is_folder(path):
        return parquet.read_length(path)
    with Path(path).open("rb") as file:
        if file.peek(len(parquet.MAGIC)).startswith(parquet.MAGIC):
            return parquet.read_length(path)
        if csv_files.is_csv(path, file.peek()):
            return sum(bool(line.strip()) for line in file) - 1
        return table_io.read_length(file, path)
