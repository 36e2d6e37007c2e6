"""The page of a study: one HTML file of tables and figures with a manifest, which ``verify`` computes again."""

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from torchrankmetrics.definitions.protocol import VIEWS
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.inference.pairing import known_measure
from torchrankmetrics.metrics.registry import Metrics, Selection
from torchrankmetrics.plots.canvas import canvas, to_svg
from torchrankmetrics.plots.evaluations import rank_ecdf
from torchrankmetrics.rendering import Rendered, Tabular, paper_name
from torchrankmetrics.rendering.tabular import render, to_json
from torchrankmetrics.study.across import ranking
from torchrankmetrics.study.rank_study import AVERAGED, RankStudy
from torchrankmetrics.study.runs import LoadedRun, Run, source_of
from torchrankmetrics.study.tables import Rows, StudyTable
from torchrankmetrics.table.columns import ABSENT, Columns
from torchrankmetrics.validation import shorten, truncate
from torchrankmetrics.version import __version__

VERSION = 3
_MOST_CURVES, _MOST_MODELS, _MANY_TIES = 24, 6, 0.1
_GRID = 4  # more distributions than this are small multiples
_SCRIPT = re.compile(r"<script\b[^>]*rank-manifest[^>]*>(.*?)</script", re.DOTALL | re.IGNORECASE)
_LABELS = ("metric", "model", "dataset", "seed")
_Difference = tuple[str, Any, Any]


class Page:
    """Results of a page; ``across`` has averages, ranks and differences, unless they are undefined."""

    def __init__(self, study: RankStudy, table: StudyTable) -> None:
        self.study, self.table, self.drawn = study, table, table.models[:_MOST_MODELS]
        self.across: dict[str, Any] = {}
        directed = [one for one in table.measures if one.higher_is_better is not None]
        if len(table.datasets) > 1 and len(table.models) > 1 and directed:
            options: dict[str, Any] = {"confidence_level": table.confidence_level, "cluster": table.cluster}
            has_ranks = all(facts.tie_rates for facts in table.facts.values())
            with suppress(ValueError):  # no dataset with values of all models
                self.across["averages"] = study.summary([*directed, *(AVERAGED if has_ranks else ())], **options)
            with suppress(ValueError):  # fewer than two such datasets, or models without common tasks
                ranks = self.across["ranks"] = ranking(table.only(directed[:1]))
                best = [str(model) for model, *_ in ranks.tabular().rows]  # by mean rank
                self.drawn = tuple(model for model in table.models if model in best[:_MOST_MODELS])
                self.across["differences"] = study.difference(best[0], best[1], directed[0], **options)
        rows: Rows = "datasets" if len(table.datasets) > len(table.models) else "models"
        parts = {f"values {one.key}": table.only([one]).with_layout(rows=rows) for one in table.measures}
        self.tables = {name: replace(part.tabular(), notes=part.legend) for name, part in parts.items()}
        self.tables |= {name: result.tabular() for name, result in self.across.items()}
        self.tables["protocol"] = self._protocol()

    def _protocol(self) -> Tabular:
        rows = []
        for name, facts in self.table.facts.items():
            data = self.study.dataset(name)
            sides = " and ".join(map(str, data.reference.analysis.sides)) or "unknown"
            compared = f"{len(data.aligned)} of {len(data.models)} models"
            ties = facts.ties if facts.tie_rates else None
            rows.append((name, len(data.runs), facts.tasks, sides, facts.candidates or "unknown", ties, compared))
        return Tabular.named(("dataset", "runs", "tasks", "sides", "candidates", "ties %", "compared"), rows)

    @property
    def warnings(self) -> list[str]:
        """Everything that a reader should know before the tables."""
        table = self.table
        found = [f"{name}: {warning}" for name, warnings in table.warnings.items() for warning in warnings]
        found += [f"{model} is missing on {data}" for model, data in self.study.missing]
        most = {name: max(facts.tie_rates.values(), default=0.0) for name, facts in table.facts.items()}
        if tied := [f"{name} ({100 * rate:.0f}%)" for name, rate in most.items() if rate > _MANY_TIES]:
            found.append(f"more than a tenth of the targets have the score of another candidate on {', '.join(tied)}")
        for (key, model, data), cell in table.cells.items():
            if cell.is_better_than_random is False:
                value = f"{model} on {data}: {paper_name(key)} {cell.value:.3f}"
                chance = table.results[key, data].chance
                found.append(f"{value} is not significantly better than random ranking ({chance:.3f})")
        return [*found, *table.doubts]

    def html(self, title: str) -> str:
        """Write the page; ImportError without matplotlib."""
        table, numbers, manifest = self.table, count(1), self.manifest()

        def figure(drawn: list[Any], caption: str) -> dict[str, Any]:
            number = next(numbers)
            parts = [to_svg(fig, caption, f"figure{number}-{i}") for i, (fig, _) in enumerate(drawn)]
            return {"svgs": parts, "caption": f"Figure {number}. {caption}"}

        few = f" Only the {len(self.drawn)} models with the best mean rank." * (self.drawn != table.models)
        level = f"{100 * table.confidence_level:g}%"
        about = f"with {level} intervals; bars mark random ranking.{few}"
        names = {one.key: paper_name(one.key) for one in table.measures}
        part = table.only(table.measures, self.drawn)
        return render(
            "study/page.html",
            title=title,
            page=self,
            names=names,
            values=[figure([part.plot(key)], f"{name} {about}") for key, name in names.items()],
            across=[figure([one.plot()], one.about) for name, one in self.across.items() if name != "averages"],
            distributions=[figure(*drawn) for drawn in self._distributions()],
            undrawn=[m for m in table.models if m not in self.drawn] + list(table.datasets[_MOST_CURVES:]),
            level=level,
            rate=f"{100 * (1 - table.confidence_level):.3g}%",
            manifest=manifest,
            script=manifest_text(manifest),
        )

    def _distributions(self) -> list[tuple[list[Any], str]]:
        """Rank distributions with their captions: a figure each, or one figure of small multiples."""
        datasets = [name for name, facts in self.table.facts.items() if facts.fewest][:_MOST_CURVES]
        small, drawn = len(datasets) > _GRID, []
        for name in datasets:
            runs = self.study.dataset(name).models
            first = {model: runs[model][0].table for model in self.drawn if model in runs}
            if first:
                drawn.append(rank_ecdf(first, ax=canvas(None, 3.3, 2.5)[1] if small else None))
                drawn[-1][1].set_title(name, fontsize=10)
        caption = "Share of tasks with a rank of at most x, first seed of each model; dotted: random ranking."
        return [(drawn, caption)] if small else [([one], caption) for one in drawn]

    def manifest(self) -> dict[str, Any]:
        """Everything that the numbers of the page depend on, and every number of its tables."""
        table, study = self.table, self.study
        packages = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scipy")}
        tables = {"values": table.records()} | self.tables
        options = {name: getattr(table, name) for name in ("confidence_level", "cluster")}
        return {
            "manifest": VERSION,
            "versions": {"python": platform.python_version(), "torchrankmetrics": __version__} | packages,
            "options": {"metrics": [one.key for one in table.measures]} | options,
            "models": study.models,
            "datasets": study.datasets,
            "files": [_file(run) for name in study.datasets for run in study.dataset(name).runs],
            "tables": {name: json.loads(to_json(one)) for name, one in tables.items()},
            "notes": {name: list(one.notes) for name, one in tables.items()},
            "warnings": self.warnings,
        }


def manifest_text(manifest: dict[str, Any]) -> str:
    """Write a manifest as JSON that cannot close an HTML element."""
    return json.dumps(manifest).replace("<", "\\u003c")


def _file(read: LoadedRun) -> dict[str, Any]:
    """Names of a run, its file, the SHA-256 of its canonical rows (little-endian, row by row), and its protocol."""
    analysis, run = read.analysis, read.run
    names = {"model": run.model, "dataset": run.dataset, "seed": run.seed, "file": run.file}
    if run.values:
        content = json.dumps({metric: sorted(map(str, one.items())) for metric, one in run.values.items()}).encode()
        protocol: dict[str, Any] = {"tasks": run.num_rows, "metrics": list(run.values)}
    else:
        content = np.ascontiguousarray(analysis.rows, dtype="<i8").tobytes()
        columns = Columns(analysis.rows)
        N, group, ids = columns.num_candidates, columns.group, columns.sample_id
        protocol = {"tasks": int(columns.count.sum()), "sides": [str(side) for side in analysis.sides]}
        protocol |= {"candidates": [int(N.min()), int(N.max())], "sampled": analysis.num_sampled}
        protocol["nan"] = analysis.num_nan
        protocol |= {"groups": len(np.unique(group[group != ABSENT])), "sample_ids": bool((ids != ABSENT).all())}
    return {**names, "sha256": hashlib.sha256(content).hexdigest(), "protocol": protocol}


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
    the tables. Displayed text and figures are not verified, nor are pages of values of queries, which have no files.

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
    page, study = _manifest(Path(report)), RankStudy()
    known = Selection(VIEWS).measures(metrics)  # the page names the view
    try:
        options, numbers = page["options"], [one for _, one in _entries(page["tables"]) if isinstance(one, int | float)]
        measures = [known.get(key, key) for key in options["metrics"]]
        runs = [(str(one["model"]), str(one["dataset"]), str(one["seed"]), one["file"]) for one in page["files"]]
        order = [str(name) for name in page["models"]], [str(name) for name in page["datasets"]]
        tests = {"confidence_level": check_confidence_level(options["confidence_level"]), "cluster": options["cluster"]}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the manifest of {report} is damaged: {shorten(error)}") from error
    if unknown := [one for one in measures if isinstance(one, str) and known_measure(one) is None]:
        raise ValueError(f"the page is of the metric {unknown[0]!r}, which is user-defined: pass it in metrics=")
    differing = [one for run in runs for one in _add_file(study, base, *run)]
    notes = ["Only the manifest of the page is verified, not its displayed text and figures."]
    if differing:
        notes.append("No number was computed again, because files are missing or damaged.")
    else:
        study.arrange(*order)
        ours = json.loads(manifest_text(Page(study, study.table(measures, **tests)).manifest()))
        computed, theirs = dict(_entries(ours)), dict(_entries(page))
        for path in dict.fromkeys([*computed, *theirs]):
            a, b = theirs.get(path, "missing"), computed.get(path, "missing")
            if not _is_same(path[-1], a, b):
                differing.append((": ".join(path), a, b))
        if differing and all(where.startswith("versions") for where, *_ in differing):
            notes.append("Only versions differ: the numbers are the same.")
    agree = "agree" if not differing else f"{len(differing)} differences"
    notes.insert(0, f"{len(runs)} files and {len(numbers)} numbers: {agree}.")
    return Verification(tuple(differing), len(runs), len(numbers), tuple(notes))


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


def _add_file(study: RankStudy, base: Path, model: str, dataset: str, seed: str, file: Any) -> list[_Difference]:
    """Add the run of a file, or return the reason why it cannot be read."""
    where = f"files: {model} {dataset} {seed}"
    if file is None:
        return [(where, "in memory", "no file")]
    inside = PurePosixPath(str(file))
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"the manifest names the file {shorten(file)}: it must be a path below the folder")
    try:
        source, num_rows = source_of(base / inside)
        study._add(Run(model, dataset, seed, source, str(file), num_rows))
    except (OSError, ValueError) as error:
        return [(where, file, str(error))]
    return []


def _entries(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Everything in a value of JSON by its path; rows of tables have their labels in it, other entries their place."""
    if isinstance(value, list):
        rows = [one if isinstance(one, dict) else {} for one in value]
        labels = [" ".join(str(row[key]) for key in _LABELS if key in row) for row in rows]
        if not all(labels) or len(set(labels)) < len(labels):
            labels = [str(i) for i in range(1, len(value) + 1)]
        value = dict(zip(labels, value, strict=True))
    if not isinstance(value, dict):
        yield path, value
        return
    for key, one in value.items():
        yield from _entries(one, (*path, key))


def _is_same(key: str, page: Any, files: Any) -> bool:
    if isinstance(page, float) and isinstance(files, float):
        # p-values from random draws depend on the rounding of the machine
        return math.isclose(page, files, rel_tol=1e-9, abs_tol=1e-3 if key == "p_best" else 1e-14)
    return type(page) is type(files) and bool(page == files)


def _text(value: Any) -> str:
    return truncate(value if isinstance(value, str) else json.dumps(value))
