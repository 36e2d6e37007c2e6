"""Verification of a page: its manifest, computed again from the files of ranks."""

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from torchrankmetrics.definitions.protocol import VIEWS
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import Metrics, Selection
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.rendering import Rendered, Tabular
from torchrankmetrics.study.page import VERSION, contents_of, manifest_of, manifest_text
from torchrankmetrics.study.rank_study import RankStudy, measures_of
from torchrankmetrics.study.runs import Run, source_of
from torchrankmetrics.validation import shorten

_SCRIPT = re.compile(r"<script\b[^>]*rank-manifest[^>]*>(.*?)</script", re.DOTALL | re.IGNORECASE)
_LABELS = ("metric", "model", "dataset", "seed")
_SIMULATED = {"p_best": 1e-3}  # tolerance: p-values from random draws depend on the rounding of the machine
_Difference = tuple[str, Any, Any]


@dataclass(frozen=True, eq=False)
class Verification(Rendered):
    """Result of ``verify``; true if the manifest agrees with the files.

    Attributes:
        differences (tuple): (path in the manifest, value on the page, value from the files), in the order of the
            manifest.
        num_files, num_numbers (int): numbers of files and numbers in the manifest.
        notes (tuple): summary and limits.
    """

    differences: tuple[_Difference, ...]
    num_files: int
    num_numbers: int
    notes: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.differences

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        rows = [(where, _text(page), _text(files)) for where, page, files in self.differences]
        return Tabular.named(("where", "page", "files"), rows, self.notes)


def verify(report: str | os.PathLike[str], folder: str | os.PathLike[str], *, metrics: Metrics = ()) -> Verification:
    """Compute the manifest of a page of ``RankStudy.report`` again from files of ranks, and compare.

    The manifest contains the path and the SHA-256 of the rows of every file, versions, options, and every number of
    the tables. Displayed text and figures are not verified.

    Args:
        report (path): the HTML file.
        folder (path): directory that the paths in the manifest are relative to.
        metrics (sequence of str, default ()): user-defined metrics that were passed to ``report``.

    Returns:
        The differences; none: every number of the manifest was computed again.

    Raises:
        OSError: if the page cannot be read.
        ValueError: if the page does not have exactly one manifest, or the manifest is damaged.
    """
    base = Path(folder)
    if not base.is_dir():
        raise ValueError(f"folder must be a directory with files of ranks, got {shorten(os.fspath(folder))}")
    page = _manifest(Path(report))
    selection = Selection(VIEWS, "realistic", "both", DEFAULT_EXPECTATION)  # the page names the view
    known = {one.key: one for one in selection.measures(metrics).values()}
    try:
        options, numbers = page["options"], sum(_count(table) for table in page["tables"].values())
        measures = [_measure(key, known) for key in options["metrics"]]
        runs = [({part: str(one[part]) for part in _LABELS[1:]}, one["file"]) for one in page["files"]]
        order = [str(name) for name in page["models"]], [str(name) for name in page["datasets"]]
        plain = check_confidence_level(options["confidence_level"]), options["cluster"], options["margin"]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the manifest of {report} is damaged: {shorten(error)}") from error
    study = RankStudy()
    differing: list[_Difference] = [one for names, file in runs for one in _add_file(study, names, file, base)]
    notes = ["Only the manifest of the page is verified, not its displayed text and figures."]
    if differing:
        notes.append("No number was computed again, because files are missing or damaged.")
    else:
        study.arrange(*order)
        manifest = manifest_of(contents_of(study, measures, *plain))
        differing = list(_differences("", page, json.loads(manifest_text(manifest))))
        if differing and all(where.startswith("versions") for where, *_ in differing):
            notes.append("Only versions differ: the numbers are the same.")
    agree = "agree" if not differing else f"{len(differing)} differences"
    notes.insert(0, f"{len(runs)} files and {numbers} numbers: {agree}.")
    return Verification(tuple(differing), len(runs), numbers, tuple(notes))


def _manifest(path: Path) -> dict[str, Any]:
    found = _SCRIPT.findall(path.read_text(encoding="utf-8", errors="replace"))
    if len(found) != 1:
        raise ValueError(f"{path} must have one manifest, as RankStudy.report writes it, got {len(found)}")
    try:
        content: dict[str, Any] = json.loads(found[0])
        if manifest_text(content) != found[0]:  # for example a repeated key
            raise ValueError("it is not as RankStudy.report writes it")
        version = content["manifest"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the manifest of {path} is damaged: {error}") from error
    if version != VERSION:
        raise ValueError(f"the manifest of {path} has version {shorten(version)}; this library reads {VERSION}")
    return content


def _add_file(study: RankStudy, names: dict[str, str], file: Any, base: Path) -> list[_Difference]:
    """Add the run of a file, or return the reason why it cannot be read."""
    where = f"files: {' '.join(names.values())}"
    if file is None:
        return [(where, "in memory", "no file")]
    inside = PurePosixPath(str(file))
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"the manifest names the file {shorten(file)}: it must be a path below the folder")
    try:
        source, num_rows = source_of(base / inside)
        study._add(Run(**names, source=source, file=str(file), num_rows=num_rows))
    except (OSError, ValueError) as error:
        return [(where, file, str(error))]
    return []


def _measure(key: str, known: dict[str, Measure]) -> Measure:
    if key in known:
        return known[key]
    try:
        return measures_of([key], None)[0]
    except ValueError as error:
        raise ValueError(f"the page is of the metric {key!r}, which is user-defined: pass it in metrics=") from error


def _differences(where: str, page: Any, files: Any) -> Iterator[_Difference]:
    """Compare two values of JSON, dicts by key and lists by position."""
    if isinstance(page, dict) and isinstance(files, dict):
        for key in dict.fromkeys([*files, *page]):
            path = f"{where}: {key}" if where else key
            if key in page and key in files:
                yield from _differences(path, page[key], files[key])
            else:
                yield (path, "present", "missing") if key in page else (path, "missing", "present")
    elif isinstance(page, list) and isinstance(files, list) and len(page) == len(files):
        for i, (a, b) in enumerate(zip(page, files, strict=True), 1):
            label = " ".join(str(b[key]) for key in _LABELS if key in b) if isinstance(b, dict) else ""
            yield from _differences(f"{where}: {label or i}", a, b)
    elif isinstance(page, float) and isinstance(files, float):
        absolute = _SIMULATED.get(where.rpartition(": ")[2], 1e-14)
        if not math.isclose(page, files, rel_tol=1e-9, abs_tol=absolute):
            yield where, page, files
    elif type(page) is not type(files) or page != files:
        yield where, page, files


def _count(value: Any) -> int:
    """Numbers in a value of JSON."""
    if isinstance(value, dict | list):
        return sum(map(_count, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
