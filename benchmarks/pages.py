"""What benchmarks that fill a page share: a parser that shows their text, results as JSON, tables between marks."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

END = "<!-- end -->\n"


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Begin a parser: the text of the benchmark as it stands, and --json."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the results there")
    return parser


def write_json(path: Path | None, results: Any) -> None:
    """Write results, if a path is given."""
    if path is not None:
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def replaced(page: str, new: str, begin: str) -> str:
    """The page with what stands between a mark and the next end replaced."""
    before, rest = page.split(begin)
    return before + begin + new + END + rest.split(END, 1)[1]


def sizes(splits: list[torch.Tensor]) -> tuple[int, int]:
    """Number of entities and of relations that triples (n, 3) have."""
    triples = torch.cat(splits)
    return int(triples[:, [0, 2]].max()) + 1, int(triples[:, 1].max()) + 1
