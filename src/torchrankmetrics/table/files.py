"""Files of ranks in any format: the content distinguishes .npz, Parquet and CSV."""

import os
from pathlib import Path
from typing import Any

from torch import Tensor

from torchrankmetrics.table import csv_files, parquet, table_io


def read(path: str | os.PathLike[str], max_bytes: int) -> Tensor:
    """Read the rows of a file, a pipe or a directory; errors as ``RankTable.load``."""
    if parquet.is_folder(path):
        return parquet.read(path, max_bytes)
    with Path(path).open("rb") as file:
        rows: Tensor = _format(file, path).read_opened(file, path, max_bytes)
        return rows


def num_stored_rows(path: str | os.PathLike[str]) -> int:
    """Return the number of rows of a file or a directory, from headers and footers.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is not a file of ranks.
    """
    if parquet.is_folder(path):
        return parquet.read_length(path)
    with Path(path).open("rb") as file:
        module = _format(file, path)
        length: int = parquet.read_length(path) if module is parquet else module.read_length(file, path)
        return length


def _format(file: Any, path: str | os.PathLike[str]) -> Any:
    """Return the module that reads an open file."""
    start = file.peek(len(parquet.MAGIC))
    if start.startswith(parquet.MAGIC):
        return parquet
    return csv_files if csv_files.is_csv(path, start) else table_io
