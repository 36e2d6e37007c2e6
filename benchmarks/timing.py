"""For all benchmarks: repeated timing, machine and versions, graphs, tables in pages, JSON."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch


def arguments(
    description: str, *, folder: bool = False, models: bool = False
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_true", help="small sizes, under a minute (the default)"
    )
    size.add_argument("--full", action="store_true", help="the sizes of the published graphs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the results there")
    if folder:
        parser.add_argument(
            "--data", type=Path, help="folder of train.tsv, valid.tsv and test.tsv, integer ids"
        )
        parser.add_argument(
            "--tasks", type=int, help="so many test triples, drawn at random, instead of all"
        )
    if models:
        parser.add_argument(
            "--models",
            type=Path,
            help="folder that trained models are kept in, and read from again",
        )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    return given


_MOST = 50  # runs


def measure(
    run: Callable[[], Any], *, seconds: float = 1.0, least: int = 3, warm: bool = False
) -> dict[str, float]:
    """Milliseconds: best, median and quartiles of runs within a budget of time.

    Unless ``warm``, one run that is not measured comes first.
    """
    if not warm:
        run()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < least or (time.perf_counter() - start < seconds and len(times) < _MOST):
        before = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - before))
    return _spread(times)


def _spread(times: list[float]) -> dict[str, float]:
    low, _, high = (
        statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    )
    return {
        "best": min(times),
        "median": statistics.median(times),
        "low": low,
        "high": high,
        "runs": len(times),
    }


def together(
    case: str,
    *ways: tuple[str, str, Callable[[], Any]],
    rounds: int = 10,
    least: int = 3,
    slot: float = 0.1,
    clock: Callable[[], float] = time.perf_counter,
) -> list[dict[str, Any]]:
    """Measure the ways (name, role, run) of a case in turns: a machine that slows down slows all.

    Each turn lasts a slot of seconds, or one run if that is longer; a second per way and ``least``
    rounds at least. The clock may be ``time.process_time`` where one thread works: what other
    processes take does not count there.
    """
    times: list[list[float]] = [[] for _ in ways]
    for _, _, run in ways:
        run()
    start = time.perf_counter()
    for number in range(rounds):
        if number >= least and time.perf_counter() - start > rounds * slot * len(ways):
            break
        for (_, _, run), own in zip(ways, times, strict=True):
            begin = before = clock()
            while not own or before - begin < slot:
                run()
                now = clock()
                own.append(1e3 * (now - before))
                before = now
    return _lines(case, ways, times)


def after(
    case: str,
    make: Callable[[], Any],
    *ways: tuple[str, str, Callable[[Any], Any]],
    runs: int = 500,
) -> list[dict[str, Any]]:
    """Measure ways to use a new object; making it is not measured, but leaves the caches cold."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(runs):
        for (_, _, use), own in zip(ways, times, strict=True):
            made = make()
            before = time.perf_counter()
            use(made)
            own.append(1e3 * (time.perf_counter() - before))
    return _lines(case, ways, times)


def _lines(
    case: str, ways: tuple[tuple[str, str, Any], ...], times: list[list[float]]
) -> list[dict[str, Any]]:
    about = {"case": case, "threads": torch.get_num_threads()}
    return [
        about | {"way": way, "role": role} | _spread(own)
        for (way, role, _), own in zip(ways, times, strict=True)
    ]


def line(case: str, way: str, role: str, run: Callable[[], Any], **options: Any) -> dict[str, Any]:
    """One measurement; role is "floor" (what cannot be beaten), "ours" or "peer"."""
    return {
        "case": case,
        "way": way,
        "role": role,
        "threads": torch.get_num_threads(),
        **measure(run, **options),
    }


def machine() -> dict[str, Any]:
    versions = {}
    for name in ("torch", "numpy", "numba", "pykeen", "torchmetrics"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    about = {"date": datetime.date.today().isoformat(), "python": platform.python_version()}
    return {**about, "cores": os.cpu_count(), **versions}


def report(rows: list[dict[str, Any]], path: Path | None) -> None:
    """Print each measurement with its ratio to the floor of its case; write JSON to a ``path``."""
    about = machine()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(
        f"{'case':38} {'threads':>7} {'way':26} {'best ms':>9} {'median':>9} {'quartiles':>19} "
        f"{'over floor':>10} {'over ours':>9}"
    )
    for row in rows:
        print(
            f"{row['case']:38} {row['threads']:7} {row['way']:26} {row['best']:9.3f} "
            f"{row['median']:9.3f} {row['low']:9.3f}-{row['high']:9.3f} "
            f"{_ratio(rows, row, 'floor'):>10} {_ratio(rows, row, 'ours'):>9}"
        )
    save(rows, path)


def save(rows: list[dict[str, Any]], path: Path | None) -> None:
    """Write the JSON, if a path is given."""
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


def _ratio(rows: list[dict[str, Any]], row: dict[str, Any], role: str) -> str:
    same = [
        other
        for other in rows
        if (other["case"], other["threads"]) == (row["case"], row["threads"])
    ]
    base = [other["best"] for other in same if other["role"] == role]
    return f"{row['best'] / min(base):.2f}" if base else ""


def read_ids(path: Path) -> torch.Tensor:
    """Read a file of integers separated by tabs: (n, columns) int64."""
    return torch.from_numpy(np.loadtxt(path, dtype=np.int64, delimiter="\t", ndmin=2))


def read_splits(folder: Path) -> list[torch.Tensor]:
    """Read train, valid and test of a folder, each (n, 3)."""
    return [read_ids(folder / f"{split}.tsv") for split in ("train", "valid", "test")]


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Begin a parser: the text of the benchmark as it stands, and --json."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the results there")
    return parser


def write_json(path: Path | None, results: Any) -> None:
    """Write results, if a path is given."""
    if path is not None:
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def sizes(splits: list[torch.Tensor]) -> tuple[int, int]:
    """Number of entities and of relations that triples (n, 3) have."""
    triples = torch.cat(splits)
    return int(triples[:, [0, 2]].max()) + 1, int(triples[:, 1].max()) + 1
