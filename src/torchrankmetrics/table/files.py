"""Files of ranks in any format: the content distinguishes .npz, Parquet and CSV."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from torchrankmetrics.files import MAX_BYTES
from torchrankmetrics.table import csv_files, parquet, table_io
from torchrankmetrics.validation import check_int


def read(path: str | os.PathLike[str], max_bytes: int) -> Tensor:
    """Read the rows of a file, a pipe or a directory; errors as ``RankTable.load``."""
    if parquet.is_folder(path):
        return parquet.read(path, max_bytes)
    with _opened(path, check_int("max_bytes", max_bytes, 1)) as (module, file):
        rows: Tensor = module.read_opened(file, path, max_bytes)
        return rows


def num_stored_rows(path: str | os.PathLike[str]) -> int:
    """Return the number of rows of a file or a directory, from headers and footers.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is not a file of ranks.
    """
    if parquet.is_folder(path):
        return parquet.read_length(path)
    with _opened(path, MAX_BYTES) as (module, file):
        length: int = module.read_length(path, file)
        return length


@contextmanager
def _opened(path: str | os.PathLike[str], max_bytes: int) -> Iterator[tuple[Any, Any]]:
    """Open a file, and choose the module that reads it; a pipe is read into memory."""
    with Path(path).open("rb") as opened:
        file: Any = opened
        start = file.peek(len(parquet.MAGIC))
        if not file.seekable():
            file = io.BytesIO(file.read(max_bytes + 1))
            if file.getbuffer().nbytes > max_bytes:
                raise table_io.TooLargeError(path, f"more than {max_bytes}", max_bytes)
        if start.startswith(parquet.MAGIC):
            yield parquet, file
        else:
            yield csv_files if csv_files.is_csv(path, start) else table_io, file
