"""Write the generated parts of docs/benchmarks.md from benchmarks/results.

``python docs/results.py`` writes them again; a test compares the page with the results.
"""

import ast
import json
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parent / "benchmarks.md"
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


class Timing(NamedTuple):
    """A row of the table: a case of a results file, our way and the way it is compared with."""

    work: str
    file: str
    case: str
    ours: str
    other: str
    label: str  # of the other way; {pykeen} is the version in the file
    threads: int
    clock: str  # the clock of this case in the script


TIMINGS = (
    Timing(
        "rank 256 queries among 40,943 candidates (extra `fast`)",
        "steps",
        "count 256 x 40943 float32",
        "rank_scores, numba",
        "pykeen Ranks.from_scores",
        "PyKEEN {pykeen}",
        2,
        "wall-clock",
    ),
    Timing(
        "the same without Numba",
        "steps",
        "count 256 x 40943 float32",
        "rank_scores, torch",
        "(s > t).sum, (s >= t).sum",
        "two comparisons and sums in torch {torch}",
        2,
        "wall-clock",
    ),
    Timing(
        "filter, rank and store a batch of 256 queries of WN18RR",
        "steps",
        "step WN18RR 256 x 40943",
        "look-up, ranks, update",
        "pykeen's own path",
        "PyKEEN {pykeen}",
        2,
        "wall-clock",
    ),
    Timing(
        "score and rank both sides of the 20,466 test triples of FB15k-237",
        "steps_evaluation",
        "fb15k237: 20466 of 20466 triples, both sides",
        "rank_triples",
        "pykeen evaluate, batch 256",
        "PyKEEN {pykeen}",
        2,
        "wall-clock",
    ),
    Timing(
        "324 values of 40,932 ranking tasks",
        "steps",
        "compute, 40932 tasks",
        "324 values, first epoch",
        "pykeen finalize, 225",
        "PyKEEN {pykeen}, 225 values",
        2,
        "wall-clock",
    ),
    Timing(
        "10 metrics of 10,000 queries among 1,000 candidates",
        "retrieval",
        "10 metrics of 10,000 queries x 1,000",
        "RankCollection",
        "ranx, sorted before",
        "ranx {version}, sorting not counted",
        1,
        "wall-clock",
    ),
    Timing(
        "10 metrics of a run of 2,000 queries and 100 documents each, from dicts",
        "ranking",
        "run dicts 2000 x 100, ten metrics",
        "evaluate_run",
        "pytrec_eval",
        "pytrec_eval",
        1,
        "CPU",
    ),
    Timing(
        "average precision of 200 queries among 20,000 candidates, flat scores",
        "ranking",
        "flat scores 200 x 20000",
        "RankCollection, flat",
        "torchmetrics RetrievalMAP",
        "torchmetrics {torchmetrics}",
        1,
        "CPU",
    ),
    Timing(
        "DistMult of PyG, 100 triples of FB15k-237: both sides, filtered",
        "ranking",
        "PyG DistMult, 100 x 14541, both sides",
        "rank_triples",
        "model.test, tails only",
        "`model.test` of PyG: tails only, not filtered",
        1,
        "CPU",
    ),
    Timing(
        "1,000 queries among 1,000,000 embeddings of 128 numbers",
        "embeddings",
        "1000 x 1000000, d = 128, random, dot",
        "rank_embeddings",
        "product, 256 x 4096",
        "the float32 product alone, without ranks",
        1,
        "CPU",
    ),
)


def timings(folder: Path = BENCHMARKS / "results") -> str:
    """Write the medians as a Markdown table."""
    lines = [
        "| work | this library, ms | the other, ms | the other | time | measured |",
        "|---|--:|--:|---|---|---|",
    ]
    for timing in TIMINGS:
        results = json.loads(
            (folder / f"{timing.file}.json").read_text(encoding="utf-8")
        )
        ours = _row(results, timing, timing.ours)
        other = _row(results, timing, timing.other)
        label = timing.label.format(**results["machine"], version=other.get("version"))
        cells = (
            timing.work,
            _milliseconds(ours["median"]),
            _milliseconds(other["median"]),
            label,
            f"{timing.clock}, {timing.threads} thread{'s' * (timing.threads - 1)}",
            date.fromisoformat(results["machine"]["date"]).strftime("%d %b %Y"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _row(results: dict[str, Any], timing: Timing, way: str) -> dict[str, Any]:
    searched = (timing.case, way, timing.threads)
    (row,) = (
        row
        for row in results["rows"]
        if (row["case"], row["way"], row["threads"]) == searched
    )
    return row


def _milliseconds(number: float) -> str:
    """Three significant digits, without an exponent."""
    digits = 2 if number < 10 else 1 if number < 100 else 0
    return f"{float(f'{number:.3g}'):,.{digits}f}"


def commands(folder: Path = BENCHMARKS) -> str:
    """Write a list of the scripts with the first line of their docstrings and their results."""
    lines = []
    for script in sorted(folder.glob("[!_]*.py")):
        source = script.read_text(encoding="utf-8")
        if "__main__" not in source:
            continue  # not a benchmark
        title = (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
        files = sorted(folder.glob(f"results/{script.stem}.json"))
        files += sorted(folder.glob(f"results/{script.stem}_*.json"))
        names = ", ".join(f"`{file.name}`" for file in files)
        results = f" Results: {names}." if names else ""
        lines.append(f"- `python -m benchmarks.{script.stem}`: {title}{results}")
    return "\n".join(lines)


def without_skill(file: Path = BENCHMARKS / "results" / "p_values_blind.json") -> str:
    """Write the z-scores and p-values of scorers that have learned nothing as a Markdown table."""
    lines = [
        "| graph | scorer | draws | standard deviation of z | 95% quantile of z | p at most 5% |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in json.loads(file.read_text(encoding="utf-8")):
        cells = (
            row["graph"],
            row["scorer"],
            f"{row['draws']:,}",
            f"{row['sd_z']:.2f}",
            f"{row['z_95']:.2f}",
            f"{row['rejected']:.1%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Replace the generated parts in the text of the page."""
    for name, write in (
        ("times", timings),
        ("skill", without_skill),
        ("commands", commands),
    ):
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->\n")
        text = f"{before}{start}\n{write()}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
