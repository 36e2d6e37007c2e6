"""Files that are either whole or not there."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a neighbour to write into, which takes the place of ``path`` if nothing is raised, and is gone if it is."""
    neighbour = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield neighbour
        neighbour.replace(path)
    finally:
        neighbour.unlink(missing_ok=True)
