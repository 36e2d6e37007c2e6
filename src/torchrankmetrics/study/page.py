"""The page of a study: one HTML file without any other, and the manifest of its numbers."""

import hashlib
import html
import importlib.metadata
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrankmetrics.plots.canvas import to_svg
from torchrankmetrics.plots.distribution import rank_ecdf
from torchrankmetrics.rendering import Column, Rendered, Tabular
from torchrankmetrics.rendering.writers import to_html
from torchrankmetrics.study.across import Differences, Ranking
from torchrankmetrics.study.runs import Read
from torchrankmetrics.study.tables import WITHIN, StudyTable
from torchrankmetrics.table.columns import ABSENT, Columns, Rows
from torchrankmetrics.version import __version__


def card_of(read: Read) -> dict[str, Any]:
    """Card of a run: its names, its file, the digest of its rows, and how it was evaluated."""
    analysis = read.analysis
    columns = Columns(analysis.rows)
    protocol = {
        "tasks": int(columns.count.sum()),
        "sides": [str(side) for side in analysis.sides],
        "candidates": [int(columns.num_candidates.min()), int(columns.num_candidates.max())],
        "sampled": analysis.num_sampled,
        "nan": analysis.num_nan,
        "groups": len(np.unique(columns.group[columns.group != ABSENT])),
        "sample_ids": bool((columns.sample_id != ABSENT).all()),
    }
    run = read.run
    names = {"model": run.model, "dataset": run.dataset, "seed": run.seed, "file": run.file}
    return {**names, "sha256": digest(analysis.rows), "protocol": protocol}


def digest(rows: Rows) -> str:
    """SHA-256 of canonical rows (n, 10) int64: row by row, little-endian, sorted as ``RankTable.compact`` does."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()


def versions() -> dict[str, str]:
    """What computed the numbers."""
    others = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scipy")}
    # not from the metadata: of an editable installation they are as old as that
    return {"python": platform.python_version(), "torchrankmetrics": __version__} | others


@dataclass(frozen=True, eq=False)
class Contents:
    """The results of a page.

    Attributes:
        table: of all metrics.
        single: the same for each metric by itself, as it is shown.
        averages: over data sets; None for fewer than two data sets or models.
        ranking: likewise, of the first metric.
        differences: of the two models with the best mean rank, by the first metric; None where they are not compared.
        protocol: of each data set.
    """

    table: StudyTable
    single: Mapping[str, Rendered]
    averages: Rendered | None
    ranking: Ranking | None
    differences: Differences | None
    protocol: Rendered

    @property
    def tables(self) -> dict[str, Rendered]:
        """All tables by the names that the page has for them."""
        named = {f"values {key}": table for key, table in self.single.items()}
        across = {"averages": self.averages, "ranks": self.ranking, "differences": self.differences}
        named |= {name: table for name, table in across.items() if table is not None}
        return named | {"protocol": self.protocol}


@dataclass(frozen=True, eq=False)
class Protocol(Rendered):
    """Facts of the data sets, a row each."""

    rows: Sequence[tuple[Any, ...]]

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        names = ("dataset", "runs", "tasks", "sides", "candidates", "ties %", "in family")
        return Tabular([Column(name, key=name == "dataset") for name in names], self.rows, ())


@dataclass(frozen=True, eq=False)
class OfOneMetric(Rendered):
    """The part of a table that is of one metric, marked as the whole family says."""

    table: StudyTable
    key: str

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        whole = self.table
        one = tuple(measure for measure in whole.measures if measure.key == self.key)
        rows = "datasets" if len(whole.datasets) > len(whole.models) else "models"
        found = whole.only(one).shown(rows=rows)  # type: ignore[arg-type]
        # the page tells the facts of the data sets once, beside these tables
        return replace(found.tabular(), notes=found.how_to_read)


def protocol_of(study: "RankStudy", table: StudyTable) -> Protocol:
    """What was ranked among what."""
    rows = []
    for name in table.datasets:
        facts, data = table.facts[name], study.dataset(name)
        low, high = facts.candidates
        ties = sorted(100 * rate for rate in facts.tie_rates.values())
        tied = f"{ties[0]:.1f}" if ties[-1] - ties[0] < 0.05 else f"{ties[0]:.1f} to {ties[-1]:.1f}"
        sides = " and ".join(facts.sides) or "not said"
        compared = f"{len(data.aligned)} of {len(data.models)} models"
        among = f"{low} to {high}" if low != high else str(low)
        rows.append((name, len(data.reads), facts.num_tasks, sides, among, tied, compared))
    return Protocol(tuple(rows))


if TYPE_CHECKING:
    from torchrankmetrics.study.rank_study import RankStudy

MANIFEST, VERSION = "rank-manifest", 2
_MOST_CURVES, _MOST_MODELS, _MANY_TIES = 6, 6, 0.1
_STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def page_of(study: "RankStudy", contents: Contents, title: str) -> str:
    """Write the page.

    Raises:
        ImportError: without matplotlib, which draws its figures.
        OSError, ValueError: as ``RankStudy.table``.
    """
    figures = _Figures()
    seeds = f", {len(study.seeds)} seeds" if len(study.seeds) > 1 else ""
    about = f"{len(study.models)} models, {len(study.datasets)} data sets{seeds}: {len(study)} tables of ranks."
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="about">{about} Computed by torchrankmetrics {versions()["torchrankmetrics"]}.</p>',
        *_warned(_warnings(study, contents)),
        "<h2>Values</h2>",
        *(_table(f"values {key}", key, contents) for key in contents.single),
        *_values(contents, figures),
        *_across(contents, figures),
        *_distributions(study, contents, figures),
        "<h2>Protocol</h2>",
        _table("protocol", "What was ranked among what", contents),
        *_method(contents),
        *_embedded(manifest_of(study, contents)),
    ]
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    return head + "\n".join(parts) + "\n</body>\n</html>\n"


class _Figures:
    """Figures of the page, numbered."""

    def __init__(self) -> None:
        self.number = 0

    def figure(self, drawn: Any, caption: str) -> str:
        self.number += 1
        svg = to_svg(drawn[0], caption, f"figure{self.number}")
        return f"<figure>\n{svg}\n<figcaption>Figure {self.number}. {_text(caption)}</figcaption>\n</figure>"


def _text(text: str) -> str:
    return html.escape(text)


def _table(name: str, caption: str, contents: Contents) -> str:
    """A table of the contents with its notes, as the page has it."""
    tabular = contents.tables[name].tabular()
    written = to_html(replace(tabular, notes=()))
    captioned = written.replace("<table>", f"<table>\n<caption>{_text(caption)}</caption>", 1)
    notes = "\n".join(f'<p class="note">{_text(note)}</p>' for note in tabular.notes)
    return f'<section>\n<div class="table">\n{captioned}\n</div>\n{notes}\n</section>'


def _warnings(study: "RankStudy", contents: Contents) -> list[str]:
    told = [f"{name}: {warning}" for name, facts in contents.table.facts.items() for warning in facts.warnings]
    told += [f"{model} is missing on {data}" for model, data in study.missing]
    most = {name: max(facts.tie_rates.values()) for name, facts in contents.table.facts.items()}
    if tied := [f"{name} ({100 * rate:.0f} %)" for name, rate in most.items() if rate > _MANY_TIES]:
        told.append(f"more than a tenth of the true answers share their score with others on {', '.join(tied)}")
    return [*told, *contents.table.remarks, *contents.table.doubtful]


def _warned(warnings: list[str]) -> Iterable[str]:
    if warnings:
        yield '<section class="warnings">\n<h2>Before reading on</h2>\n<ul>'
        yield from (f"<li>{_text(warning)}</li>" for warning in warnings)
        yield "</ul>\n</section>"


def _values(contents: Contents, figures: _Figures) -> Iterable[str]:
    table = contents.table
    models = _drawn(contents)
    for one in table.measures:
        few = "" if len(models) == len(table.models) else f" The {len(models)} models with the best mean rank."
        caption = f"{one.key} with {100 * table.confidence_level:g} % intervals; bars mark chance.{few}"
        yield figures.figure(table.only([one], models).plot(), caption)


def _drawn(contents: Contents) -> list[str]:
    models = list(contents.table.models)
    if len(models) > _MOST_MODELS and contents.ranking is not None:
        mean = dict(zip(contents.ranking.models, contents.ranking.ranks.mean, strict=True))
        best = sorted(models, key=mean.__getitem__)[:_MOST_MODELS]
        models = [model for model in models if model in best]
    return models[:_MOST_MODELS]


def _across(contents: Contents, figures: _Figures) -> Iterable[str]:
    if contents.averages is None and contents.ranking is None:
        return
    yield "<h2>Across data sets</h2>"
    if contents.averages is not None:
        yield _table("averages", "Each data set counts once", contents)
    if (ranking := contents.ranking) is not None:
        yield figures.figure(
            ranking.plot(),
            f"Mean ranks by {ranking.metric} over {ranking.ranks.num_datasets} data sets; a bar joins models that are "
            "not told apart with the data sets as the sample (Friedman and Nemenyi).",
        )
        yield _table("ranks", "Mean ranks", contents)
    if (found := contents.differences) is not None:
        yield figures.figure(found.plot(), found.about)
        yield _table("differences", f"{found.metric}: {found.a} less {found.b}", contents)


def _distributions(study: "RankStudy", contents: Contents, figures: _Figures) -> Iterable[str]:
    yield "<h2>Distribution of ranks</h2>"
    models, datasets = _drawn(contents), study.datasets[:_MOST_CURVES]
    for name in datasets:
        there = study.dataset(name).models
        first = {model: there[model][0].table for model in models if model in there}
        if not first:
            continue
        caption = f"{name}: share of tasks with a rank of at most x, first seed of each model; dotted is chance."
        yield figures.figure(rank_ecdf(first), caption)
    left_out = [f"models {', '.join(m for m in study.models if m not in models)}"] * (len(models) < len(study.models))
    left_out += [f"data sets {', '.join(study.datasets[_MOST_CURVES:])}"] * (len(study.datasets) > _MOST_CURVES)
    if left_out:
        yield f'<p class="note">Not drawn: {_text("; ".join(left_out))}.</p>'


def _method(contents: Contents) -> Iterable[str]:
    table = contents.table
    drawn = "every task by itself" if table.cluster is None else f"tasks of one {table.cluster} together"
    lines = [
        "A value is the mean over the seeds of the metric on the realistic ranks (the mean of the best and the worst "
        "rank among equal scores) unless its name says another rank type.",
        f"Intervals of {100 * table.confidence_level:g} % draw {drawn}. With several seeds they are Student's t with "
        "the variance of seeds x tasks (Owen 2007) and Welch-Satterthwaite degrees of freedom, so they speak of other "
        "seeds and other tasks; with one seed they speak of other tasks only (Hall's correction for skewness, for "
        "shares "
        "Wilson's).",
        "Chance is the exact expectation of the metric when every rank is uniform among the candidates of its task.",
        f"All {table.num_tests} pairs of models, on all data sets and metrics of the tables of values, are one family: "
        "Holm's step-down correction (Holm 1979). A model without a mark is worse than the best of its data set; one "
        "such claim or more is wrong with probability "
        f"{100 * (1 - table.confidence_level):.3g} % at most, as far as means of tasks are normal.",
    ]
    if table.margin is not None:
        lines.append(
            f"{WITHIN} marks a model of which every other of its data set is shown not to be better by the margin of "
            f"{table.margin:g} or more: one-sided tests of each other model, of which the largest p counts (Berger "
            "1982), all marks of the tables of values one family (Holm). It takes the margin as chosen beforehand."
        )
    if contents.averages is not None:
        lines.append(
            "Across data sets each counts once. An interval with data sets as the sample answers: what of other data "
            "sets of the kind? One with tasks as the sample answers: what of other tasks of these data sets? The "
            "second is far narrower, and no answer to the first. Pooled tasks would let the largest data set decide."
        )
    yield "<h2>How each number was computed</h2>\n<ul>"
    yield from (f"<li>{_text(line)}</li>" for line in lines)
    yield "</ul>"


def manifest_of(study: "RankStudy", contents: Contents) -> dict[str, object]:
    """Everything that the numbers of the page depend on, and every number of its tables."""
    table = contents.table
    written: dict[str, Rendered] = {"values": table} | contents.tables
    return {
        "manifest": VERSION,
        "versions": versions(),
        "options": {
            "metrics": [one.key for one in table.measures],
            "confidence_level": table.confidence_level,
            "cluster": table.cluster,
            "margin": table.margin,
        },
        "models": study.models,
        "datasets": study.datasets,
        "files": [card_of(read) for name in study.datasets for read in study.dataset(name).reads],
        "tables": {name: json.loads(one.to_json()) for name, one in written.items()},
        "notes": {name: list(one.tabular().notes) for name, one in written.items()},
        "warnings": _warnings(study, contents),
    }


def manifest_text(manifest: dict[str, object]) -> str:
    """Write a manifest as JSON that no HTML ends."""
    return json.dumps(manifest).replace("<", "\\u003c")


def _embedded(manifest: dict[str, Any]) -> Iterable[str]:
    heads = ("file", "model", "data set", "seed", "tasks", "SHA-256 of its rows")
    rows = []
    for one in manifest["files"]:
        names = (one["model"], one["dataset"], one["seed"], one["protocol"]["tasks"], one["sha256"][:16])
        rows.append((one["file"] or "in memory", *names))
    table = to_html(Tabular.named(heads, rows))
    yield (
        "<h2>Files</h2>\n<p>This page embeds a manifest: files, versions and every number of the tables. "
        "<code>torchrankmetrics verify PAGE FOLDER</code> computes the manifest again from the files; it does not "
        "verify the displayed text.</p>\n"
        f'<details>\n<summary>{len(rows)} files</summary>\n<div class="table">\n{table}\n</div>\n</details>'
    )
    yield f'<script type="application/json" id="{MANIFEST}">{manifest_text(manifest)}</script>'
