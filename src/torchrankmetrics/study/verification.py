"""Verification of a page: its manifest, computed again from the files of ranks."""

from __future__ import annotations  # help() shows the names of types

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from torchrankmetrics.definitions.protocol import VIEWS
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.inference.pairing import known_measure
from torchrankmetrics.metrics.names import Metrics
from torchrankmetrics.metrics.selection import Selection
from torchrankmetrics.rendering import Rendered, Tabular
from torchrankmetrics.study.page import VERSION, Page, manifest_text
from torchrankmetrics.study.rank_study import RankStudy
from torchrankmetrics.study.runs import FIELDS, Run
from torchrankmetrics.table.files import num_stored_rows
from torchrankmetrics.validation import shorten, truncate

_SCRIPT = re.compile(r"<script\b[^>]*rank-manifest[^>]*>(.*?)</script", re.DOTALL | re.IGNORECASE)
_LABELS = ("metric", "model", "dataset", "seed")
_Difference = tuple[str, Any, Any]


@dataclass(frozen=True, eq=False)
class Verification(Rendered):
    """Result of ``verify``; true if the manifest agrees with the files.

    Attributes:
        differences (tuple): (path in the manifest, value on the page, value from the files), in the
            order of the manifest.
        num_files, num_numbers (int): numbers of files and numbers in the manifest.
        notes (tuple): summary and limits.

    >>> import tempfile
    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy, verify
    >>> folder = tempfile.mkdtemp()
    >>> RankTable.from_ranks(Ranks([1, 2, 1, 4], None, 9)).save(f"{folder}/a.npz")
    >>> RankStudy.open(f"{folder}/{{model}}.npz").report(f"{folder}/page.html")
    >>> verification = verify(f"{folder}/page.html", folder)
    >>> verification.differences, verification.num_files
    ((), 1)
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


def verify(
    report: str | os.PathLike[str], folder: str | os.PathLike[str], *, metrics: Metrics = ()
) -> Verification:
    """Compute the manifest of a page of ``RankStudy.report`` again from files, and compare.

    The manifest contains the path and the SHA-256 of the rows of every file, versions, options, and
    every number of the tables. Displayed text and figures are not verified, nor are pages of values
    of queries, which have no files.

    Args:
        report (path): the HTML file.
        folder (path): directory that the paths in the manifest are relative to.
        metrics (sequence of str, default ()): user-defined metrics that were passed to ``report``.

    Returns:
        The differences; none: every number of the manifest was computed again.

    Raises:
        OSError: if the page cannot be read.
        ValueError: if the page does not have exactly one manifest, or the manifest is damaged.

    >>> import tempfile
    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy, verify
    >>> study = RankStudy()
    >>> for model, ranks in {"a": [1, 2, 1, 4], "b": [3, 2, 5, 4]}.items():
    ...     study.add(RankTable.from_ranks(Ranks(ranks, None, 9)), model=model, dataset="toy")
    ...
    >>> folder = tempfile.mkdtemp()
    >>> study.save(f"{folder}/{{dataset}}/{{model}}.npz")
    >>> study = RankStudy.open(f"{folder}/{{dataset}}/{{model}}.npz")
    >>> study.report(f"{folder}/page.html")
    >>> bool(verify(f"{folder}/page.html", folder))
    True
    """
    base = Path(folder)
    if not base.is_dir():
        raise ValueError(
            f"folder must be a directory with files of ranks, got {shorten(os.fspath(folder))}"
        )
    page = _manifest(Path(report))
    study = RankStudy()
    inputs = _read_inputs(page, report, metrics)
    unreadable = [one for run in inputs.runs for one in _add_file(study, base, *run)]
    notes = ["Only the manifest of the page is verified, not its displayed text and figures."]
    differing = unreadable
    if unreadable:
        notes.append("No number was computed again, because files are missing or damaged.")
    else:
        study.arrange(inputs.models, inputs.datasets)
        again = Page(study, study.table(inputs.measures, **inputs.tests)).manifest()
        differing = _compared(page, json.loads(manifest_text(again)))
        if differing and all(one[0].startswith("versions") for one in differing):
            notes.append("Only versions differ: the numbers are the same.")
    agree = "agree" if not differing else f"{len(differing)} differences"
    notes.insert(0, f"{len(inputs.runs)} files and {inputs.num_numbers} numbers: {agree}.")
    return Verification(tuple(differing), len(inputs.runs), inputs.num_numbers, tuple(notes))


class _Inputs(NamedTuple):
    """The inputs of a page, by its manifest."""

    measures: list[Any]
    models: list[str]
    datasets: list[str]
    runs: list[tuple[str, str, str, Any]]  # model, dataset, seed and file
    tests: dict[str, Any]
    num_numbers: int


def _read_inputs(page: dict[str, Any], report: object, metrics: Metrics) -> _Inputs:
    """Read the manifest; ValueError if it is damaged, or has a metric that is not known."""
    known = Selection(VIEWS).measures(metrics)  # the page names the view
    try:
        options = page["options"]
        measures = [known.get(key, key) for key in options["metrics"]]
        inputs = _Inputs(
            measures,
            list(map(str, page["models"])),
            list(map(str, page["datasets"])),
            list(map(_named_file, page["files"])),
            {
                "confidence_level": check_confidence_level(options["confidence_level"]),
                "cluster": options["cluster"],
            },
            len([one for _, one in _entries(page["tables"]) if isinstance(one, int | float)]),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the manifest of {report} is damaged: {shorten(error)}") from error
    for one in inputs.measures:
        if isinstance(one, str) and known_measure(one) is None:
            raise ValueError(
                f"the page is of the metric {one!r}, which is user-defined: pass it in metrics="
            )
    return inputs


def _named_file(one: dict[str, Any]) -> tuple[str, str, str, Any]:
    model, dataset, seed = (str(one[name]) for name in FIELDS)
    return model, dataset, seed, one["file"]


def _compared(page: dict[str, Any], ours: dict[str, Any]) -> list[_Difference]:
    """Entries of the manifest that differ from those computed again."""
    theirs = dict(_entries(page))
    computed = dict(_entries(ours))
    differing = []
    for path in computed | theirs:
        a = theirs.get(path, "missing")
        b = computed.get(path, "missing")
        if not _is_same(path[-1], a, b):
            differing.append((": ".join(path), a, b))
    return differing


def _manifest(path: Path) -> dict[str, Any]:
    found = _SCRIPT.findall(path.read_text(encoding="utf-8", errors="replace"))
    if len(found) != 1:
        raise ValueError(
            f"{path} must have one manifest, as RankStudy.report writes it, got {len(found)}"
        )
    try:
        content: dict[str, Any] = json.loads(found[0])
        if manifest_text(content) != found[0]:  # for example a repeated key
            raise ValueError("it is not as RankStudy.report writes it")
        version = content["manifest"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the manifest of {path} is damaged: {error}") from error
    if version != VERSION:
        raise ValueError(
            f"the manifest of {path} has version {shorten(version)}; this library reads {VERSION}"
        )
    return content


def _add_file(
    study: RankStudy, base: Path, model: str, dataset: str, seed: str, file: Any
) -> list[_Difference]:
    """Add the run of a file, or return the reason why it cannot be read."""
    where = f"files: {model} {dataset} {seed}"
    if file is None:
        return [(where, "in memory", "no file")]
    inside = PurePosixPath(str(file))
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError(
            f"the manifest names the file {shorten(file)}: it must be a path below the folder"
        )
    try:
        study._add(
            Run(model, dataset, seed, base / inside, str(file), num_stored_rows(base / inside))
        )
    except (OSError, ValueError) as error:
        return [(where, file, str(error))]
    return []


def _entries(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Everything in a value of JSON by its path, with the labels of table rows or places in it."""
    if isinstance(value, list):
        labels = list(map(_label, value))
        if not all(labels) or len(set(labels)) < len(labels):
            labels = [str(i) for i in range(1, len(value) + 1)]
        value = dict(zip(labels, value, strict=True))
    if not isinstance(value, dict):
        yield path, value
        return
    for key, one in value.items():
        yield from _entries(one, (*path, key))


def _label(row: Any) -> str:
    """The names in a row of a table; "" for other values."""
    if not isinstance(row, dict):
        return ""
    return " ".join(str(row[key]) for key in _LABELS if key in row)


def _is_same(key: str, page: Any, files: Any) -> bool:
    if isinstance(page, float) and isinstance(files, float):
        # p-values from random draws depend on the rounding of the machine
        return math.isclose(page, files, rel_tol=1e-9, abs_tol=1e-3 if key == "p_best" else 1e-14)
    return type(page) is type(files) and bool(page == files)


def _text(value: Any) -> str:
    return truncate(value if isinstance(value, str) else json.dumps(value))
